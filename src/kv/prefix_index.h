// Finds the pages that already hold the keys and values of a token prefix, so that it is computed once.
// A tree with one node per full page; equality is decided by comparing tokens, hashes only narrow the search.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "src/kv/page_pool.h"

namespace nibble {

struct PrefixMatch {
    std::vector<PageId> pages;  // the last one may be matched in part: adopt() it and copy on write
    int32_t n_tokens = 0;
};

// The keys and values of a page depend on all tokens before it, so a node is identified by its parent and its
// own page_size tokens: two equal paths from the root are equal prefixes. One index serves one set of weights
// (a model with its adapters); pages must hold positions from 0 on.
//
// The index holds no references. A page whose last user leaves becomes idle and stays findable until the pool
// needs it; then the least recently used leaf goes first, so that a prefix is always shortened from its end.
// After L. Zheng et al., "SGLang: Efficient Execution of Structured Language Model Programs",
// arXiv:2312.07104, section 3 (with page-sized blocks instead of a compressed radix tree).
class PrefixIndex final : public PageCache {
  public:
    // Hash of one block given the hash of its parent; replaceable so that tests can force collisions.
    using Hash = uint64_t (*)(uint64_t parent, std::span<const int32_t> block);
    static uint64_t chain_hash(uint64_t parent, std::span<const int32_t> block);

    explicit PrefixIndex(PagePool& pool, Hash hash = chain_hash);
    ~PrefixIndex();
    PrefixIndex(const PrefixIndex&) = delete;
    PrefixIndex& operator=(const PrefixIndex&) = delete;

    // The longest indexed prefix of `tokens`, in tokens: whole pages, then the page that shares the most
    // tokens with the rest. The pages are not retained: adopt them before the pool is used again. To get
    // logits, the engine must compute one token at least, so pass all tokens but the last.
    PrefixMatch match(std::span<const int32_t> tokens);

    // Makes the full pages of a sequence findable. pages[i] holds tokens[i*page_size ...] and must be busy.
    // Where equal tokens are known already, the older page stays. Stops at a page that was dropped.
    // Returns the number of tokens of this prefix that are now indexed.
    int32_t insert(std::span<const int32_t> tokens, std::span<const PageId> pages);

    void clear();  // forgets everything; idle pages become free
    int32_t n_nodes() const { return static_cast<int32_t>(by_hash_.size()); }

    void page_idle(PageId page) override;
    void page_busy(PageId page) override;
    bool reclaim() override;

  private:
    // Nodes have no ids of their own: a page is in the tree once at most, so its number is the node's.
    struct Node {
        bool present = false;
        bool evictable = false;   // an idle leaf: listed in leaves_
        PageId parent = no_page;  // no_page: the root
        uint64_t hash = 0;        // of the whole path
        uint64_t last_used = 0;   // a counter, not a clock
        std::vector<PageId> children;
    };

    Node& node(PageId page) { return nodes_[static_cast<size_t>(page)]; }
    std::vector<PageId>& children(PageId page) { return page == no_page ? roots_ : node(page).children; }
    std::span<const int32_t> block(PageId page) const;
    PageId find(PageId parent, uint64_t hash, std::span<const int32_t> tokens);
    std::pair<PageId, int32_t> best_partial(PageId parent, std::span<const int32_t> rest);
    void add(PageId page, PageId parent, uint64_t hash, std::span<const int32_t> tokens);
    void remove(PageId page);  // with everything below it
    void remove_one(PageId page);
    void refresh(PageId page, bool touched);

    PagePool* pool_;
    Hash hash_;
    uint64_t clock_ = 0;
    std::vector<Node> nodes_;      // by page
    std::vector<int32_t> tokens_;  // n_pages x page_size
    std::vector<PageId> roots_;    // nodes whose parent is the root
    std::unordered_multimap<uint64_t, PageId> by_hash_;
    std::set<std::pair<uint64_t, PageId>> leaves_;  // (last_used, page) of evictable nodes
};

}  // namespace nibble
