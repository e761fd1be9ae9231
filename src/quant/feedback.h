// Feedback: how the columns of a matrix make up for what rounding those before them has cost.
// GPTQ (Frantar et al. 2022, arXiv:2210.17323) in the form of LDLQ (Chee et al. 2023, arXiv:2307.13304,
// section 3).
//
// With H the second moments of a matrix's inputs, a row w rounded to q costs (w - q) H (w - q)'. H = M D M'
// with M upper triangular and ones on its diagonal splits that into one term per column, D_k ((w - q) M)_k^2:
// column k is best rounded from w_k + sum over j < k of (w_j - q_j) M_jk, and D_k says what being off then
// costs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "ggml/base/result.h"
#include "ggml/base/thread_pool.h"
#include "ggml/types/search.h"
#include "ggml/types/type.h"

namespace nibble {

struct Feedback {
    static constexpr int64_t span = 256;  // columns that are rounded together: a superblock
    int64_t cols = 0;
    std::vector<float> coefficients;  // M, [cols x cols], rows; only what is right of the diagonal counts
    std::vector<float> importance;    // D, of a mean of 1
    // Of each span of n columns, the last may be narrower: M without its diagonal and M D M', both [n x n].
    std::vector<float> carries, costs;

    static size_t bytes(size_t cols) {
        return (cols + 2 * static_cast<size_t>(span) + 1) * cols * sizeof(float);
    }
    SpanCosts span_costs(int64_t begin) const {
        const auto at = static_cast<size_t>(begin * span);
        return {std::min(span, cols - begin), importance.data() + begin, carries.data() + at,
                costs.data() + at};
    }
};

// What is wrong with a matrix whose inputs were no finite numbers.
Error no_finite_input(const std::string& name);

// Sums of x' x over the rows of a matrix's inputs: cols^2 floats.
class Moments {
  public:
    explicit Moments(int64_t cols);

    // Rows of `cols` floats that begin every `stride` ones; perhaps rounded to bf16.
    void add(const float* rows, int64_t n_rows, int64_t stride, ThreadPool& pool);
    int64_t rows() const { return rows_; }

    // Takes the sums' memory. `damping` times the mean of the diagonal is added to it: what a text says about
    // the inputs is not all there is to them. An Error (of `name`) when an input was no finite number.
    Result<Feedback> feedback(const std::string& name, ThreadPool& pool, double damping) &&;

  private:
    float* tile(int64_t i, int64_t j) { return sums_.data() + i * cols_ + j; }

    int64_t cols_, rows_ = 0;
    std::vector<float> sums_;  // on and right of the diagonal
};

// Rounds rows of feedback.cols floats, a span of columns after the other, each revised before the next
// (ggml/types/search.h); the rows become what was lost (w - q). `encoded` holds their bytes, row after row;
// cols is a multiple of the type's block. Precondition: has_search(type).
void encode_with_feedback(Type type, const Feedback& feedback, float* rows, int64_t n_rows,
                          std::byte* encoded);

// Where the feedback of a model's matrices comes from (src/eval/moments.h measures it).
class FeedbackSource {
  public:
    virtual ~FeedbackSource() = default;
    // Of a matrix with this canonical name, or none where its inputs were not seen: one for all rows, or one
    // for the rows of each expert. Valid until the next call.
    virtual Result<std::span<const Feedback>> of(const std::string& name) = 0;
};

}  // namespace nibble
