// gemma2: Gemma 2; every second layer slides, both soft caps, norms on both sides of a block.
// The scale of the queries is not derived from the head dimension.
#include "src/model/arch/gemma.h"

namespace nibble {
namespace {

void fields(Fields& f, Hyper& h) {
    // GGUF files of the first days say none of these; the class assumes them, too.
    if (!f.is_writing()) h.window = 4096, h.attn_softcap = 50, h.logit_softcap = 30;
    standard_fields(f, h);
    sliding_fields(f, h, 2);
    f.optional("attn_logit_softcapping", "attn_logit_softcapping", h.attn_softcap);
    f.optional("final_logit_softcapping", "final_logit_softcapping", h.logit_softcap);
    gemma_scale_fields(f, h, 46);
    gemma_expectations(f);
}

Result<ModelSpec> build(const Hyper& h, bool, const TensorMap& tensors) {
    return gemma_spec(h, tensors, true);
}

}  // namespace

extern const Architecture gemma2_arch;
const Architecture gemma2_arch{"gemma2", {"gemma2"}, fields, build, standard_names(), false, sandwich_names};

}  // namespace nibble
