// smollm3: SmolLM3; every fourth layer has no positions, which GGUF has no key for.
// GGUF files hold permuted query and key rows, like those of llama.
#include <algorithm>

#include "src/model/architecture.h"

namespace nibble {
namespace {

constexpr uint32_t interval = 4;

void fields(Fields& f, Hyper& h) {
    f.assume("rope_theta", 2e6f);
    standard_fields(f, h);
    f.assume("use_sliding_window", false);
    sliding_fields(f, h, 0);
    f.expect("hidden_act", {"silu"});
    f.expect("quantization_config", {});
    std::vector<bool> usual;
    for (uint32_t i = 0; i < std::min(h.n_layers, max_layers); ++i) usual.push_back((i + 1) % interval != 0);
    if (f.is_writing() && h.rotated != usual)
        f.fail({ErrorCode::unsupported, "no_rope_layers",
                "is another pattern than every fourth layer, which GGUF cannot state", ""});
    if (f.is_writing()) return;
    h.rotated = usual;
    f.flags("", "no_rope_layers", "", "", h.rotated);  // 1: with positions
}

Result<ModelSpec> build(const Hyper& h, bool from_hf, const TensorMap& tensors) {
    return standard_spec(h, from_hf ? RopeStyle::half : RopeStyle::adjacent, tensors);
}

}  // namespace

extern const Architecture smollm3_arch;
const Architecture smollm3_arch{"smollm3", {"smollm3"}, fields, build, standard_names(), true};

}  // namespace nibble
