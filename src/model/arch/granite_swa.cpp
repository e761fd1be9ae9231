// granite_swa: Granite with a window on three layers of four and a learned sink per head; layers may do
// without rotation.
#include <utility>

#include "src/model/arch/granite.h"

namespace nibble {
namespace {

constexpr NamePair names[] = {
    {"model.layers.{}.self_attn.sinks", "blk.{}.attn_sinks.weight"},
};

void fields(Fields& f, Hyper& h) {
    // For which Granite's own field says yes or no.
    const auto rotated = f.is_writing() ? std::exchange(h.rotated, {}) : std::vector<bool>();
    granite_fields(f, h, true);
    if (f.is_writing()) h.rotated = rotated;
    stated_sliding_fields(f, h, 4, true);
    rotation_fields(f, h);
    f.flags("attention.rope_pattern", "", "", "", h.rotated);
}

Result<ModelSpec> build(const Hyper& h, bool from_hf, const TensorMap& tensors) {
    return granite_spec(h, from_hf, tensors);
}

}  // namespace

extern const Architecture granite_swa_arch;
const Architecture granite_swa_arch{"granite_swa", {"granite_swa"}, fields, build, standard_names(), true,
                                    names};

}  // namespace nibble
