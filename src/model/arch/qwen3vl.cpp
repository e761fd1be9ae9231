// qwen3vl: Qwen 3 VL, its text; a norm on every head of queries and keys.
// Pairs rotate by time, height and width, which of text are the same.
#include "src/model/architecture.h"

namespace nibble {
namespace {

constexpr NamePair names[] = {
    // Not implemented: images
    {"visual.*", ""},
    {"model.visual.*", ""},
};

void fields(Fields& f, Hyper& h) {
    standard_fields(f, h);
    section_fields(f, h);
    f.expect("hidden_act", {"silu"});
    f.expect("quantization_config", {});
}

Result<ModelSpec> build(const Hyper& h, bool, const TensorMap& tensors) {
    ModelSpec s = NIBBLE_TRY(standard_spec(h, RopeStyle::half, tensors));
    set_qk_norm(s, QkNorm::head);
    return s;
}

}  // namespace

extern const Architecture qwen3vl_arch;
const Architecture qwen3vl_arch{
    "qwen3vl", {"qwen3_vl", "qwen3_vl_text"}, fields, build, standard_names(), false, names};

}  // namespace nibble
