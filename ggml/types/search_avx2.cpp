// The search compiled for AVX2: vectors of eight.
// Only what is included inside the target region is; the arithmetic, and so the bytes, are the baseline's.
#if defined(__x86_64__)

#include <array>
#include <cstring>
#include <vector>

#include "ggml/types/list.h"
#include "ggml/types/search.h"

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2")
#endif

namespace nibble::search_avx2 {

constexpr int vector_floats = 8;

void encode_with_search(Type type, const float* x, const float* importance, std::byte* dst, size_t n);
void round_span(Type type, float* lost, float* x, const SpanCosts& costs, std::byte* dst);

// clang-format off
#include "ggml/types/search_lanes.inl"
#include "ggml/types/search_shapes.inl"
#include "ggml/types/search_rows.inl"
#include "ggml/types/search_draft.inl"
#include "ggml/types/search_revise.inl"
#include "ggml/types/search_feedback.inl"
// clang-format on

}  // namespace nibble::search_avx2

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#endif
