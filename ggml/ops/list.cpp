// The list of all ops: what the sweep test and the backends loop over.
// A new op adds its line here and in ops.h.
#include "ggml/ops/ops.h"

namespace nibble {

std::span<const OpDef* const> all_ops() {
    static constexpr const OpDef* ops[] = {
        &embed_op,      &norm_op,      &matmul_op,       &rope_table_op,
        &rope_store_op, &attention_op, &glu_op,          &activate_op,
        &add_op,        &take_rows_op, &copy_pages_op,   &moe_route_op,
        &moe_matmul_op, &moe_sum_op,   &splice_heads_op, &scale_by_position_op,
        &shortlist_op,  &draw_op,      &causal_conv_op,  &delta_rule_op,
        &ssm_scan_op};
    static_assert(std::size(ops) == static_cast<size_t>(Op::count_));
    return ops;
}

}  // namespace nibble
