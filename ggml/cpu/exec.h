// How the CPU runs each op: resolves operands, splits the work into tasks, calls the kernels.
// Tasks are cut by rows and columns of the output, never along a sum, so any number of threads agrees.
#pragma once

#include <algorithm>
#include <span>

#include "ggml/base/thread_pool.h"
#include "ggml/cpu/kernel_table.h"

namespace nibble::cpu {

// Columns of a key: it passes through a fixed buffer on its way into the cache.
inline constexpr int32_t largest_head = 1024;

struct Exec {
    const KernelTable* kernels;
    ThreadPool* pool;
    Streaming streaming;
    int64_t kept_result;        // bytes of a result that are still in the cache when it is read
    bool deterministic = true;  // products of many rows have the bits of those of one
    std::span<const Tensor> next_weights = {};  // of the product behind the one that runs, if it is known

    // Calls fn(first, last, worker) over [0, n) in pieces; in one piece when all of it is less than about
    // `worth` operations, for then waking a thread costs more than it saves.
    template <class Fn>
    void rows(int64_t n, int64_t cost_per_row, const Fn& fn) const {
        constexpr int64_t worth = 1 << 15;
        if (n <= 0) return;
        if (pool->size() == 1 || n * cost_per_row < worth) return fn(int64_t{0}, n, 0);
        const int64_t pieces = n < 4 * pool->size() ? n : 4 * pool->size();
        pool->run(pieces, [&](int64_t i, int worker) { fn(n * i / pieces, n * (i + 1) / pieces, worker); });
    }
    // Calls fn(row, column, columns) for pieces of at most so many columns, whose values cost so much each:
    // one row of a wide layer uses all threads.
    template <class Fn>
    void pieces(int64_t n, int64_t cols, int64_t most, int64_t cost, const Fn& fn) const {
        const int64_t of_row = (cols + most - 1) / most;
        rows(n * of_row, cost * std::min(most, cols), [&](int64_t first, int64_t last, int) {
            for (int64_t i = first; i < last; ++i) {
                const int64_t c = i % of_row * most;
                fn(i / of_row, c, std::min(most, cols - c));
            }
        });
    }
};

using OpFunction = void (*)(const Exec&, const OpArgs&, std::span<std::byte> scratch);
// Null where the CPU has no implementation.
OpFunction op_function(const OpDef& op);
size_t op_scratch_bytes(const Exec&, const OpDef& op, const OpArgs& shapes);

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
void run_shortlist(const Exec&, const OpArgs&, std::span<std::byte>);
void run_draw(const Exec&, const OpArgs&, std::span<std::byte>);

void run_matmul(const Exec&, const OpArgs&, std::span<std::byte> scratch);
// A product whose x a gated unit gives. That is not written if the product's kernels read something else than
// f32: it becomes that at once.
void run_glu_matmul(const Exec&, const OpArgs& glu, const OpArgs& product, std::span<std::byte> scratch);
// A product whose x a gated unit gives of what the product before gives: where kernels make that of both sums
// at once, neither is written. With the memory of all three. False: they do not, and nothing was done.
bool run_gated_product(const Exec&, const OpArgs& gate_up, std::span<std::byte> gate_up_scratch,
                       const OpArgs& glu, const OpArgs& product, std::span<std::byte> scratch);
size_t matmul_scratch(const Exec&, const OpArgs& shapes);

void run_moe_route(const Exec&, const OpArgs&, std::span<std::byte>);
void run_moe_matmul(const Exec&, const OpArgs&, std::span<std::byte> scratch);
size_t moe_matmul_scratch(const Exec&, const OpArgs& shapes);
// Likewise of experts, however few rows there are.
bool run_gated_experts(const Exec&, const OpArgs& gate_up, std::span<std::byte> gate_up_scratch,
                       const OpArgs& glu, const OpArgs& product, std::span<std::byte> scratch);
size_t moe_route_scratch(const Exec&, const OpArgs& shapes);
void run_moe_sum(const Exec&, const OpArgs&, std::span<std::byte>);

void run_attention(const Exec&, const OpArgs&, std::span<std::byte> scratch);
size_t attention_scratch(const Exec&, const OpArgs& shapes);

void run_causal_conv(const Exec&, const OpArgs&, std::span<std::byte>);
void run_delta_rule(const Exec&, const OpArgs&, std::span<std::byte> scratch);
size_t delta_rule_scratch(const Exec&, const OpArgs& shapes);
void run_ssm_scan(const Exec&, const OpArgs&, std::span<std::byte> scratch);
size_t ssm_scan_scratch(const Exec&, const OpArgs& shapes);

}  // namespace nibble::cpu
