// lfm2: LFM2; gated short convolutions in most layers, attention with a norm per head in the others.
// config.json states the width of the feed-forward before it is adjusted.
#include "src/model/arch/lfm2.h"

#include <cmath>

namespace nibble {
namespace {

void fields(Fields& f, Hyper& h) {
    lfm2_fields(f, h);
    if (!f.from_hf()) return;
    f.optional("", "block_ff_dim", h.n_ff);
    bool adjusted = true;
    float multiplier = 1;
    uint32_t multiple = 256;
    f.optional("", "block_auto_adjust_ff_dim", adjusted);
    f.optional("", "block_ffn_dim_multiplier", multiplier);
    f.optional("", "block_multiple_of", multiple);
    if (!adjusted || h.n_ff > max_width * 8) return;
    const double width = std::floor(static_cast<double>(multiplier) * (2 * h.n_ff / 3));
    if (!(width >= 0 && width <= max_width * 8.0) || multiple == 0 || multiple > max_width) {
        h.n_ff = 0;  // which is refused
        return;
    }
    h.n_ff = (static_cast<uint32_t>(width) + multiple - 1) / multiple * multiple;
}

Result<ModelSpec> build(const Hyper& h, bool, const TensorMap& tensors) { return lfm2_spec(h, tensors); }

}  // namespace

extern const Architecture lfm2_arch;
const Architecture lfm2_arch{"lfm2", {"lfm2"}, fields, build, standard_names(), false, lfm2_names};

}  // namespace nibble
