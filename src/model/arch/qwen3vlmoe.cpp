// qwen3vlmoe: Qwen 3 VL with experts, its text.
// Otherwise as qwen3vl.
#include "src/model/arch/qwen3.h"

namespace nibble {
namespace {

void fields(Fields& f, Hyper& h) {
    standard_fields(f, h);
    section_fields(f, h);
    qwen3_fields(f, h);
}

}  // namespace

extern const Architecture qwen3vlmoe_arch;
const Architecture qwen3vlmoe_arch{
    "qwen3vlmoe", {"qwen3_vl_moe", "qwen3_vl_moe_text"}, fields, qwen3_spec, standard_names(), false,
    qwen_vl_names};

}  // namespace nibble
