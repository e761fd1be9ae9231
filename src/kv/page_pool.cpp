// Reference counts and the free list of the page pool.
// Deterministic: the same calls hand out the same pages.
#include "src/kv/page_pool.h"

#include <cassert>
#include <limits>

#include "ggml/base/cat.h"

namespace nibble {

Result<PagePool> PagePool::create(int32_t n_pages, int32_t page_size) {
    if (page_size < 1 || (page_size & (page_size - 1)) != 0) {
        return Error{ErrorCode::invalid_argument, "page size", cat(page_size, " is not a power of two"),
                     "use 16, 32 or 64"};
    }
    if (n_pages < 1 || n_pages > std::numeric_limits<int32_t>::max() / page_size) {
        return Error{ErrorCode::invalid_argument, "number of pages",
                     cat(n_pages, " pages of ", page_size, " tokens are not between 1 token and 2^31"),
                     "choose another context size"};
    }
    return PagePool(n_pages, page_size);
}

PagePool::PagePool(int32_t n_pages, int32_t page_size)
    : page_size_(page_size),
      ref_counts_(static_cast<size_t>(n_pages), 0),
      cached_(static_cast<size_t>(n_pages), 0) {
    free_.reserve(static_cast<size_t>(n_pages));
    for (PageId p = n_pages - 1; p >= 0; --p) free_.push_back(p);
}

std::optional<PageId> PagePool::allocate() {
    if (free_.empty() && (!cache_ || !cache_->reclaim())) return std::nullopt;
    const PageId page = free_.back();
    free_.pop_back();
    ref_counts_[static_cast<size_t>(page)] = 1;
    return page;
}

void PagePool::retain(PageId page) {
    assert(ref_count(page) > 0 || cached(page));
    if (++ref_counts_[static_cast<size_t>(page)] > 1) return;
    --n_idle_;
    if (cache_) cache_->page_busy(page);
}

void PagePool::release(PageId page) {
    assert(ref_count(page) > 0);
    if (--ref_counts_[static_cast<size_t>(page)] > 0) return;
    if (cached(page)) {
        ++n_idle_;
        if (cache_) cache_->page_idle(page);
    } else {
        free_.push_back(page);
    }
}

void PagePool::set_cached(PageId page, bool cached) {
    assert(!cached || ref_count(page) > 0);
    uint8_t& flag = cached_[static_cast<size_t>(page)];
    if ((flag != 0) == cached) return;
    flag = cached ? 1 : 0;
    if (!cached && ref_count(page) == 0) {
        --n_idle_;
        free_.push_back(page);
    }
}

}  // namespace nibble
