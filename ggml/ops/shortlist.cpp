// shortlist: the largest values of each row, in order, with their columns.
// So that of a vocabulary's logits only those leave the device that a sampler will look at.
#include <algorithm>
#include <numeric>

#include "ggml/ops/common.h"

namespace nibble {
namespace {

void reference(const OpArgs& a) {
    const Tensor &x = a.in[0], &out = a.out[0];
    const auto count = static_cast<size_t>(a.params->as<ShortlistParams>().count);
    std::vector<int64_t> columns(static_cast<size_t>(x.cols));
    for (int64_t r = 0; r < x.rows; ++r) {
        const float* const row = x.row(r);
        float* const values = out.row(r);
        float* const at = values + count;
        std::fill_n(values, count, 0.0f);
        std::fill_n(at, count, -1.0f);
        if (std::any_of(row, row + x.cols, [](float v) { return std::isnan(v) || v == INFINITY; })) {
            values[0] = NAN;
            continue;
        }
        std::iota(columns.begin(), columns.end(), int64_t{0});
        const size_t n = std::min(count, columns.size());
        std::partial_sort(
            columns.begin(), columns.begin() + static_cast<std::ptrdiff_t>(n), columns.end(),
            [row](int64_t i, int64_t j) { return row[i] > row[j] || (row[i] == row[j] && i < j); });
        for (size_t i = 0; i < n && row[columns[i]] > -INFINITY; ++i) {
            values[i] = row[columns[i]];
            at[i] = static_cast<float>(columns[i]);
        }
    }
}

Cost cost(const OpArgs& a) {
    Cost c = operand_traffic(a);
    c.flops = static_cast<double>(a.in[0].rows * a.in[0].cols);
    return c;
}

std::vector<OpCase> cases() {
    std::vector<OpCase> list;
    for (const int64_t rows : {int64_t{0}, int64_t{1}, int64_t{3}})
        for (const int64_t cols : {1, 31, 257, 1024, 1500, 4099, 32000, 151936})
            for (const int32_t count : {1, 40, 256}) {
                if (rows * cols > 200000) continue;
                list.push_back({cat("shortlist of ", count, " in ", rows, " x ", cols), token_shape(rows), 0,
                                [=](Builder& b, CaseSink& sink) {
                                    shortlist(b, sink.random_input(b, RowDim::tokens, cols, 4), {count});
                                }});
            }
    return list;
}

}  // namespace

const OpDef shortlist_op{static_cast<uint16_t>(Op::shortlist), "shortlist", reference, cost, nullptr, cases};

Ref shortlist(Builder& b, Ref x, ShortlistParams p) {
    const Value& v = b.value(x);
    if (!b.require(x && is_f32(b, x) && p.count > 0 && v.cols <= max_shortlist_columns,
                   cat("a shortlist of ", p.count, " among ", v.cols, " columns")))
        return {};
    return b.emit(shortlist_op, {x}, p, {{Type::f32, v.dim, v.rows, int64_t{2} * p.count}})[0];
}

}  // namespace nibble
