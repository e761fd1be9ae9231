// gemma: Gemma 1.
// Its config.json may say "gelu" where the tanh form is meant.
#include "src/model/arch/gemma.h"

namespace nibble {
namespace {

void fields(Fields& f, Hyper& h) {
    standard_fields(f, h);
    gemma_expectations(f);
}

Result<ModelSpec> build(const Hyper& h, bool, const TensorMap& tensors) {
    return gemma_spec(h, tensors, false);
}

}  // namespace

extern const Architecture gemma_arch;
const Architecture gemma_arch{"gemma", {"gemma"}, fields, build, standard_names(), false, gemma_names};

}  // namespace nibble
