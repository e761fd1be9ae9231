// Interning and merging of stack sets.
// Merging goes down only where two sets differ, at most max_depth levels.
#include "src/text/grammar/stacks.h"

#include <algorithm>

namespace nibble {

Stacks::Stacks() { intern(true, {}); }

StackId Stacks::intern(bool empty, std::span<const Entry> list) {
    uint64_t hash = empty ? 1 : 0;
    for (const Entry& e : list) {
        hash = hash_mix(hash, static_cast<uint64_t>(e.state));
        hash = hash_mix(hash, static_cast<uint64_t>(e.below));
    }
    const auto [first, last] = known_.equal_range(hash);
    for (auto it = first; it != last; ++it)
        if (has_empty(it->second) == empty && std::ranges::equal(entries(it->second), list))
            return it->second;
    Node n;
    n.first = entries_.size();
    n.count = static_cast<uint32_t>(list.size());
    n.empty = empty;
    for (const Entry& e : list) n.depth = std::max(n.depth, node(e.below).depth + 1);
    entries_.insert(entries_.end(), list.begin(), list.end());
    nodes_.push_back(n);
    const auto id = static_cast<StackId>(nodes_.size() - 1);
    known_.emplace(hash, id);
    return id;
}

StackId Stacks::push(int32_t state, StackId below) {
    if (node(below).depth >= max_depth) return -1;
    const Entry e{state, below};
    return intern(false, {&e, 1});
}

StackId Stacks::merge(StackId a, StackId b) {
    if (a == b) return a;
    if (a > b) std::swap(a, b);
    const uint64_t key = static_cast<uint64_t>(a) << 32 | static_cast<uint64_t>(b);
    if (const auto known = merged_.find(key); known != merged_.end()) return known->second;
    std::vector<Entry> all;
    const auto copy = [this](StackId id) {
        const auto e = entries(id);
        return std::vector<Entry>(e.begin(), e.end());
    };
    const std::vector<Entry> x = copy(a), y = copy(b);
    size_t i = 0, j = 0;
    while (i < x.size() || j < y.size()) {
        if (j == y.size() || (i < x.size() && x[i].state < y[j].state)) {
            all.push_back(x[i++]);
        } else if (i == x.size() || y[j].state < x[i].state) {
            all.push_back(y[j++]);
        } else {
            all.push_back({x[i].state, merge(x[i].below, y[j].below)});
            ++i, ++j;
        }
    }
    const StackId id = intern(has_empty(a) || has_empty(b), all);
    merged_.emplace(key, id);
    return id;
}

// Many at once: merged in pairs, k sets would leave sets of 2, 3, ... k entries behind.
StackId Stacks::merge(std::vector<StackId> sets) {
    std::map<std::vector<StackId>, StackId> known;
    return merge(std::move(sets), known);
}

// What lies below is shared: without `known` it would be merged once for every way to it.
StackId Stacks::merge(std::vector<StackId> sets, std::map<std::vector<StackId>, StackId>& known) {
    std::ranges::sort(sets);
    sets.erase(std::unique(sets.begin(), sets.end()), sets.end());
    if (sets.size() == 1) return sets[0];
    if (sets.size() == 2) return merge(sets[0], sets[1]);
    if (const auto it = known.find(sets); it != known.end()) return it->second;
    bool empty = false;
    std::vector<Entry> all;
    for (const StackId s : sets) {
        empty |= has_empty(s);
        all.insert(all.end(), entries(s).begin(), entries(s).end());
    }
    std::ranges::sort(all, {}, &Entry::state);
    std::vector<Entry> joined;
    for (size_t i = 0; i < all.size();) {
        std::vector<StackId> below;
        const int32_t state = all[i].state;
        for (; i < all.size() && all[i].state == state; ++i) below.push_back(all[i].below);
        joined.push_back({state, merge(std::move(below), known)});
    }
    const StackId id = intern(empty, joined);
    known.emplace(std::move(sets), id);
    return id;
}

size_t Stacks::bytes() const {
    constexpr size_t known = 48;  // of a map, an entry
    return nodes_.size() * sizeof(Node) + entries_.size() * sizeof(Entry) +
           (known_.size() + merged_.size()) * known;
}

}  // namespace nibble
