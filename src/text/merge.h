// The merge loop of BPE: a linked list of symbols and a heap of adjacent pairs.
// O(n log n) time and linear memory for any input; the source of ranks is a parameter.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
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
    uint32_t rank = 0;  // lower goes first
    Token id = -1;      // of the merged symbol; -1: the pair does not merge
};

// (left, right) -> merge. Open addressing, half full at most.
class MergeTable {
  public:
    explicit MergeTable(size_t n = 0) : slots_(std::bit_ceil(std::max<size_t>(8, 2 * n))) {
        shift_ = 64 - std::countr_zero(slots_.size());
    }

    // The first of two equal pairs has the better rank and stays. At most n pairs.
    void add(Token left, Token right, Merge merge) {
        Slot& s = slots_[slot(key(left, right))];
        if (s.merge.id < 0) s = {key(left, right), merge};
    }
    // Asks for the place of a pair that will be added.
    void ask_for(Token left, Token right) const { __builtin_prefetch(&slots_[place(key(left, right))]); }
    Merge find(Token left, Token right) const { return slots_[slot(key(left, right))].merge; }

  private:
    struct Slot {
        uint64_t key = 0;
        Merge merge;
    };
    static uint64_t key(Token l, Token r) {
        return uint64_t{static_cast<uint32_t>(l)} << 32 | static_cast<uint32_t>(r);
    }
    size_t place(uint64_t k) const {
        return static_cast<size_t>((k ^ k >> 29) * 0x9E3779B97F4A7C15u >> shift_);
    }
    size_t slot(uint64_t k) const {
        size_t i = place(k);
        while (slots_[i].merge.id >= 0 && slots_[i].key != k) i = (i + 1) & (slots_.size() - 1);
        return i;
    }
    std::vector<Slot> slots_;
    int shift_ = 0;
};

// Scratch for one caller at a time; keeps its memory from word to word.
class Merger {
  public:
    std::vector<Symbol> symbols;  // in order, at most 2^31 - 1; `prev` and `next` are set by run()

    // Merges until nothing merges any more; on equal ranks the leftmost pair goes first.
    // find(left, right) gives the Merge of two adjacent symbols.
    template <class Find>
    void run(const Find& find) {
        const auto n = static_cast<int32_t>(symbols.size());
        heap_.clear();
        for (int32_t i = 0; i < n; ++i) {
            at(i).prev = i - 1;
            at(i).next = i + 1 < n ? i + 1 : -1;
            if (i > 0) consider(i - 1, i, find);
        }
        std::make_heap(heap_.begin(), heap_.end());
        while (!heap_.empty()) {
            const Pair p = heap_.front();
            std::pop_heap(heap_.begin(), heap_.end());
            heap_.pop_back();
            const auto l = static_cast<int32_t>(p.order & 0xFFFFFFFFu);
            Symbol& left = at(l);
            if (left.size == 0 || left.next < 0) continue;
            Symbol& right = at(left.next);
            if (left.size + right.size != p.size) continue;  // one of them has grown since
            left.id = p.id;
            left.size = p.size;
            left.next = right.next;
            right.size = 0;
            if (left.next >= 0) at(left.next).prev = l;
            if (left.prev >= 0 && consider(left.prev, l, find)) std::push_heap(heap_.begin(), heap_.end());
            if (left.next >= 0 && consider(l, left.next, find)) std::push_heap(heap_.begin(), heap_.end());
        }
    }

  private:
    struct Pair {
        uint64_t order;  // rank, then position of the left symbol
        uint32_t size;   // bytes of both
        Token id;
        bool operator<(const Pair& o) const { return order > o.order; }  // the heap's top is its maximum
    };
    Symbol& at(int32_t i) { return symbols[static_cast<size_t>(i)]; }

    template <class Find>
    bool consider(int32_t left, int32_t right, const Find& find) {
        const Merge m = find(at(left), at(right));
        if (m.id < 0) return false;
        heap_.push_back(
            {uint64_t{m.rank} << 32 | static_cast<uint32_t>(left), at(left).size + at(right).size, m.id});
        return true;
    }

    std::vector<Pair> heap_;
};

}  // namespace nibble
