// Moments, their factors, and the rounding of rows by them, in blocks of columns.
// A block's inner columns are the business of encode_with_costs() (ggml/types/search.h).
#include "src/quant/feedback.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "ggml/base/cat.h"
#include "src/quant/dense.h"

namespace nibble {
namespace {

constexpr int64_t block = 256;         // of the sums
constexpr int64_t factor_block = 128;  // of the factorization

// Runs fn(i, j) for the tiles [i, i + block) x [j, j + block) on and right of the diagonal of an n x n
// matrix.
template <class Fn>
void each_tile(int64_t n, ThreadPool& pool, const Fn& fn) {
    const int64_t per_side = (n + block - 1) / block;
    std::vector<std::pair<int64_t, int64_t>> tiles;
    for (int64_t i = 0; i < per_side; ++i)
        for (int64_t j = i; j < per_side; ++j) tiles.emplace_back(i * block, j * block);
    pool.run(static_cast<int64_t>(tiles.size()), [&](int64_t t, int) {
        const auto [i, j] = tiles[static_cast<size_t>(t)];
        fn(i, j);
    });
}

// H = R R' in place, R upper triangular, the last columns first: the mirror image of Cholesky's method. In
// exact arithmetic no pivot is below `least`, which is on the diagonal already.
class UpperFactor {
  public:
    UpperFactor(std::vector<float>& h, int64_t n, float least, ThreadPool& pool)
        : h_(h.data()), n_(n), least_(least), pool_(pool) {}

    void run() {
        for (int64_t end = n_; end > 0;) {
            const int64_t begin = (end - 1) / factor_block * factor_block;
            factor_diagonal(begin, end);
            pool_.run((begin + rows_per_task - 1) / rows_per_task, [&](int64_t task, int) {
                const int64_t to = std::min(begin, (task + 1) * rows_per_task);
                for (int64_t i = task * rows_per_task; i < to; ++i) solve_row(i, begin, end);
            });
            const float* columns = h_ + begin;
            each_tile(begin, pool_, [&](int64_t i, int64_t j) {
                add_product({columns + i * n_, n_, 1}, {columns + j * n_, 1, n_}, std::min(block, begin - i),
                            std::min(block, begin - j), end - begin, -1, h_ + i * n_ + j, n_);
            });
            end = begin;
        }
    }

  private:
    static constexpr int64_t rows_per_task = 64;

    void factor_diagonal(int64_t begin, int64_t end) {
        for (int64_t k = end - 1; k >= begin; --k) {
            float* const row = h_ + k * n_;
            row[k] = std::sqrt(std::max(row[k] - dot(row, row, k + 1, end), least_));
            for (int64_t i = begin; i < k; ++i) {
                float* const above = h_ + i * n_;
                above[k] = (above[k] - dot(above, row, k + 1, end)) / row[k];
            }
        }
    }
    // Row i of the columns left of which nothing is known yet.
    void solve_row(int64_t i, int64_t begin, int64_t end) {
        float* const row = h_ + i * n_;
        for (int64_t k = end - 1; k >= begin; --k) {
            const float* const diagonal = h_ + k * n_;
            row[k] = (row[k] - dot(row, diagonal, k + 1, end)) / diagonal[k];
        }
    }
    static float dot(const float* a, const float* b, int64_t from, int64_t to) {
        float sum[8] = {};
        int64_t i = from;
        for (; i + 8 <= to; i += 8)
            for (int l = 0; l < 8; ++l) sum[l] += a[i + l] * b[i + l];
        for (; i < to; ++i) sum[0] += a[i] * b[i];
        float total = 0;
        for (const float s : sum) total += s;
        return total;
    }

    float* h_;
    int64_t n_;
    float least_;
    ThreadPool& pool_;
};

// What M and D are for the columns [begin, begin + n) alone.
void fill_span(Feedback& f, int64_t begin) {
    const int64_t n = std::min(Feedback::span, f.cols - begin);
    float* const carry = f.carries.data() + begin * Feedback::span;
    std::vector<float> factor(static_cast<size_t>(n * n)), scaled(factor.size());
    for (int64_t i = 0; i < n; ++i) {
        const float* const from = f.coefficients.data() + (begin + i) * f.cols + begin;
        std::copy(from + i + 1, from + n, carry + i * n + i + 1);
        for (int64_t k = i; k < n; ++k) {
            const auto at = static_cast<size_t>(i * n + k);
            factor[at] = k == i ? 1 : from[k];
            scaled[at] = factor[at] * f.importance[static_cast<size_t>(begin + k)];
        }
    }
    add_product({scaled.data(), n, 1}, {factor.data(), 1, n}, n, n, n, 1,
                f.costs.data() + begin * Feedback::span, n);
}

}  // namespace

Error no_finite_input(const std::string& name) {
    return {ErrorCode::corrupt, name, "is multiplied by a NaN or an infinity",
            "--check-nan of `nibble run` tells where it comes from"};
}

Moments::Moments(int64_t cols) : cols_(cols), sums_(static_cast<size_t>(cols * cols)) {}

void Moments::add(const float* rows, int64_t n_rows, int64_t stride, ThreadPool& pool) {
    each_tile(cols_, pool, [&](int64_t i, int64_t j) {
        add_rounded_product({rows + i, 1, stride}, {rows + j, stride, 1}, std::min(block, cols_ - i),
                            std::min(block, cols_ - j), n_rows, 1, tile(i, j), cols_);
    });
    rows_ += n_rows;
}

Result<Feedback> Moments::feedback(const std::string& name, ThreadPool& pool, double damping) && {
    double trace = 0;
    for (int64_t i = 0; i < cols_; ++i) trace += static_cast<double>(*tile(i, i));
    if (!std::isfinite(trace)) return no_finite_input(name);
    // Without inputs every column counts alike and says nothing of the others.
    const auto added = static_cast<float>(trace > 0 ? damping * trace / static_cast<double>(cols_) : 1);
    for (int64_t i = 0; i < cols_; ++i) *tile(i, i) += added;
    UpperFactor(sums_, cols_, added, pool).run();

    Feedback f;
    f.cols = cols_;
    f.coefficients = std::move(sums_);
    f.importance.resize(static_cast<size_t>(cols_));
    std::vector<float> inverse(f.importance.size());
    double total = 0;
    for (size_t k = 0; k < inverse.size(); ++k) {
        const float r = f.coefficients[k * inverse.size() + k];
        inverse[k] = 1 / r;
        f.importance[k] = r * r;
        total += static_cast<double>(r) * static_cast<double>(r);
    }
    for (float& d : f.importance) d = static_cast<float>(d * static_cast<double>(cols_) / total);
    pool.run(cols_, [&](int64_t j, int) {
        float* row = f.coefficients.data() + j * cols_;
        for (int64_t k = j + 1; k < cols_; ++k) row[k] *= inverse[static_cast<size_t>(k)];
    });
    f.carries.resize(static_cast<size_t>(cols_ * Feedback::span));
    f.costs.resize(f.carries.size());
    pool.run((cols_ + Feedback::span - 1) / Feedback::span,
             [&](int64_t i, int) { fill_span(f, i * Feedback::span); });
    return f;
}

void encode_with_feedback(Type type, const Feedback& f, float* rows, int64_t n_rows, std::byte* encoded) {
    const auto row_size = static_cast<int64_t>(*row_bytes(type, f.cols));
    std::vector<float> x(static_cast<size_t>(n_rows * Feedback::span));
    for (int64_t begin = 0; begin < f.cols; begin += Feedback::span) {
        const SpanCosts costs = f.span_costs(begin);
        const int64_t n = costs.n;
        for (int64_t r = 0; r < n_rows; ++r) std::copy_n(rows + r * f.cols + begin, n, x.data() + r * n);
        add_product({rows, f.cols, 1}, {f.coefficients.data() + begin, f.cols, 1}, n_rows, n, begin, 1,
                    x.data(), n);
        const auto at = static_cast<int64_t>(*row_bytes(type, begin));
        for (int64_t r = 0; r < n_rows; ++r)
            encode_with_costs(type, rows + r * f.cols + begin, x.data() + r * n, costs,
                              encoded + r * row_size + at);
    }
}

}  // namespace nibble
