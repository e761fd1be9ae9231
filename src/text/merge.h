// The merge loop of BPE: a linked list of symbols and a priority queue of adjacent pairs.
// O(n log n) time and linear memory for any input; the source of ranks is a parameter.
#pragma once

#include <cstdint>
#include <optional>
#include <queue>
#include <vector>

#include "src/text/vocab.h"

namespace nibble {

struct Symbol {
    Token id = -1;       // -1: no token (yet) for these bytes
    uint32_t begin = 0;  // bytes of the word
    uint32_t size = 0;   // 0: merged into its left neighbour
    int32_t prev = -1, next = -1;
};

struct Merge {
    double priority;  // lower goes first
    Token id;         // of the merged symbol
};

// Merges until nothing merges any more; on equal priorities the leftmost pair goes first.
// rank(left, right) gives the merge of two adjacent symbols, or nothing.
template <class Rank>
void merge_symbols(std::vector<Symbol>& symbols, const Rank& rank) {
    struct Pair {
        double priority;
        int32_t left, right;
        uint32_t size;  // of both: a stale entry no longer agrees
        Token id;
        bool operator<(const Pair& o) const {
            return priority > o.priority || (priority == o.priority && left > o.left);
        }
    };
    std::priority_queue<Pair> queue;
    const auto at = [&](int32_t i) -> Symbol& { return symbols[static_cast<size_t>(i)]; };
    const auto push = [&](int32_t left, int32_t right) {
        if (left < 0 || right < 0) return;
        if (const std::optional<Merge> m = rank(at(left), at(right)))
            queue.push({m->priority, left, right, at(left).size + at(right).size, m->id});
    };
    for (int32_t i = 0; i < static_cast<int32_t>(symbols.size()); ++i) {
        at(i).prev = i - 1;
        at(i).next = i + 1 < static_cast<int32_t>(symbols.size()) ? i + 1 : -1;
    }
    for (int32_t i = 0; i + 1 < static_cast<int32_t>(symbols.size()); ++i) push(i, i + 1);
    while (!queue.empty()) {
        const Pair p = queue.top();
        queue.pop();
        Symbol &left = at(p.left), &right = at(p.right);
        if (left.size == 0 || right.size == 0 || left.next != p.right || left.size + right.size != p.size)
            continue;
        left.id = p.id;
        left.size = p.size;
        left.next = right.next;
        right.size = 0;
        if (left.next >= 0) at(left.next).prev = p.left;
        push(left.prev, p.left);
        push(p.left, left.next);
    }
}

}  // namespace nibble
