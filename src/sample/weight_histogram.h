// Weights summed by distance from the front of an order: finds where a cumulative weight is reached without
// sorting. Exact, because the weights are integers and a bucket never splits equal distances.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "src/sample/weight.h"

namespace nibble {

class WeightHistogram {
  public:
    struct Crossing {
        size_t bucket;    // the cumulative weight is reached in here
        uint64_t before;  // the sum of all buckets in front of it
    };

    static constexpr double range = 32;  // distances at which weights have become 0

    void clear() { sums_.fill(0); }
    void add(double distance, uint64_t weight) { sums_[bucket(distance)] += weight; }

    // What lies beyond the range shares the last bucket.
    static size_t bucket(double distance) {
        return distance < range ? static_cast<size_t>(distance * steps) : n_buckets - 1;
    }

    uint64_t total() const {
        uint64_t sum = 0;
        for (uint64_t s : sums_) sum += s;
        return sum;
    }

    // Precondition: 1 <= weight <= total().
    Crossing crossing(uint64_t weight) const {
        Crossing at{0, 0};
        while (at.before + sums_[at.bucket] < weight) at.before += sums_[at.bucket++];
        return at;
    }

    // Of the items of the bucket at `at`: the one whose weight, added in order, reaches `weight`.
    template <class Item, class Precedes, class Weight>
    static Item reach(std::vector<Item>& items, Crossing at, uint64_t weight, Precedes precedes,
                      Weight weigh) {
        std::sort(items.begin(), items.end(), precedes);
        size_t i = 0;
        for (uint64_t sum = at.before; (sum += weigh(items[i])) < weight;) ++i;
        return items[i];
    }

  private:
    static constexpr double steps = 32;  // of 1
    static constexpr size_t n_buckets = static_cast<size_t>(range * steps);
    std::array<uint64_t, n_buckets> sums_{};
};

}  // namespace nibble
