// qwen35: Qwen 3.5 and 3.6 dense models, their text.
// Three layers of linear attention to one of gated attention, a quarter of a head rotates.
#include "src/model/arch/qwen35.h"

namespace nibble {
namespace {

void fields(Fields& f, Hyper& h) { qwen35_fields(f, h); }

Result<ModelSpec> build(const Hyper& h, bool, const TensorMap& tensors) { return qwen35_spec(h, tensors); }

}  // namespace

extern const Architecture qwen35_arch;
const Architecture qwen35_arch{
    "qwen35", {"qwen3_5", "qwen3_5_text"}, fields, build, standard_names(), false, qwen35_names, true};

}  // namespace nibble
