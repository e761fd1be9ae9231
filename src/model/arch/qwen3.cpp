// qwen3: Qwen 3 dense models; a norm on every head of queries and keys.
// The head dimension is stated, not derived.
#include "src/model/arch/qwen3.h"

namespace nibble {
namespace {

void fields(Fields& f, Hyper& h) {
    standard_fields(f, h);
    f.assume("use_sliding_window", false);
    sliding_fields(f, h, 0);
    f.expect("hidden_act", {"silu"});
    f.expect("quantization_config", {});
}

}  // namespace

extern const Architecture qwen3_arch;
const Architecture qwen3_arch{"qwen3", {"qwen3"}, fields, qwen3_spec, standard_names()};

}  // namespace nibble
