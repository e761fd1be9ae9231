// Growing, sharing, shrinking and dropping the pages of one sequence.
// Only the page that holds position length() can be both shared and written, so one copy at most is needed.
#include "src/kv/block_table.h"

#include <algorithm>
#include <cassert>
#include <limits>
#include <utility>

#include "ggml/base/cat.h"
#include "ggml/base/checked.h"

namespace nibble {

BlockTable::BlockTable(BlockTable&& other) noexcept
    : pool_(other.pool_),
      pages_(std::exchange(other.pages_, {})),
      length_(std::exchange(other.length_, 0)),
      n_dropped_(std::exchange(other.n_dropped_, 0)) {}

BlockTable& BlockTable::operator=(BlockTable&& other) noexcept {
    if (this == &other) return *this;
    clear();
    pool_ = other.pool_;
    pages_ = std::exchange(other.pages_, {});
    length_ = std::exchange(other.length_, 0);
    n_dropped_ = std::exchange(other.n_dropped_, 0);
    return *this;
}

int32_t BlockTable::capacity() const { return static_cast<int32_t>(pages_.size()) * pool_->page_size(); }

bool BlockTable::must_copy(int32_t n_tokens) const {
    if (n_tokens == 0 || length_ % pool_->page_size() == 0) return false;
    return pool_->shared(pages_[static_cast<size_t>(length_ / pool_->page_size())]);
}

int32_t BlockTable::pages_needed(int32_t n_tokens) const {
    const int64_t end = int64_t{length_} + n_tokens;
    const int64_t total = ceil_div<int64_t>(end, pool_->page_size());
    const int64_t more = std::max<int64_t>(0, total - static_cast<int64_t>(pages_.size()));
    return static_cast<int32_t>(more) + (must_copy(n_tokens) ? 1 : 0);
}

Result<std::optional<PageCopy>> BlockTable::reserve(int32_t n_tokens) {
    if (n_tokens < 0 || n_tokens > std::numeric_limits<int32_t>::max() - length_) {
        return Error{ErrorCode::invalid_argument, "key/value cache",
                     cat("cannot reserve ", n_tokens, " tokens after ", length_), ""};
    }
    const int32_t needed = pages_needed(n_tokens);
    // Checked first, so that a request that fails does not empty the prefix index for nothing.
    if (needed > pool_->n_available()) {
        return Error{ErrorCode::out_of_memory, "key/value cache",
                     cat(needed, " pages of ", pool_->page_size(), " tokens needed, ", pool_->n_available(),
                         " of ", pool_->n_pages(), " available"),
                     "end another sequence, or give the cache a larger context"};
    }
    std::optional<PageCopy> copy;
    const bool copying = must_copy(n_tokens);
    for (int32_t i = 0; i < needed; ++i) {
        const std::optional<PageId> page = pool_->allocate();
        assert(page.has_value());  // n_available() has promised it
        if (i == 0 && copying) {
            PageId& last = pages_[static_cast<size_t>(length_ / pool_->page_size())];
            copy = PageCopy{last, *page, length_ % pool_->page_size()};
            last = *page;
        } else {
            pages_.push_back(*page);
        }
    }
    // Only now: had it been released earlier, the allocations above could have handed it out again.
    if (copy) pool_->release(copy->from);
    return copy;
}

void BlockTable::advance(int32_t n_tokens) {
    assert(n_tokens >= 0 && n_tokens <= capacity() - length_);
    length_ += n_tokens;
}

int32_t BlockTable::slot(int32_t position) const {
    if (position < begin() || position >= capacity()) return -1;
    const int32_t size = pool_->page_size();
    return pages_[static_cast<size_t>(position / size)] * size + position % size;
}

BlockTable BlockTable::fork() const {
    BlockTable twin(*pool_);
    const auto used = static_cast<size_t>(ceil_div(length_, pool_->page_size()));
    twin.pages_.assign(pages_.begin(), pages_.begin() + static_cast<std::ptrdiff_t>(used));
    twin.length_ = length_;
    twin.n_dropped_ = n_dropped_;
    for (PageId page : twin.pages_) {
        if (page != no_page) pool_->retain(page);
    }
    return twin;
}

void BlockTable::adopt(std::span<const PageId> pages, int32_t n_tokens) {
    assert(pages_.empty() && n_tokens >= 0);
    assert(static_cast<int32_t>(pages.size()) == ceil_div(n_tokens, pool_->page_size()));
    for (PageId page : pages) pool_->retain(page);
    pages_.assign(pages.begin(), pages.end());
    length_ = n_tokens;
}

Result<void> BlockTable::truncate(int32_t n_tokens) {
    if (n_tokens == 0) {
        clear();
        return {};
    }
    if (n_tokens < 0 || n_tokens > length_ || n_tokens < begin()) {
        return Error{
            ErrorCode::invalid_argument, "key/value cache",
            cat("cannot go back to ", n_tokens, " tokens: positions ", begin(), " to ", length_, " are held"),
            "compute the sequence again"};
    }
    const auto used = static_cast<size_t>(ceil_div(n_tokens, pool_->page_size()));
    // Last page first: then the pages freed are handed out again in the order of the positions.
    while (pages_.size() > used) {
        pool_->release(pages_.back());
        pages_.pop_back();
    }
    length_ = n_tokens;
    return {};
}

void BlockTable::drop_before(int32_t position) {
    const int32_t whole = std::min(position, length_) / pool_->page_size();
    for (; n_dropped_ < whole; ++n_dropped_) {
        PageId& page = pages_[static_cast<size_t>(n_dropped_)];
        pool_->release(page);
        page = no_page;
    }
}

void BlockTable::clear() {
    for (auto page = pages_.rbegin(); page != pages_.rend(); ++page) {
        if (*page != no_page) pool_->release(*page);
    }
    pages_.clear();
    length_ = 0;
    n_dropped_ = 0;
}

}  // namespace nibble
