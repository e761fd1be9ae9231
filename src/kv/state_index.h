// Finds the state that a sequence has behind a token prefix, so that it is computed once.
// A state is of a whole prefix: it serves those texts alone that begin with all of its tokens.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "src/kv/page_pool.h"

namespace nibble {

struct StateMatch {
    PageId page = no_page;  // not retained: adopt it before the pool is used again
    int32_t n_tokens = 0;
};

// The counterpart of PrefixIndex for a pool whose pages are states. It holds no references: a page whose last
// user leaves becomes idle and stays findable until the pool needs it; then the least recently used goes
// first. There are few states, so they are looked through one by one.
class StateIndex final : public PageCache {
  public:
    explicit StateIndex(PagePool& pool);
    ~StateIndex();
    StateIndex(const StateIndex&) = delete;
    StateIndex& operator=(const StateIndex&) = delete;

    // The state of the longest known prefix of `tokens`.
    StateMatch match(std::span<const int32_t> tokens);

    // `page`, which must be busy, is the state behind all of `tokens`, and nobody writes it any more: whoever
    // goes on writes into a copy (PagePool::shared). Where these tokens are known already, the older page
    // stays. Returns whether it is this page.
    bool insert(std::span<const int32_t> tokens, PageId page);

    // The state behind exactly these tokens is no longer wanted.
    void forget(std::span<const int32_t> tokens);
    void clear();

    void page_idle(PageId page) override;
    void page_busy(PageId page) override;
    bool reclaim() override;

  private:
    struct State {
        std::vector<int32_t> tokens;  // none: not known
        uint64_t last_used = 0;       // a counter, not a clock
    };
    void forget(PageId page);
    State& state(PageId page) { return states_[static_cast<size_t>(page)]; }

    PagePool* pool_;
    uint64_t clock_ = 0;
    std::vector<State> states_;  // by page
};

}  // namespace nibble
