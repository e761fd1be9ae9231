// qwen2vl: Qwen 2 and 2.5 VL, their text; biases on queries, keys and values.
// Pairs rotate by time, height and width, which of text are the same.
#include "src/model/arch/qwen3.h"

namespace nibble {
namespace {

void fields(Fields& f, Hyper& h) {
    f.assume("rope_theta", 1e6f);
    standard_fields(f, h);
    section_fields(f, h);
    f.assume("use_sliding_window", false);
    sliding_fields(f, h, 0);
    f.expect("hidden_act", {"silu"});
    f.expect("quantization_config", {});
}

Result<ModelSpec> build(const Hyper& h, bool, const TensorMap& tensors) {
    return standard_spec(h, RopeStyle::half, tensors);
}

}  // namespace

extern const Architecture qwen2vl_arch;
const Architecture qwen2vl_arch{
    "qwen2vl",        {"qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text"},
    fields,           build,
    standard_names(), false,
    qwen_vl_names};

}  // namespace nibble
