// rope_table and rope_store: rotary position embedding and the write into the paged cache.
// Su et al. 2021 (arXiv:2104.09864); every scaling scheme is folded into inv_freq and magnitude by the model.
#include <algorithm>
#include <bit>

#include "ggml/ops/common.h"

namespace nibble {
namespace {

void table_reference(const OpArgs& a) {
    const Tensor &positions = a.in[0], &inv_freq = a.in[1], &out = a.out[0];
    const double magnitude = a.params->as<RopeTableParams>().magnitude;
    for (int64_t t = 0; t < out.rows; ++t)
        for (int64_t i = 0; i < inv_freq.cols; ++i) {
            const double angle =
                static_cast<double>(*positions.row<int32_t>(t)) * static_cast<double>(inv_freq.row(0)[i]);
            out.row(t)[2 * i] = static_cast<float>(std::cos(angle) * magnitude);
            out.row(t)[2 * i + 1] = static_cast<float>(std::sin(angle) * magnitude);
        }
}

Cost table_cost(const OpArgs& a) {
    Cost c = operand_traffic(a);
    c.flops = 20.0 * static_cast<double>(a.out[0].rows * a.out[0].cols);
    return c;
}

std::vector<OpCase> table_cases() {
    return {{"rope_table", token_shape(4), 1e-12, [](Builder& b, CaseSink& s) {
                 const Ref positions = s.int_input(b, RowDim::tokens, 1, {0, 1, 511, 131071});
                 rope_table(b, positions, s.random_weight(b, Type::f32, 1, 33), {1.25f});
             }}};
}

// Rotates one head of x into y; cs holds (cos, sin) pairs. Columns past rot_dim are copied.
void rotate(const float* x, float* y, int64_t dim, const RopeStoreParams& p, const float* cs) {
    const int64_t rot = cs ? p.rot_dim : 0;
    for (int64_t i = 0; i < rot / 2; ++i) {
        const bool half = p.style == RopeStyle::half;
        const int64_t lo = half ? i : 2 * i, hi = half ? i + rot / 2 : 2 * i + 1;
        const float c = cs[2 * i], s = cs[2 * i + 1], u = x[lo], v = x[hi];
        y[lo] = u * c - v * s;
        y[hi] = u * s + v * c;
    }
    for (int64_t i = rot; i < dim; ++i) y[i] = x[i];
}

// By its definition: y[i] = sum over j of (-1)^(bits of i and j) x[j] / sqrt(n).
void hadamard(float* x, int64_t dim, int64_t n) {
    std::vector<float> in(static_cast<size_t>(n));
    for (float* p = x; n > 0 && p < x + dim; p += n) {
        std::copy(p, p + n, in.begin());
        for (int64_t i = 0; i < n; ++i) {
            double sum = 0;
            for (int64_t j = 0; j < n; ++j) {
                const double v = static_cast<double>(in[static_cast<size_t>(j)]);
                sum += std::popcount(static_cast<uint64_t>(i & j)) % 2 == 0 ? v : -v;
            }
            p[i] = static_cast<float>(sum / std::sqrt(static_cast<double>(n)));
        }
    }
}

void store_reference(const OpArgs& a) {
    const auto& p = a.params->as<RopeStoreParams>();
    const Tensor &q = a.in[0], &k = a.in[1], &v = a.in[2], &table = a.in[3], &slots = a.in[4];
    const Tensor &k_cache = a.in[5], &v_cache = a.in[6], &out = a.out[0];
    std::vector<float> head(static_cast<size_t>(p.head_dim));
    for (int64_t t = 0; t < q.rows; ++t) {
        const float* cs = table ? table.row(t) : nullptr;
        for (int64_t h = 0; h < p.n_heads; ++h) {
            rotate(q.row(t) + h * p.head_dim, out.row(t) + h * p.head_dim, p.head_dim, p, cs);
            hadamard(out.row(t) + h * p.head_dim, p.head_dim, p.hadamard);
        }
        const int32_t slot = slots ? *slots.row<int32_t>(t) : -1;
        if (slot < 0) continue;
        for (int64_t h = 0; h < p.n_kv_heads; ++h) {
            const int64_t row = (slot / p.page_size * p.n_kv_heads + h) * p.page_size + slot % p.page_size;
            if (row >= k_cache.rows) continue;
            rotate(k.row(t) + h * p.head_dim, head.data(), p.head_dim, p, cs);
            hadamard(head.data(), p.head_dim, p.hadamard);
            info(k_cache.type).encode(head.data(), k_cache.data + row * k_cache.stride, head.size());
            if (!v_cache) continue;
            info(v_cache.type)
                .encode(v.row(t) + h * p.v_head_dim, v_cache.data + row * v_cache.stride,
                        static_cast<size_t>(p.v_head_dim));
        }
    }
}

Cost store_cost(const OpArgs& a) {
    Cost c;
    for (const size_t i : {0, 1, 2}) c.bytes_read += static_cast<double>(a.in[i].rows * a.in[i].cols) * 4;
    c.bytes_written = static_cast<double>(a.out[0].rows * a.out[0].cols) * 4;
    for (const size_t i : {5, 6})
        if (a.in[i].cols > 0)
            c.bytes_written += static_cast<double>(a.out[0].rows) * static_cast<double>(a.in[i].stride) *
                               a.params->as<RopeStoreParams>().n_kv_heads;
    c.flops = 3.0 * static_cast<double>(a.out[0].rows * (a.in[0].cols + a.in[1].cols));
    return c;
}

OpCase rotate_case(RopeStoreParams p) {
    return {cat("rope_store of queries alone, ", p.head_dim, p.hadamard ? " hadamard" : ""), token_shape(5),
            1e-12, [=](Builder& b, CaseSink& s) {
                const Ref q = s.random_input(b, RowDim::tokens, p.n_heads * p.head_dim);
                const Ref table = s.random_input(b, RowDim::tokens, p.rot_dim);
                rope_store(b, {q, {}, {}}, table, {}, {}, {}, p);
            }};
}

OpCase store_case(Type type, RopeStoreParams p, bool rotated) {
    // A last bit of rounding can move a value across the border between two codes.
    const bool exact = info(type).dot == DotClass::real && (p.hadamard == 0 || type == Type::f32);
    return {cat("rope_store ", info(type).name, " rot ", p.rot_dim,
                p.style == RopeStyle::half ? " half" : " adjacent", p.hadamard ? " hadamard" : ""),
            token_shape(5),
            exact                              ? 1e-12
            : type == Type::q4_0 && p.hadamard ? 1e-4
                                               : 1e-6,
            [=](Builder& b, CaseSink& s) {
                const int64_t pages = 3;
                const Ref q = s.random_input(b, RowDim::tokens, p.n_heads * p.head_dim);
                const Ref k = s.random_input(b, RowDim::tokens, p.n_kv_heads * p.head_dim);
                const bool values = p.v_head_dim > 0;
                const Ref v = values ? s.random_input(b, RowDim::tokens, p.n_kv_heads * p.v_head_dim) : Ref{};
                const Ref table = rotated ? s.random_input(b, RowDim::tokens, p.rot_dim) : Ref{};
                const Ref slots =
                    s.int_input(b, RowDim::tokens, 1, {p.page_size + 1, 2, -1, 0, 3 * p.page_size - 1});
                const int64_t rows = pages * p.page_size * p.n_kv_heads;
                const Ref k_cache = values ? s.random_keys(b, type, rows, p.head_dim, p.page_size)
                                           : s.random_cache(b, type, rows, p.head_dim);
                const Ref v_cache = values ? s.random_cache(b, type, rows, p.v_head_dim) : Ref{};
                rope_store(b, {q, k, v}, table, slots, k_cache, v_cache, p);
            }};
}

std::vector<OpCase> store_cases() {
    std::vector<OpCase> list;
    for (const Type t : {Type::f32, Type::f16, Type::bf16, Type::q8_0, Type::q4_0})
        for (const RopeStyle style : {RopeStyle::half, RopeStyle::adjacent}) {
            list.push_back(store_case(t, {4, 2, 64, 64, 64, 4, style}, true));
            list.push_back(store_case(t, {3, 1, 96, 32, 32, 8, style}, true));
            list.push_back(store_case(t, {2, 2, 32, 32, 32, 4, style}, false));
            list.push_back(store_case(t, {4, 2, 64, 64, 64, 4, style, 64}, true));
            list.push_back(store_case(t, {2, 1, 96, 96, 96, 4, style, 32}, true));
            list.push_back(store_case(t, {3, 1, 96, 0, 32, 8, style}, true));
            list.push_back(store_case(t, {4, 2, 96, 64, 96, 32, style}, true));
        }
    list.push_back(store_case(Type::f16, {5, 5, 6, 10, 2, 4, RopeStyle::half}, true));
    list.push_back(rotate_case({5, 0, 48, 0, 24, 4, RopeStyle::half}));
    list.push_back(rotate_case({2, 0, 64, 0, 64, 4, RopeStyle::half, 64}));
    return list;
}

}  // namespace

const OpDef rope_table_op{
    static_cast<uint16_t>(Op::rope_table), "rope_table", table_reference, table_cost, nullptr, table_cases};
const OpDef rope_store_op{
    static_cast<uint16_t>(Op::rope_store), "rope_store", store_reference, store_cost, nullptr, store_cases};

Ref rope_table(Builder& b, Ref positions, Ref inv_freq, RopeTableParams p) {
    if (!b.require(is_i32(b, positions) && inv_freq && is_f32(b, inv_freq) && b.value(inv_freq).rows == 1,
                   "rope_table needs i32 positions and f32 frequencies"))
        return {};
    return b.emit(rope_table_op, {positions, inv_freq}, p,
                  {{Type::f32, b.value(positions).dim, 0, b.value(inv_freq).cols * 2}})[0];
}

Ref rope_store(Builder& b, QkvRefs qkv, Ref table, Ref slots, Ref k_cache, Ref v_cache,
               const RopeStoreParams& p) {
    const auto cols = [&](Ref r) { return b.value(r).cols; };
    const bool values = qkv.v || v_cache || p.v_head_dim > 0;
    const bool keys = qkv.k || k_cache || slots || values || p.n_kv_heads > 0;
    const bool shapes = qkv.q && bool(qkv.k) == keys && bool(qkv.v) == values &&
                        cols(qkv.q) == int64_t{p.n_heads} * p.head_dim &&
                        cols(qkv.k) == int64_t{p.n_kv_heads} * p.head_dim &&
                        cols(qkv.v) == int64_t{p.n_kv_heads} * p.v_head_dim;
    const bool rotation =
        !table || (cols(table) == p.rot_dim && p.rot_dim % 2 == 0 && p.rot_dim <= p.head_dim);
    const bool transform =
        p.hadamard == 0 || (p.hadamard > 0 && std::has_single_bit(static_cast<uint32_t>(p.hadamard)) &&
                            p.head_dim % p.hadamard == 0);
    const bool caches =
        !keys ||
        (k_cache && bool(v_cache) == values && cols(k_cache) == p.head_dim && cols(v_cache) == p.v_head_dim &&
         is_i32(b, slots) && (!values || b.value(k_cache).rows == b.value(v_cache).rows) && p.page_size > 0 &&
         info(b.value(k_cache).type).encode && info(b.value(v_cache).type).encode);
    if (!b.require(
            shapes && rotation && transform && caches,
            cat("q, k, v of ", cols(qkv.q), ", ", cols(qkv.k), ", ", cols(qkv.v), " columns for ", p.n_heads,
                " heads, ", p.n_kv_heads, " kv heads of ", p.head_dim, ", rotating ", p.rot_dim)))
        return {};
    return b.emit(rope_store_op, {qkv.q, qkv.k, qkv.v, table, slots, k_cache, v_cache}, p,
                  {{Type::f32, b.value(qkv.q).dim, 0, cols(qkv.q)}})[0];
}

}  // namespace nibble
