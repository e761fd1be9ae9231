// shortlist: the largest values of each row, in order, with their columns, and the weight of all.
// So that of a vocabulary's logits only those leave the device that a sampler will look at.
#include <algorithm>
#include <numeric>

#include "ggml/base/exp_weight.h"
#include "ggml/ops/common.h"

namespace nibble {
namespace {

void weigh(const float* row, int64_t cols, double temperature, int64_t counted, float* out) {
    const float best = *std::max_element(row, row + cols);
    const int64_t each = (cols + shortlist_pieces - 1) / shortlist_pieces;
    for (int64_t piece = 0; piece < shortlist_pieces; ++piece) {
        uint64_t sum = 0;
        for (int64_t c = piece * each; c < std::min({(piece + 1) * each, cols, counted}); ++c)
            sum += exp_weight_at(row[c], best, temperature);
        split_weight(sum, out + 3 * piece);
    }
}

void reference(const OpArgs& a) {
    const Tensor &x = a.in[0], &weighed = a.in[1], &out = a.out[0];
    const auto count = static_cast<size_t>(a.params->as<ShortlistParams>().count);
    std::vector<int64_t> columns(static_cast<size_t>(x.cols));
    for (int64_t r = 0; r < x.rows; ++r) {
        const float* const row = x.row(r);
        float* const values = out.row(r);
        float* const at = values + count;
        std::fill_n(values, count, 0.0f);
        std::fill_n(at, count, -1.0f);
        std::fill_n(at + count, 3 * shortlist_pieces, 0.0f);
        if (std::any_of(row, row + x.cols, [](float v) { return std::isnan(v) || v == INFINITY; })) {
            values[0] = NAN;
            continue;
        }
        const int32_t* const how = weighed.row<int32_t>(r);
        if (const double t = shortlist_temperature(how); t > 0) weigh(row, x.cols, t, how[2], at + count);
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
    c.flops = 30.0 * static_cast<double>(a.in[0].rows * a.in[0].cols);
    return c;
}

std::vector<OpCase> cases() {
    std::vector<OpCase> list;
    for (const int64_t rows : {int64_t{0}, int64_t{1}, int64_t{3}})
        for (const int32_t cols : {1, 31, 257, 1024, 1500, 4099, 32000, 151936})
            for (const int32_t count : {1, 40, 256}) {
                if (rows * cols > 200000) continue;
                list.push_back({cat("shortlist of ", count, " in ", rows, " x ", cols), token_shape(rows), 0,
                                [=](Builder& b, CaseSink& sink) {
                                    std::vector<int32_t> weighed;
                                    for (int64_t r = 0; r < rows; ++r) {
                                        const double t[] = {1, 0, 0.7};
                                        const auto how =
                                            weighed_row(t[(r + cols) % 3], cols - (cols > 100 ? 19 : 0));
                                        weighed.insert(weighed.end(), how.begin(), how.end());
                                    }
                                    shortlist(b, sink.random_input(b, RowDim::tokens, cols, 4),
                                              sink.int_input(b, RowDim::tokens, 3, weighed), {count});
                                }});
            }
    return list;
}

}  // namespace

const OpDef shortlist_op{static_cast<uint16_t>(Op::shortlist), "shortlist", reference, cost, nullptr, cases};

Ref shortlist(Builder& b, Ref x, Ref weighed, ShortlistParams p) {
    const Value &v = b.value(x), &w = b.value(weighed);
    if (!b.require(x && is_f32(b, x) && p.count > 0 && v.cols <= max_shortlist_columns && weighed &&
                       w.type == Type::i32 && w.cols == 3 && w.dim == v.dim && w.rows == v.rows,
                   cat("a shortlist of ", p.count, " among ", v.cols, " columns")))
        return {};
    return b.emit(shortlist_op, {x, weighed}, p,
                  {{Type::f32, v.dim, v.rows, int64_t{2} * p.count + 3 * shortlist_pieces}})[0];
}

}  // namespace nibble
