// Ops that work row by row: embed, norm, rope, glu, activate, add, take_rows, copy_pages,
// splice_heads, scale_by_position, shortlist, draw.
// Also the table from op to function.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "ggml/cpu/exec.h"
#include "ggml/cpu/glu_rows.h"
#include "ggml/program/key_tiles.h"

namespace nibble::cpu {

OpFunction op_function(const OpDef& op) {
    switch (static_cast<Op>(op.id)) {
        case Op::embed:
            return run_embed;
        case Op::norm:
            return run_norm;
        case Op::matmul:
            return run_matmul;
        case Op::rope_table:
            return run_rope_table;
        case Op::rope_store:
            return run_rope_store;
        case Op::attention:
            return run_attention;
        case Op::glu:
            return run_glu;
        case Op::activate:
            return run_activate;
        case Op::add:
            return run_add;
        case Op::take_rows:
            return run_take_rows;
        case Op::splice_heads:
            return run_splice_heads;
        case Op::scale_by_position:
            return run_scale_by_position;
        case Op::copy_pages:
            return run_copy_pages;
        case Op::moe_route:
            return run_moe_route;
        case Op::moe_matmul:
            return run_moe_matmul;
        case Op::moe_sum:
            return run_moe_sum;
        case Op::shortlist:
            return run_shortlist;
        case Op::draw:
            return run_draw;
        case Op::causal_conv:
            return run_causal_conv;
        case Op::delta_rule:
            return run_delta_rule;
        case Op::ssm_scan:
            return run_ssm_scan;
        case Op::count_:
            break;
    }
    return nullptr;
}

size_t op_scratch_bytes(const Exec& exec, const OpDef& op, const OpArgs& shapes) {
    switch (static_cast<Op>(op.id)) {
        case Op::matmul:
            return matmul_scratch(exec, shapes);
        case Op::attention:
            return attention_scratch(exec, shapes);
        case Op::moe_matmul:
            return moe_matmul_scratch(exec, shapes);
        case Op::moe_route:
            return moe_route_scratch(exec, shapes);
        case Op::delta_rule:
            return delta_rule_scratch(exec, shapes);
        case Op::ssm_scan:
            return ssm_scan_scratch(exec, shapes);
        default:
            return 0;
    }
}

void run_embed(const Exec& exec, const OpArgs& a, std::span<std::byte>) {
    const Tensor &ids = a.in[0], &table = a.in[1], &drawn = a.in[2], &out = a.out[0];
    const float scale = a.params->as<EmbedParams>().scale;
    const TypeInfo& type = info(table.type);
    exec.rows(out.rows, out.cols, [&](int64_t first, int64_t last, int) {
        for (int64_t t = first; t < last; ++t) {
            const int64_t id = embedded_row(*ids.row<int32_t>(t), drawn.row(0), drawn.rows);
            if (id < 0 || id >= table.rows) {
                std::memset(out.row(t), 0, static_cast<size_t>(out.cols) * 4);
                continue;
            }
            exec.kernels->rows.decode(type, table.row<std::byte>(id), out.row(t), out.cols);
            if (scale != 1) exec.kernels->rows.scale(out.row(t), scale, out.cols);
        }
    });
}

void run_norm(const Exec& exec, const OpArgs& a, std::span<std::byte>) {
    const Tensor &x = a.in[0], &weight = a.in[1], &bias = a.in[2], &residual = a.in[3], &out = a.out[0];
    exec.rows(x.rows, x.cols, [&](int64_t first, int64_t last, int) {
        for (int64_t r = first; r < last; ++r)
            exec.kernels->rows.norm({&a.params->as<NormParams>(), x.cols, x.row(r),
                                     weight ? weight.row(0) : nullptr, bias ? bias.row(0) : nullptr,
                                     residual ? residual.row(r) : nullptr, out.row(r)});
    });
}

void run_rope_table(const Exec& exec, const OpArgs& a, std::span<std::byte>) {
    const Tensor &positions = a.in[0], &inv_freq = a.in[1], &out = a.out[0];
    const double magnitude = a.params->as<RopeTableParams>().magnitude;
    constexpr int64_t cost = 64;  // operations per sine and cosine
    exec.rows(out.rows, cost * inv_freq.cols, [&](int64_t first, int64_t last, int) {
        for (int64_t t = first; t < last; ++t) {
            const double position = *positions.row<int32_t>(t);
            for (int64_t i = 0; i < inv_freq.cols; ++i) {
                const double angle = position * static_cast<double>(inv_freq.row(0)[i]);
                out.row(t)[2 * i] = static_cast<float>(std::cos(angle) * magnitude);
                out.row(t)[2 * i + 1] = static_cast<float>(std::sin(angle) * magnitude);
            }
        }
    });
}

namespace {

struct StoreOperands {
    const RopeStoreParams& p;
    const Tensor &q, &k, &v, &table, &slots, &k_cache, &v_cache, &out;
};

// One token: the queries to `out`, keys and values of each head to their cache rows.
void store_token(const KernelTable& kernels, const StoreOperands& o, const TypeInfo& k_type,
                 const TypeInfo& v_type, int64_t t) {
    const RopeStoreParams& p = o.p;
    const float* table = o.table ? o.table.row(t) : nullptr;
    kernels.rows.rope(p, p.n_heads, table, o.q.row(t), o.out.row(t));
    const int64_t slot = o.slots ? *o.slots.row<int32_t>(t) : -1;
    if (slot < 0) return;
    const int64_t first = slot / p.page_size * p.n_kv_heads * p.page_size + slot % p.page_size;
    alignas(64) float head[largest_head];
    alignas(64) std::byte encoded[largest_head * sizeof(float)];
    for (int64_t h = 0; h < p.n_kv_heads; ++h) {
        const int64_t row = first + h * p.page_size;
        if (row >= o.k_cache.rows) return;
        kernels.rows.rope(p, 1, table, o.k.row(t) + h * p.head_dim, head);
        if (o.k_cache.layout == Layout::key_tiles) {
            kernels.rows.encode(k_type, head, encoded, p.head_dim);
            store_key_tile_row(o.k_cache, row, encoded);
        } else {
            kernels.rows.encode(k_type, head, o.k_cache.row<std::byte>(row), p.head_dim);
        }
        if (!o.v_cache) continue;
        kernels.rows.encode(v_type, o.v.row(t) + h * p.v_head_dim, o.v_cache.row<std::byte>(row),
                            p.v_head_dim);
    }
}

}  // namespace

void run_rope_store(const Exec& exec, const OpArgs& a, std::span<std::byte>) {
    const StoreOperands o{a.params->as<RopeStoreParams>(),
                          a.in[0],
                          a.in[1],
                          a.in[2],
                          a.in[3],
                          a.in[4],
                          a.in[5],
                          a.in[6],
                          a.out[0]};
    const TypeInfo &k_type = info(o.k_cache.type), &v_type = info(o.v_cache.type);
    exec.rows(o.q.rows, 4 * (o.q.cols + o.k.cols + o.v.cols), [&](int64_t first, int64_t last, int) {
        for (int64_t t = first; t < last; ++t) store_token(*exec.kernels, o, k_type, v_type, t);
    });
}

void run_glu(const Exec& exec, const OpArgs& a, std::span<std::byte>) {
    const GluRows rows(exec, a);
    const Tensor& out = a.out[0];
    rows.each_piece(exec, [&](int64_t r, int64_t c, int64_t n) { rows.write(r, c, n, out.row(r) + c); });
}

void run_activate(const Exec& exec, const OpArgs& a, std::span<std::byte>) {
    const auto& p = a.params->as<ActivateParams>();
    const Tensor &x = a.in[0], &out = a.out[0];
    exec.pieces(out.rows, out.cols, 1024, 8, [&](int64_t r, int64_t c, int64_t n) {
        exec.kernels->rows.activate(p, x.row(r) + c, out.row(r) + c, n);
    });
}

void run_add(const Exec& exec, const OpArgs& a, std::span<std::byte>) {
    const Tensor &x = a.in[0], &y = a.in[1], &out = a.out[0];
    const float scale = a.params->as<AddParams>().scale;
    exec.rows(out.rows, out.cols, [&](int64_t first, int64_t last, int) {
        for (int64_t r = first; r < last; ++r)
            exec.kernels->rows.add(x.row(r), y.row(y.rows == 1 ? 0 : r), scale, out.row(r), out.cols);
    });
}

void run_scale_by_position(const Exec& exec, const OpArgs& a, std::span<std::byte>) {
    const auto& p = a.params->as<PositionScaleParams>();
    const Tensor &x = a.in[0], &positions = a.in[1], &out = a.out[0];
    exec.rows(out.rows, out.cols, [&](int64_t first, int64_t last, int) {
        for (int64_t t = first; t < last; ++t) {
            const double periods = *positions.row<int32_t>(t) / p.period;
            std::memcpy(out.row(t), x.row(t), static_cast<size_t>(out.cols) * 4);
            exec.kernels->rows.scale(
                out.row(t), static_cast<float>(1 + static_cast<double>(p.beta) * std::log(1 + periods)),
                out.cols);
        }
    });
}

void run_take_rows(const Exec& exec, const OpArgs& a, std::span<std::byte>) {
    const Tensor &x = a.in[0], &rows = a.in[1], &out = a.out[0];
    const auto bytes = static_cast<size_t>(out.cols) * 4;
    exec.rows(out.rows, out.cols, [&](int64_t first, int64_t last, int) {
        for (int64_t r = first; r < last; ++r) {
            const int64_t from = *rows.row<int32_t>(r);
            if (from < 0 || from >= x.rows)
                std::memset(out.row(r), 0, bytes);
            else
                std::memcpy(out.row(r), x.row(from), bytes);
        }
    });
}

void run_splice_heads(const Exec& exec, const OpArgs& a, std::span<std::byte>) {
    const auto& p = a.params->as<SpliceParams>();
    const Tensor &x = a.in[0], &behind = a.in[1], &out = a.out[0];
    const int64_t x_cols = x.cols / p.n_heads, b_cols = behind ? behind.cols / p.n_heads : 0;
    const int64_t cols = p.a_count + b_cols;
    exec.rows(out.rows * p.n_heads, cols, [&](int64_t first, int64_t last, int) {
        for (int64_t i = first; i < last; ++i) {
            const int64_t t = i / p.n_heads, h = i % p.n_heads;
            float* const to = out.row(t) + h * cols;
            std::memcpy(to, x.row(t) + h * x_cols + p.a_first, static_cast<size_t>(p.a_count) * 4);
            if (b_cols > 0)
                std::memcpy(to + p.a_count, behind.row(t) + h * b_cols, static_cast<size_t>(b_cols) * 4);
        }
    });
}

void run_copy_pages(const Exec& exec, const OpArgs& a, std::span<std::byte>) {
    const Tensor &cache = a.in[0], &pairs = a.in[1];
    const int64_t page_bytes = a.params->as<CopyPagesParams>().page_rows * cache.stride;
    const int64_t pages = cache.rows / a.params->as<CopyPagesParams>().page_rows;
    exec.rows(pairs.rows, page_bytes / 4, [&](int64_t first, int64_t last, int) {
        for (int64_t i = first; i < last; ++i) {
            const int64_t from = pairs.row<int32_t>(i)[0], to = pairs.row<int32_t>(i)[1];
            if (from < 0 || from >= pages || to < 0 || to >= pages || from == to) continue;
            std::memcpy(cache.data + to * page_bytes, cache.data + from * page_bytes,
                        static_cast<size_t>(page_bytes));
        }
    });
}

// As the reference has it, several rows at once: the CPU's own samplers look at the logits where they are.
void run_shortlist(const Exec& exec, const OpArgs& a, std::span<std::byte>) {
    exec.rows(a.in[0].rows, 16 * a.in[0].cols, [&](int64_t first, int64_t last, int) {
        Tensor in[] = {a.in[0], a.in[1]}, out = a.out[0];
        for (Tensor* t : {&in[0], &in[1], &out}) {
            t->data += first * t->stride;
            t->rows = last - first;
        }
        shortlist_op.reference({in, {&out, 1}, a.params});
    });
}

void run_draw(const Exec&, const OpArgs& a, std::span<std::byte>) { draw_op.reference(a); }

}  // namespace nibble::cpu
