// copy_pages: duplicates pages inside a cache when a shared page is about to be written.
// Contract in ops.h.
#include <cstring>

#include "ggml/ops/common.h"

namespace nibble {
namespace {

void reference(const OpArgs& a) {
    const Tensor &cache = a.in[0], &pairs = a.in[1];
    const int64_t page_rows = a.params->as<CopyPagesParams>().page_rows;
    for (int64_t i = 0; i < pairs.rows; ++i) {
        const int64_t from = pairs.row<int32_t>(i)[0], to = pairs.row<int32_t>(i)[1];
        std::memcpy(cache.data + to * page_rows * cache.stride, cache.data + from * page_rows * cache.stride,
                    static_cast<size_t>(page_rows * cache.stride));
    }
}

Cost cost(const OpArgs& a) {
    const double bytes =
        static_cast<double>(a.in[1].rows * a.params->as<CopyPagesParams>().page_rows * a.in[0].stride);
    return {0, bytes, bytes};
}

std::vector<OpCase> cases() {
    return {{"copy_pages", {1, 1, 2}, 0, [](Builder& b, CaseSink& s) {
                 const Ref pairs = s.int_input(b, RowDim::sequences, 2, {0, 3, 2, 1});
                 copy_pages(b, s.random_cache(b, Type::bf16, 4 * 6, 10), pairs, {6});
             }}};
}

}  // namespace

const OpDef copy_pages_op{
    static_cast<uint16_t>(Op::copy_pages), "copy_pages", reference, cost, nullptr, cases};

void copy_pages(Builder& b, Ref cache, Ref pairs, CopyPagesParams p) {
    const Value& v = b.value(cache);
    if (!b.require(cache && is_i32(b, pairs) && b.value(pairs).cols == 2 && p.page_rows > 0 &&
                       v.rows % p.page_rows == 0,
                   cat("copying pages of ", p.page_rows, " rows in a cache of ", v.rows)))
        return;
    b.emit_into(copy_pages_op, {cache, pairs}, p, {});
}

}  // namespace nibble
