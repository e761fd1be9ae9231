// The tree of indexed pages and its eviction order.
// Work per call: the blocks of the query, plus the children of one node for the partial page.
#include "src/kv/prefix_index.h"

#include <algorithm>
#include <cassert>

namespace nibble {

uint64_t PrefixIndex::chain_hash(uint64_t parent, std::span<const int32_t> block) {
    // Multiply and fold per token; the constant is 2^64 / golden ratio. Quality only matters for speed.
    uint64_t h = parent ^ 0x9e3779b97f4a7c15u;
    for (int32_t token : block) {
        h = (h ^ static_cast<uint32_t>(token)) * 0x9e3779b97f4a7c15u;
        h ^= h >> 29;
    }
    return h;
}

PrefixIndex::PrefixIndex(PagePool& pool, Hash hash)
    : pool_(&pool),
      hash_(hash),
      nodes_(static_cast<size_t>(pool.n_pages())),
      tokens_(static_cast<size_t>(pool.n_pages()) * static_cast<size_t>(pool.page_size())) {
    pool_->attach(this);
}

PrefixIndex::~PrefixIndex() {
    clear();
    pool_->attach(nullptr);
}

std::span<const int32_t> PrefixIndex::block(PageId page) const {
    const auto size = static_cast<size_t>(pool_->page_size());
    return std::span(tokens_).subspan(static_cast<size_t>(page) * size, size);
}

PageId PrefixIndex::find(PageId parent, uint64_t hash, std::span<const int32_t> tokens) {
    const auto [first, last] = by_hash_.equal_range(hash);
    for (auto it = first; it != last; ++it) {
        if (node(it->second).parent == parent && std::ranges::equal(block(it->second), tokens))
            return it->second;
    }
    return no_page;
}

std::pair<PageId, int32_t> PrefixIndex::best_partial(PageId parent, std::span<const int32_t> rest) {
    std::pair<PageId, int32_t> best{no_page, 0};
    for (PageId child : children(parent)) {
        const auto have = block(child);
        const auto differ = std::ranges::mismatch(have, rest);
        const auto n = static_cast<int32_t>(differ.in1 - have.begin());
        if (n > best.second || (n == best.second && n > 0 && child < best.first)) best = {child, n};
    }
    return best;
}

PrefixMatch PrefixIndex::match(std::span<const int32_t> tokens) {
    const auto size = static_cast<size_t>(pool_->page_size());
    PrefixMatch result;
    PageId parent = no_page;
    uint64_t hash = 0;
    ++clock_;
    while (tokens.size() >= size) {
        const auto head = tokens.first(size);
        hash = hash_(hash, head);
        const PageId page = find(parent, hash, head);
        if (page == no_page) break;
        result.pages.push_back(page);
        result.n_tokens += static_cast<int32_t>(size);
        refresh(page, true);
        tokens = tokens.subspan(size);
        parent = page;
    }
    const auto [page, n] = best_partial(parent, tokens);
    if (n > 0) {
        result.pages.push_back(page);
        result.n_tokens += n;
        refresh(page, true);
    }
    return result;
}

int32_t PrefixIndex::insert(std::span<const int32_t> tokens, std::span<const PageId> pages) {
    const auto size = static_cast<size_t>(pool_->page_size());
    const size_t n_blocks = std::min(tokens.size() / size, pages.size());
    PageId parent = no_page;
    uint64_t hash = 0;
    ++clock_;
    for (size_t i = 0; i < n_blocks; ++i) {
        const auto head = tokens.subspan(i * size, size);
        hash = hash_(hash, head);
        PageId page = find(parent, hash, head);
        if (page == no_page) {
            // A page that is indexed under other tokens cannot hold these ones: the caller would be wrong.
            if (pages[i] == no_page || pool_->cached(pages[i])) return static_cast<int32_t>(i * size);
            page = pages[i];
            add(page, parent, hash, head);
        }
        refresh(page, true);
        parent = page;
    }
    return static_cast<int32_t>(n_blocks * size);
}

void PrefixIndex::add(PageId page, PageId parent, uint64_t hash, std::span<const int32_t> tokens) {
    Node& n = node(page);
    n.present = true;
    n.parent = parent;
    n.hash = hash;
    std::ranges::copy(tokens, tokens_.begin() + std::ptrdiff_t{page} * std::ptrdiff_t{pool_->page_size()});
    by_hash_.emplace(hash, page);
    children(parent).push_back(page);
    if (parent != no_page) refresh(parent, false);  // no leaf any more
    pool_->set_cached(page, true);
}

// Brings the list of evictable leaves in line with the node; `touched` makes it the most recently used.
void PrefixIndex::refresh(PageId page, bool touched) {
    Node& n = node(page);
    if (n.evictable) leaves_.erase({n.last_used, page});
    if (touched) n.last_used = clock_;
    n.evictable = n.children.empty() && pool_->ref_count(page) == 0;
    if (n.evictable) leaves_.insert({n.last_used, page});
}

void PrefixIndex::page_idle(PageId page) {
    ++clock_;
    refresh(page, true);
}

void PrefixIndex::page_busy(PageId page) { refresh(page, false); }

bool PrefixIndex::reclaim() {
    if (pool_->n_idle() == 0) return false;
    if (!leaves_.empty()) {
        remove(leaves_.begin()->second);
        return true;
    }
    // Idle pages, but each has a child in use: sequences gave them back from behind a sliding window. What
    // hangs below the chosen one can no longer be reached from the root, so it leaves the index as well.
    PageId oldest = no_page;
    for (PageId page = 0; page < pool_->n_pages(); ++page) {
        if (!node(page).present || pool_->ref_count(page) > 0) continue;
        if (oldest == no_page || node(page).last_used < node(oldest).last_used) oldest = page;
    }
    assert(oldest != no_page);
    remove(oldest);
    return true;
}

void PrefixIndex::remove(PageId page) {
    auto& siblings = children(node(page).parent);
    const PageId parent = node(page).parent;
    siblings.erase(std::ranges::find(siblings, page));
    if (parent != no_page) refresh(parent, false);
    std::vector<PageId> below{page};
    while (!below.empty()) {
        const PageId next = below.back();
        below.pop_back();
        below.insert(below.end(), node(next).children.begin(), node(next).children.end());
        remove_one(next);
    }
}

void PrefixIndex::remove_one(PageId page) {
    Node& n = node(page);
    if (n.evictable) leaves_.erase({n.last_used, page});
    const auto [first, last] = by_hash_.equal_range(n.hash);
    by_hash_.erase(std::find_if(first, last, [page](const auto& entry) { return entry.second == page; }));
    n = Node{};
    pool_->set_cached(page, false);
}

void PrefixIndex::clear() {
    while (!roots_.empty()) remove(roots_.back());
}

}  // namespace nibble
