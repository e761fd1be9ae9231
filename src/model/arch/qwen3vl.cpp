// qwen3vl: Qwen 3 VL, its text; a norm on every head of queries and keys.
// Pairs rotate by time, height and width, which of text are the same.
#include "src/model/arch/qwen3.h"

namespace nibble {
namespace {

void fields(Fields& f, Hyper& h) {
    standard_fields(f, h);
    section_fields(f, h);
    f.expect("hidden_act", {"silu"});
    f.expect("quantization_config", {});
}

}  // namespace

extern const Architecture qwen3vl_arch;
const Architecture qwen3vl_arch{
    "qwen3vl", {"qwen3_vl", "qwen3_vl_text"}, fields, qwen3_spec, standard_names(), false, qwen_vl_names};

}  // namespace nibble
