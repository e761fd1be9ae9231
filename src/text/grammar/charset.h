// CharSet: a set of Unicode characters as ranges, with union, difference and complement.
// Surrogates (U+D800-DFFF) are never members: they have no UTF-8 form.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace nibble {

struct CodeRange {
    uint32_t first, last;
    bool operator==(const CodeRange&) const = default;
};

class CharSet {
  public:
    CharSet() = default;
    CharSet(std::initializer_list<CodeRange> ranges);  // any order, may overlap

    static CharSet all();  // every character

    // Values past U+10FFFF and surrogates are left out.
    CharSet united(const CharSet& other) const;
    CharSet inverted() const;
    CharSet without(const CharSet& other) const;
    CharSet common(const CharSet& other) const { return without(other.inverted()); }

    bool empty() const { return ranges_.empty(); }
    bool contains(uint32_t c) const;
    std::span<const CodeRange> ranges() const { return ranges_; }  // ascending, disjoint, not adjacent

    // From ranges in any order, overlapping or not; a range with first > last is empty.
    static CharSet of(std::vector<CodeRange> ranges);

  private:
    std::vector<CodeRange> ranges_;
};

}  // namespace nibble
