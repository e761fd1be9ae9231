// granitemoe: Granite 3 with experts.
// Gate and up of an expert are one matrix.
#include "src/model/arch/granite.h"

namespace nibble {
namespace {

constexpr NamePair names[] = {
    {"model.layers.{}.block_sparse_moe.router.layer", "blk.{}.ffn_gate_inp"},
    {"model.layers.{}.block_sparse_moe.input_linear", "blk.{}.ffn_gate_exps", Storage::gate_up},
    {"model.layers.{}.block_sparse_moe.output_linear", "blk.{}.ffn_down_exps"},
};

void fields(Fields& f, Hyper& h) {
    granite_fields(f, h, true);
    expert_fields(f, h);
}

Result<ModelSpec> build(const Hyper& h, bool from_hf, const TensorMap& tensors) {
    ModelSpec s = NIBBLE_TRY(granite_spec(h, from_hf, tensors));
    set_experts(s, h, tensors);
    return s;
}

}  // namespace

extern const Architecture granitemoe_arch;
const Architecture granitemoe_arch{"granitemoe",     {"granitemoe"}, fields, build,
                                   standard_names(), true,           names};

}  // namespace nibble
