// attention: scaled dot-product attention of a mixed batch over the paged cache.
// Vaswani et al. 2017; grouped queries: Ainslie et al. 2023 (arXiv:2305.13245); paging: Kwon et al. 2023.
#include <algorithm>
#include <limits>

#include "ggml/ops/common.h"

namespace nibble {
namespace {

struct Sequence {
    const int32_t* pages;
    int64_t max_pages;
};

// Cache row of a position, or -1 when the table does not reach it.
int64_t cache_row(const Sequence& s, int64_t position, int64_t head, const AttentionParams& p) {
    const int64_t page = position / p.page_size;
    if (page >= s.max_pages || s.pages[page] < 0) return -1;
    return (int64_t{s.pages[page]} * p.n_kv_heads + head) * p.page_size + position % p.page_size;
}

void attend(const OpArgs& a, int64_t t, int64_t h, const Sequence& seq) {
    const auto& p = a.params->as<AttentionParams>();
    const Tensor &k_cache = a.in[1], &v_cache = a.in[2], &sinks = a.in[6];
    const float* q = a.in[0].row(t) + h * p.head_dim;
    const int64_t position = *a.in[4].row<int32_t>(t), kv_head = h / (p.n_heads / p.n_kv_heads);
    const int64_t from = p.window ? std::max<int64_t>(0, position - p.window + 1) : 0;
    std::vector<double> scores;
    double top = sinks ? sinks.row(0)[h] : -std::numeric_limits<double>::infinity();
    for (int64_t j = from; j <= position; ++j) {
        const auto k = decoded_row(k_cache, cache_row(seq, j, kv_head, p));
        double s = 0;
        for (size_t i = 0; i < k.size(); ++i) s += static_cast<double>(q[i]) * static_cast<double>(k[i]);
        s *= p.scale;
        if (p.softcap > 0) s = p.softcap * std::tanh(s / p.softcap);
        scores.push_back(s);
        top = std::max(top, s);
    }
    double sum = sinks ? std::exp(sinks.row(0)[h] - top) : 0;
    std::vector<double> y(static_cast<size_t>(p.v_head_dim), 0.0);
    for (int64_t j = from; j <= position; ++j) {
        const double weight = std::exp(scores[static_cast<size_t>(j - from)] - top);
        const auto v = decoded_row(v_cache, cache_row(seq, j, kv_head, p));
        for (size_t i = 0; i < y.size(); ++i) y[i] += weight * static_cast<double>(v[i]);
        sum += weight;
    }
    for (size_t i = 0; i < y.size(); ++i)
        a.out[0].row(t)[h * p.v_head_dim + static_cast<int64_t>(i)] = static_cast<float>(y[i] / sum);
}

void reference(const OpArgs& a) {
    const auto& p = a.params->as<AttentionParams>();
    const Tensor &seq_rows = a.in[3], &page_table = a.in[5];
    for (int64_t s = 0; s < seq_rows.rows; ++s) {
        const int32_t first = seq_rows.row<int32_t>(s)[0], count = seq_rows.row<int32_t>(s)[1];
        for (int64_t t = first; t < first + count; ++t)
            for (int64_t h = 0; h < p.n_heads; ++h)
                attend(a, t, h, {page_table.row<int32_t>(s), page_table.cols});
    }
}

// Keys and values that are read: every row's window, once per sequence (the rows of one share the reads).
Cost cost(const OpArgs& a) {
    const auto& p = a.params->as<AttentionParams>();
    const Tensor &q = a.in[0], &seq_rows = a.in[3], &positions = a.in[4];
    Cost c;
    c.bytes_read = static_cast<double>(q.rows * q.cols) * 4;
    c.bytes_written = static_cast<double>(a.out[0].rows * a.out[0].cols) * 4;
    if (!seq_rows || !positions) return c;
    for (int64_t s = 0; s < seq_rows.rows; ++s) {
        const int64_t first = seq_rows.row<int32_t>(s)[0], count = seq_rows.row<int32_t>(s)[1];
        if (count <= 0) continue;
        const auto attended = [&](int64_t t) {
            const int64_t n = *positions.row<int32_t>(t) + 1;
            return p.window ? std::min<int64_t>(n, p.window) : n;
        };
        const int64_t last = attended(first + count - 1);
        const bool shared = a.in[2].data >= a.in[1].data && a.in[2].data < a.in[1].data + a.in[1].stride;
        c.bytes_read +=
            static_cast<double>(last * p.n_kv_heads * (a.in[1].stride + (shared ? 0 : a.in[2].stride)));
        for (int64_t t = first; t < first + count; ++t)
            c.flops += 2.0 * static_cast<double>(attended(t) * p.n_heads * (p.head_dim + p.v_head_dim));
    }
    return c;
}

struct BatchRows {
    int64_t tokens;
    std::vector<int32_t> seq_rows, positions;  // two sequences or one
};

// `first` >= 0: the values are columns of the keys from there.
OpCase attention_case(Type type, AttentionParams p, const BatchRows& l, bool sinks, int32_t first = -1) {
    const auto sequences = static_cast<int64_t>(l.seq_rows.size() / 2);
    return {cat("attention ", info(type).name, " heads ", p.n_heads, "/", p.n_kv_heads, " of ", p.head_dim,
                " window ", p.window, p.softcap > 0 ? " softcap" : "", sinks ? " sinks" : "",
                first >= 0 ? " shared" : "", ", ", l.tokens, " rows"),
            {l.tokens, l.tokens, sequences},
            1e-10,
            [=](Builder& b, CaseSink& s) {
                const int32_t last =
                    l.positions.empty() ? 0 : *std::max_element(l.positions.begin(), l.positions.end());
                const int64_t per_seq = last / p.page_size + 2,
                              pages = per_seq * std::max<int64_t>(1, sequences);
                std::vector<int32_t> table;  // pages in an order that is not the identity; -1 past the end
                for (int64_t i = 0; i < sequences * per_seq; ++i)
                    table.push_back(i % per_seq == per_seq - 1 ? -1 : static_cast<int32_t>(pages - 1 - i));
                const int64_t rows = pages * p.n_kv_heads * p.page_size;
                const Ref q = s.random_input(b, RowDim::tokens, int64_t{p.n_heads} * p.head_dim, 2);
                const Ref k = first < 0 ? s.random_keys(b, type, rows, p.head_dim, p.page_size)
                                        : s.random_cache(b, type, rows, p.head_dim),
                          v = first < 0 ? s.random_cache(b, type, rows, p.v_head_dim)
                                        : b.columns(k, first, p.v_head_dim);
                const AttentionBatch batch{s.int_input(b, RowDim::sequences, 2, l.seq_rows),
                                           s.int_input(b, RowDim::tokens, 1, l.positions),
                                           s.int_input(b, RowDim::sequences, per_seq, table)};
                attention(b, q, k, v, batch, p, sinks ? s.random_weight(b, Type::f32, 1, p.n_heads) : Ref{});
            }};
}

std::vector<OpCase> cases() {
    const auto run = [](int32_t first, int32_t count) {
        std::vector<int32_t> v;
        for (int32_t i = 0; i < count; ++i) v.push_back(first + i);
        return v;
    };
    BatchRows mixed{8, {0, 1, 1, 7}, {69}};
    for (const int32_t x : run(3, 7)) mixed.positions.push_back(x);
    const BatchRows decode{1, {0, 1}, {300}}, prefill{33, {0, 33}, run(0, 33)}, empty{0, {}, {}},
        later{20, {0, 20}, run(90, 20)};
    std::vector<OpCase> list;
    for (const Type t : {Type::f32, Type::f16, Type::bf16, Type::q8_0, Type::q4_0})
        for (const BatchRows& l : {mixed, decode, prefill, empty, later}) {
            list.push_back(attention_case(t, {4, 2, 64, 64, 32, 0, 0.125f, 0}, l, false));
            list.push_back(attention_case(t, {6, 1, 128, 128, 16, 20, 0.088f, 0}, l, true));
            list.push_back(attention_case(t, {5, 1, 160, 96, 16, 0, 0.08f, 0}, l, false, 64));
        }
    list.push_back(attention_case(Type::f16, {3, 3, 80, 48, 32, 0, 0.11f, 30}, mixed, false));
    list.push_back(attention_case(Type::f32, {8, 2, 17, 5, 8, 9, 0.3f, 0}, later, true));
    for (const Type t : {Type::f32, Type::f16})  // whole registers of some processors, half ones of others
        list.push_back(attention_case(t, {4, 2, 24, 24, 16, 0, 0.2f, 0}, decode, false));
    for (const BatchRows& l : {mixed, decode, later})  // windows that begin within a page
        list.push_back(attention_case(Type::f16, {4, 2, 64, 64, 32, 20, 0.125f, 0}, l, false));
    for (const BatchRows& l : {mixed, decode, later})
        list.push_back(attention_case(Type::f16, {128, 1, 96, 64, 16, 0, 0.1f, 0}, l, false, 32));
    list.push_back(attention_case(Type::f16, {4, 1, 576, 512, 32, 0, 0.07f, 0}, mixed, false, 64));
    list.push_back(attention_case(Type::bf16, {8, 1, 256, 256, 32, 1, 0.06f, 50}, mixed, false));
    return list;
}

}  // namespace

const OpDef attention_op{static_cast<uint16_t>(Op::attention), "attention", reference, cost, nullptr, cases};

Ref attention(Builder& b, Ref q, Ref k_cache, Ref v_cache, const AttentionBatch& batch,
              const AttentionParams& p, Ref sinks) {
    const auto cols = [&](Ref r) { return b.value(r).cols; };
    const bool heads = p.n_heads > 0 && p.n_kv_heads > 0 && p.n_heads % p.n_kv_heads == 0 && p.page_size > 0;
    const bool shapes = q && cols(q) == int64_t{p.n_heads} * p.head_dim && cols(k_cache) == p.head_dim &&
                        cols(v_cache) == p.v_head_dim && (!sinks || cols(sinks) == p.n_heads);
    const bool pages = heads && b.value(k_cache).rows % (int64_t{p.n_kv_heads} * p.page_size) == 0;
    const bool inputs = pages && is_i32(b, batch.seq_rows) && is_i32(b, batch.positions) &&
                        is_i32(b, batch.page_table) && cols(batch.seq_rows) == 2;
    if (!b.require(heads && shapes && inputs,
                   cat("attention of ", p.n_heads, " heads over ", p.n_kv_heads, " kv heads of ", p.head_dim,
                       ", q has ", cols(q), " columns")))
        return {};
    return b.emit(attention_op,
                  {q, k_cache, v_cache, batch.seq_rows, batch.positions, batch.page_table, sinks}, p,
                  {{Type::f32, b.value(q).dim, 0, int64_t{p.n_heads} * p.v_head_dim}})[0];
}

}  // namespace nibble
