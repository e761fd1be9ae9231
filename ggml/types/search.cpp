// encode_weighted: chooses the widest build of the search that the machine runs, once.
// The bytes are the same in every build: only the width of the vectors differs.
#include "ggml/types/search.h"

#include <array>
#include <cstring>
#include <vector>

#include "ggml/types/list.h"

namespace nibble {

namespace search_baseline {
constexpr int vector_floats = 4;  // what every machine has

void encode_with_search(Type type, const float* x, const float* importance, std::byte* dst, size_t n);
void round_span(Type type, float* lost, float* x, const SpanCosts& costs, std::byte* dst);

// The order matters: the lanes, the searches written in them, the rows.
// clang-format off
#include "ggml/types/search_lanes.inl"
#include "ggml/types/search_shapes.inl"
#include "ggml/types/search_rows.inl"
#include "ggml/types/search_draft.inl"
#include "ggml/types/search_revise.inl"
#include "ggml/types/search_feedback.inl"
// clang-format on
}  // namespace search_baseline

#if defined(__x86_64__)
namespace search_avx2 {
void encode_with_search(Type type, const float* x, const float* importance, std::byte* dst, size_t n);
void round_span(Type type, float* lost, float* x, const SpanCosts& costs, std::byte* dst);
}  // namespace search_avx2

namespace {
bool has_avx2() {
    static const bool found = __builtin_cpu_supports("avx2");
    return found;
}
}  // namespace
#endif

bool has_search(Type type) {
    bool found = false;
    visit_format(type, [&]<class F>() { found = search_baseline::Searchable<F>; });
    return found;
}

void encode_weighted(Type type, const float* x, const float* importance, std::byte* dst, size_t n) {
#if defined(__x86_64__)
    if (has_avx2()) return search_avx2::encode_with_search(type, x, importance, dst, n);
#endif
    search_baseline::encode_with_search(type, x, importance, dst, n);
}

void encode_with_costs(Type type, float* lost, float* x, const SpanCosts& costs, std::byte* dst) {
#if defined(__x86_64__)
    if (has_avx2()) return search_avx2::round_span(type, lost, x, costs, dst);
#endif
    search_baseline::round_span(type, lost, x, costs, dst);
}

void default_importance(const float* x, float* importance, size_t n) {
    const float square = search_baseline::mean_square(x, n);
    for (size_t i = 0; i < n; ++i) importance[i] = square + x[i] * x[i];
}

}  // namespace nibble
