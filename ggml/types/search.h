// Encoders that search: block scales (and minima) chosen to minimise the weighted squared error.
// Sums of w (x - x')^2 per block are never above those of the plain encoder of the same type.
//
// What is searched, per shape of format (weighted least squares over a grid of clipping ranges):
// - one scale per block: 16 candidates of either sign, the least-squares scale of the best codes, 8 around
// it;
// - a scale from a list (MXFP4, NVFP4): the 8 representable scales around the plain one;
// - scale and minimum: 16 candidate ranges, the least-squares pair of the best codes, then 8 around it;
// - superblocks: the first look of the above per sub-block; then the eight integer factors (or pairs) next to
//   the ideal are compared by their true error, and the f16 factors refitted.
// The cost is that of rounding each element some 20 to 30 times.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ggml/types/type.h"

namespace nibble {

// Whether encode_weighted() does more for this type than its plain encoder.
bool has_search(Type type);

// Encodes n elements (whole blocks of one row) into dst, which holds their blocks; any alignment.
// importance: one non-negative weight per element, e.g. the mean square of the activation that meets it;
// null stands for s^2 + x^2 with s^2 the mean square of the row, which favours the large weights.
// x must be finite. A type without a search is encoded plainly. Precondition: the type has an encoder.
void encode_weighted(Type type, const float* x, const float* importance, std::byte* dst, size_t n);

// What the losses of n columns cost, as src/quant/feedback.h has it.
struct SpanCosts {
    int64_t n;                // whole blocks
    const float* importance;  // D
    const float* carry;       // M without its diagonal: [n x n], zero for j <= i
    const float* cost;        // M D M': [n x n]
};

// Rounds a span of one row column after column, so that each makes up for what those before it have lost, and
// then revises all of them. Precondition: has_search(type). lost: the weights; becomes what each has lost,
// weight - rounded. x: the weights with what makes up for the losses of columns before the span; destroyed.
void encode_with_costs(Type type, float* lost, float* x, const SpanCosts& costs, std::byte* dst);

// The weights that a null importance stands for.
void default_importance(const float* x, float* importance, size_t n);

}  // namespace nibble
