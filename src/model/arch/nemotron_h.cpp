// nemotron_h: Nemotron-H and Nemotron Nano 2; state spaces (Mamba-2), a few layers that attend without
// positions, and feed-forwards of squared ReLU, each a layer by itself.
#include "src/model/arch/nemotron_h.h"

namespace nibble {
namespace {

void fields(Fields& f, Hyper& h) { nemotron_h_fields(f, h); }

Result<ModelSpec> build(const Hyper& h, bool, const TensorMap& tensors) {
    return nemotron_h_spec(h, tensors);
}

bool is_dense(const nlohmann::json& config) { return !nemotron_h_has_experts(config); }

}  // namespace

extern const Architecture nemotron_h_arch;
const Architecture nemotron_h_arch{"nemotron_h", {"nemotron_h"},   fields, build,   standard_names(),
                                   false,        nemotron_h_names, false,  is_dense};

}  // namespace nibble
