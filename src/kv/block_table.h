// The block table of one sequence: which page holds the keys and values of which positions.
// Owns its references to pages (RAII); shares pages with forks and with the prefix index, copies on write.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ggml/base/result.h"
#include "src/kv/page_pool.h"

namespace nibble {

// Work for the engine: copy the first n_tokens rows of page `from` into page `to`, in every layer.
// Copies are carried out in the order in which they were reported and before anything of the step is
// written: `from` may already belong to somebody else who writes in the same step.
struct PageCopy {
    PageId from = no_page;
    PageId to = no_page;
    int32_t n_tokens = 0;
};

// Position p of the sequence lives in pages()[p / page_size] at row p % page_size.
// After S. Kwon et al., "Efficient Memory Management for Large Language Model Serving with PagedAttention",
// arXiv:2309.06180, sections 4.2-4.4.
class BlockTable {
  public:
    explicit BlockTable(PagePool& pool) : pool_(&pool) {}
    BlockTable(BlockTable&& other) noexcept;
    BlockTable& operator=(BlockTable&& other) noexcept;
    ~BlockTable() { clear(); }

    int32_t length() const { return length_; }  // tokens whose keys and values are (being) stored
    int32_t capacity() const;                   // tokens that fit into the pages held
    int32_t begin() const { return n_dropped_ * pool_->page_size(); }  // first position still held
    std::span<const PageId> pages() const { return pages_; }

    // Pages that reserve(n_tokens) would take from the pool, the copy on write included.
    int32_t pages_needed(int32_t n_tokens) const;

    // Makes positions length() .. length()+n_tokens-1 writable. If the last page is shared, it is replaced by
    // a new one and the copy to perform is returned. All or nothing: on an Error (out_of_memory with both
    // numbers) nothing has changed. A reservation ends with fork(): then reserve again.
    Result<std::optional<PageCopy>> reserve(int32_t n_tokens);

    // The sequence grows into what was reserved. Precondition: length() + n_tokens <= capacity().
    void advance(int32_t n_tokens);

    // Row in the page memory: page * page_size + offset; -1 for a position that has no page.
    int32_t slot(int32_t position) const;

    // A second sequence with the same tokens; shares every page until one of both writes.
    BlockTable fork() const;

    // Starts an empty table with pages found in the prefix index; the last one may be used in part.
    // Precondition: the table is empty, the pages hold n_tokens. Call before the pool is used again.
    void adopt(std::span<const PageId> pages, int32_t n_tokens);

    // Forgets the positions from n_tokens on (a rejected draft, an undone turn) and pages reserved beyond.
    // An Error if n_tokens exceeds length() or lies behind begin(); 0 is always possible.
    Result<void> truncate(int32_t n_tokens);

    // Gives back the pages that lie wholly before `position` (behind a sliding window). The table keeps their
    // entries as no_page, so that indices stay. A later truncate() cannot bring them back: keep a margin.
    void drop_before(int32_t position);

    void clear();  // releases everything

  private:
    bool must_copy(int32_t n_tokens) const;

    PagePool* pool_;
    std::vector<PageId> pages_;
    int32_t length_ = 0;
    int32_t n_dropped_ = 0;  // leading entries that are no_page
};

}  // namespace nibble
