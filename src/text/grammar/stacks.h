// Stacks: sets of call stacks, each set stored once. What "return to" means for many parses at the same time.
// Internal to src/text/grammar.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <unordered_map>
#include <vector>

namespace nibble {

using StackId = int32_t;

// A set of stacks is a node: perhaps the empty stack, and for each return state on top the set of what lies
// below. Equal sets have equal ids, and a common rest is stored once (a graph-structured stack: M. Tomita,
// "An Efficient Augmented-Context-Free Parsing Algorithm", Computational Linguistics 13, 1987).
class Stacks {
  public:
    struct Entry {
        int32_t state;
        StackId below;
        bool operator==(const Entry&) const = default;
    };
    static constexpr StackId empty_stack = 0;  // the set that holds only the empty stack
    static constexpr int32_t max_depth = 2000;

    Stacks();
    bool has_empty(StackId id) const { return node(id).empty; }
    std::span<const Entry> entries(StackId id) const {
        return std::span(entries_).subspan(node(id).first, node(id).count);
    }
    // Every stack of `below` with `state` on top; -1 when that would be deeper than max_depth.
    StackId push(int32_t state, StackId below);
    // All stacks of these sets, at least one; ids in any order, also repeated.
    StackId merge(std::vector<StackId> sets);
    // The empty stack, if so wished, and stacks by what is on top, ascending.
    StackId intern(bool empty, std::span<const Entry> entries);
    size_t bytes() const;  // roughly

  private:
    struct Node {
        size_t first = 0;
        uint32_t count = 0;
        int32_t depth = 0;
        bool empty = false;
    };
    const Node& node(StackId id) const { return nodes_[static_cast<size_t>(id)]; }
    StackId merge(StackId a, StackId b);
    StackId merge(std::vector<StackId> sets, std::map<std::vector<StackId>, StackId>& known);

    std::vector<Node> nodes_;
    std::vector<Entry> entries_;
    std::unordered_multimap<uint64_t, StackId> known_;
    std::unordered_map<uint64_t, StackId> merged_;
};

inline uint64_t hash_mix(uint64_t h, uint64_t v) {
    h = (h ^ v) * 0x9E3779B97F4A7C15u;
    return h ^ (h >> 29);
}

}  // namespace nibble
