// mistral4: Mistral Small 4; DeepSeek's attention and experts, chosen by softmax, and queries that grow with
// their position. The text model only.
#include "src/model/arch/deepseek.h"

namespace nibble {
namespace {

constexpr auto names = joined(latent_names, image_names);

void fields(Fields& f, Hyper& h) {
    latent_fields(f, h);
    gating_fields(f, h);
    f.expect("n_group", {"1"});
}

Result<ModelSpec> build(const Hyper& h, bool, const TensorMap& tensors) { return latent_spec(h, tensors); }

}  // namespace

extern const Architecture mistral4_arch;
const Architecture mistral4_arch{"mistral4", {"mistral4"}, fields, build, standard_names(), false, names};

}  // namespace nibble
