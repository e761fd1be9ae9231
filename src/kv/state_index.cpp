// The list of known states and its eviction order.
// Work per call: the tokens of each known state, up to the first difference.
#include "src/kv/state_index.h"

#include <algorithm>

namespace nibble {

StateIndex::StateIndex(PagePool& pool) : pool_(&pool), states_(static_cast<size_t>(pool.n_pages())) {
    pool_->attach(this);
}

StateIndex::~StateIndex() {
    clear();
    pool_->attach(nullptr);
}

StateMatch StateIndex::match(std::span<const int32_t> tokens) {
    StateMatch best;
    for (PageId page = 0; page < pool_->n_pages(); ++page) {
        const std::vector<int32_t>& known = state(page).tokens;
        if (known.size() <= static_cast<size_t>(best.n_tokens) || known.size() > tokens.size()) continue;
        if (std::ranges::equal(known, tokens.first(known.size())))
            best = {page, static_cast<int32_t>(known.size())};
    }
    if (best.page != no_page) state(best.page).last_used = ++clock_;
    return best;
}

bool StateIndex::insert(std::span<const int32_t> tokens, PageId page) {
    if (tokens.empty() || page == no_page || pool_->cached(page)) return false;
    if (match(tokens).n_tokens == static_cast<int32_t>(tokens.size())) return false;
    state(page) = {{tokens.begin(), tokens.end()}, ++clock_};
    pool_->set_cached(page, true);
    return true;
}

void StateIndex::page_idle(PageId page) { state(page).last_used = ++clock_; }

void StateIndex::page_busy(PageId) {}

bool StateIndex::reclaim() {
    PageId oldest = no_page;
    for (PageId page = 0; page < pool_->n_pages(); ++page) {
        if (!pool_->cached(page) || pool_->ref_count(page) > 0) continue;
        if (oldest == no_page || state(page).last_used < state(oldest).last_used) oldest = page;
    }
    if (oldest == no_page) return false;
    forget(oldest);
    return true;
}

void StateIndex::forget(PageId page) {
    state(page) = {};
    pool_->set_cached(page, false);
}

void StateIndex::forget(std::span<const int32_t> tokens) {
    if (const StateMatch known = match(tokens);
        known.n_tokens == static_cast<int32_t>(tokens.size()) && known.n_tokens > 0)
        forget(known.page);
}

void StateIndex::clear() {
    for (PageId page = 0; page < pool_->n_pages(); ++page)
        if (pool_->cached(page)) forget(page);
}

}  // namespace nibble
