// The pool of key/value cache pages: which page is free, used by whom how often, or kept for reuse.
// Bookkeeping only, without tensors and without threads; the engine owns the memory the pages name.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ggml/base/result.h"

namespace nibble {

using PageId = int32_t;
inline constexpr PageId no_page = -1;  // in a block table: the page behind a sliding window was given back

// What a cache of finished prefixes (PrefixIndex) tells and is told by the pool.
class PageCache {
  public:
    virtual void page_idle(PageId page) = 0;  // a cached page lost its last user
    virtual void page_busy(PageId page) = 0;  // an idle cached page got a user again
    virtual bool reclaim() = 0;               // uncache at least one idle page; false: there is none

  protected:
    ~PageCache() = default;
};

// Every page is in exactly one of three states:
//   free  no users, content worthless;
//   busy  ref_count > 0;
//   idle  no users, but the prefix index still knows its content: reusable, and reclaimed when needed.
// Block tables and the index keep a pointer to the pool: it must stay where it is and outlive them.
class PagePool {
  public:
    // n_pages >= 1; page_size (tokens per page) a power of two; their product fits in an int32_t, because
    // slots are handed to kernels as 32-bit indices.
    static Result<PagePool> create(int32_t n_pages, int32_t page_size = 32);

    int32_t n_pages() const { return static_cast<int32_t>(ref_counts_.size()); }
    int32_t page_size() const { return page_size_; }
    int32_t n_free() const { return static_cast<int32_t>(free_.size()); }
    int32_t n_idle() const { return n_idle_; }
    int32_t n_available() const { return n_free() + n_idle_; }  // what allocate() can still hand out

    // A page with ref_count 1: a free one, else the least recently used idle one. Empty: all are busy.
    std::optional<PageId> allocate();
    void retain(PageId page);   // precondition: busy, or cached
    void release(PageId page);  // precondition: busy; the last user makes the page free, or idle if cached

    int32_t ref_count(PageId page) const { return ref_counts_[static_cast<size_t>(page)]; }
    bool cached(PageId page) const { return cached_[static_cast<size_t>(page)] != 0; }
    // Writing into such a page would change what someone else reads: copy it first.
    bool shared(PageId page) const { return ref_count(page) > 1 || cached(page); }

    // For the index: one cache per pool, or nullptr; and marking a page as known to that cache.
    void attach(PageCache* cache) { cache_ = cache; }
    void set_cached(PageId page, bool cached);  // precondition for true: busy

  private:
    PagePool(int32_t n_pages, int32_t page_size);

    int32_t page_size_ = 0;
    int32_t n_idle_ = 0;
    std::vector<int32_t> ref_counts_;
    std::vector<uint8_t> cached_;
    std::vector<PageId> free_;  // a stack: the page freed last is handed out first (its memory is warm)
    PageCache* cache_ = nullptr;
};

}  // namespace nibble
