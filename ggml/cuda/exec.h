// How the GPU runs each op: checks nothing (shapes were checked when recorded), plans launches, launches.
// One function per op; memory is the device's, row counts are those of the step.
#pragma once

#include <algorithm>
#include <span>

#include "ggml/cuda/runtime.h"
#include "ggml/ops/ops.h"
#include "ggml/program/backend.h"

namespace nibble::cuda {

// Counters that let the last block of a tile finish it: zeros between kernels.
inline constexpr int64_t attention_counters = 1 << 14;

struct Exec {
    Stream* stream;
    const Card* card;
    int* counters;          // attention_counters of them
    int64_t most_streamed;  // as CudaOptions says
    bool warpgroups;        // that multiply together are to be had
    bool gemv;              // as CudaOptions says
};

// Rows of x up to which weights are streamed: those of one pass at least.
inline constexpr int64_t few = 32;
inline int64_t most_streamed(const Exec& e) { return std::max(few, e.most_streamed); }
// Whether warpgroups multiply in a step of more rows than that. Fewer keep to the arithmetic of one.
inline bool warpgroups_apply(const Exec& e, int64_t rows) { return e.warpgroups && rows > most_streamed(e); }
// Whether they multiply fewer rows too, those of a batch, with their columns in another order.
inline constexpr int64_t most_few = 8, most_batched = 128;
inline bool batch_applies(const Exec& e, int64_t rows) {
    return e.warpgroups && e.gemv && rows > most_few && rows <= std::min(most_streamed(e), most_batched);
}

// Bytes of plain rows, from the first of the first to the last of the last: columns of something wider end
// before their last row's stride does, perhaps where memory ends.
inline size_t extent_bytes(const Tensor& t) {
    return t.rows == 0 ? 0 : static_cast<size_t>((t.rows - 1) * t.stride) + *row_bytes(t.type, t.cols);
}

// Whether instructions can share a launch depends on what lies where, for its blocks are in no order.
inline std::span<std::byte> memory_of(const Tensor& t) {
    if (!t.data) return {};
    return {t.data, t.layout == Layout::rows ? extent_bytes(t) : static_cast<size_t>(t.rows * t.stride)};
}
inline bool overlap(std::span<const std::byte> a, std::span<const std::byte> b) {
    return !a.empty() && !b.empty() && a.data() < b.data() + b.size() && b.data() < a.data() + a.size();
}
inline bool overlap(const Tensor& a, std::span<const std::byte> b) { return overlap(memory_of(a), b); }
inline bool overlap(const Tensor& a, const Tensor& b) { return overlap(memory_of(a), memory_of(b)); }

inline bool is_at(std::span<const BoundInstr> instrs, size_t i, const OpDef& op) {
    return i < instrs.size() && instrs[i].instr->op == &op;
}

using OpFunction = void (*)(const Exec&, const OpArgs&, std::span<std::byte> scratch);

void run_embed(const Exec&, const OpArgs&, std::span<std::byte>);
void run_norm(const Exec&, const OpArgs&, std::span<std::byte>);
void run_rope_table(const Exec&, const OpArgs&, std::span<std::byte>);
void run_rope_store(const Exec&, const OpArgs&, std::span<std::byte>);
void run_glu(const Exec&, const OpArgs&, std::span<std::byte>);
void run_activate(const Exec&, const OpArgs&, std::span<std::byte>);
void run_add(const Exec&, const OpArgs&, std::span<std::byte>);
void run_take_rows(const Exec&, const OpArgs&, std::span<std::byte>);
void run_splice_heads(const Exec&, const OpArgs&, std::span<std::byte>);
void run_scale_by_position(const Exec&, const OpArgs&, std::span<std::byte>);
void run_copy_pages(const Exec&, const OpArgs&, std::span<std::byte>);

void run_matmul(const Exec&, const OpArgs&, std::span<std::byte> scratch);
size_t matmul_scratch(const Exec&, const OpArgs& shapes);

// Launches the first instructions together where that gives the same bits as one by one, and returns how many
// they are, or 0: a norm or a gated unit and the matmul that follows, the two weights of a gated unit and the
// unit.
size_t run_joined(const Exec&, std::span<const BoundInstr> instrs);
// The same of the same rows of two tensors; of a norm and the unit that its results go through; of norms of
// queries and keys and the rotation that follows, and of these and the attention of sequences of one token
// (as many tokens as sequences are one of each); of a norm, a router and the choice of experts; of the
// experts' gate and up and their unit, or of down, their sum and the residual that it is added to; of the
// last two alone.
size_t run_joined_take_rows(const Exec&, std::span<const BoundInstr> instrs);
size_t run_joined_norm(const Exec&, std::span<const BoundInstr> instrs);
size_t run_joined_store(const Exec&, std::span<const BoundInstr> instrs);
size_t run_joined_attention(const Exec&, std::span<const BoundInstr> instrs);
size_t run_joined_router(const Exec&, std::span<const BoundInstr> instrs);
size_t run_joined_experts(const Exec&, std::span<const BoundInstr> instrs);
size_t run_joined_moe_sum(const Exec&, std::span<const BoundInstr> instrs);

bool moe_route_supported(const OpArgs& shapes);
void run_moe_route(const Exec&, const OpArgs&, std::span<std::byte>);
bool moe_matmul_supported(const OpArgs& shapes);
void run_moe_matmul(const Exec&, const OpArgs&, std::span<std::byte> scratch);
size_t moe_matmul_scratch(const Exec&, const OpArgs& shapes);
void run_moe_sum(const Exec&, const OpArgs&, std::span<std::byte>);

bool shortlist_supported(const OpArgs& shapes);
void run_shortlist(const Exec&, const OpArgs&, std::span<std::byte> scratch);
size_t shortlist_scratch(const Exec&, const OpArgs& shapes);
bool draw_supported(const OpArgs& shapes);
void run_draw(const Exec&, const OpArgs&, std::span<std::byte>);

bool attention_supported(const AttentionParams& p, Type k_type, Type v_type);
void run_attention(const Exec&, const OpArgs&, std::span<std::byte> scratch);
size_t attention_scratch(const Exec&, const OpArgs& shapes);

void run_causal_conv(const Exec&, const OpArgs&, std::span<std::byte>);
void run_delta_rule(const Exec&, const OpArgs&, std::span<std::byte>);
void run_ssm_scan(const Exec&, const OpArgs&, std::span<std::byte>);

// Adds to `count`, in the device's memory, how many threads of a warpgroup got the products that they should:
// all warpgroup_check_threads of them, or warpgroups are not to be used.
inline constexpr int warpgroup_check_threads = 128;
void check_warpgroups(Stream& stream, int* count);

// Reads `bytes` from `data` and leaves something of them in `sink`: for measuring.
void read_through(Stream& stream, const std::byte* data, size_t bytes, std::byte* sink);

}  // namespace nibble::cuda
