// NFC in three steps: decompose, order marks by their class, compose. Hangul by arithmetic.
// The tables are generated; the inverse of the decompositions is built once.
#include "src/text/nfc.h"

#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "src/text/utf8.h"

namespace nibble {
namespace {

struct Pair {
    uint32_t from, first, second;
    bool composes;
};
struct Mark {
    uint32_t first, last;
    uint8_t combining_class;
};
struct Range {
    uint32_t first, last;
};

#include "src/text/nfc_table.inl"

constexpr uint32_t l_base = 0x1100, v_base = 0x1161, t_base = 0x11A7, s_base = 0xAC00;
constexpr uint32_t l_count = 19, v_count = 21, t_count = 28, s_count = l_count * v_count * t_count;

// The entry of a table of ranges that holds c, or null.
template <class T, size_t n>
const T* find_range(const T (&table)[n], uint32_t c) {
    const T* after = std::upper_bound(std::begin(table), std::end(table), c,
                                      [](uint32_t x, const T& r) { return x < r.first; });
    return after != std::begin(table) && c <= after[-1].last ? after - 1 : nullptr;
}

uint8_t combining_class(uint32_t c) {
    const Mark* m = find_range(marks, c);
    return m ? m->combining_class : 0;
}

void decompose(uint32_t c, std::vector<uint32_t>& out) {
    if (c - s_base < s_count) {
        const uint32_t s = c - s_base;
        out.push_back(l_base + s / (v_count * t_count));
        out.push_back(v_base + s / t_count % v_count);
        if (s % t_count) out.push_back(t_base + s % t_count);
        return;
    }
    const Pair* p = std::lower_bound(std::begin(pairs), std::end(pairs), c,
                                     [](const Pair& e, uint32_t x) { return e.from < x; });
    if (p == std::end(pairs) || p->from != c) {
        out.push_back(c);
        return;
    }
    decompose(p->first, out);  // at most four levels deep in the whole database
    if (p->second) decompose(p->second, out);
}

// The character that two make, or 0.
uint32_t composed(uint32_t a, uint32_t b) {
    if (a - l_base < l_count && b - v_base < v_count)
        return s_base + ((a - l_base) * v_count + (b - v_base)) * t_count;
    if (a - s_base < s_count && (a - s_base) % t_count == 0 && b - t_base - 1 < t_count - 1)
        return a + (b - t_base);
    static const auto inverse = [] {
        std::unordered_map<uint64_t, uint32_t> map;
        for (const Pair& p : pairs)
            if (p.composes) map.emplace(uint64_t{p.first} << 32 | p.second, p.from);
        return map;
    }();
    const auto it = inverse.find(uint64_t{a} << 32 | b);
    return it == inverse.end() ? 0 : it->second;
}

// Orders each run of marks by class, keeping equal ones in place, then joins what composes.
void append_composed(std::vector<uint32_t>& s, std::string& out) {
    for (size_t i = 0; i < s.size();) {
        size_t end = i;
        while (end < s.size() && combining_class(s[end]) > 0) ++end;
        std::stable_sort(s.begin() + static_cast<std::ptrdiff_t>(i),
                         s.begin() + static_cast<std::ptrdiff_t>(end),
                         [](uint32_t a, uint32_t b) { return combining_class(a) < combining_class(b); });
        i = end + 1;
    }
    size_t starter = s.size(), kept = 0;
    int last = -1;  // class of the last kept character behind the starter; -1: none
    for (const uint32_t c : std::vector<uint32_t>(s)) {
        const int k = combining_class(c);
        const uint32_t joined = starter < kept && last < k ? composed(s[starter], c) : 0;
        if (joined) {
            s[starter] = joined;
            continue;
        }
        last = k == 0 ? -1 : k;
        if (k == 0) starter = kept;
        s[kept++] = c;
    }
    for (size_t i = 0; i < kept; ++i) append_utf8(out, s[i]);
    s.clear();
}

uint32_t code_point(std::string_view s) {
    const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<unsigned char>(s[i])); };
    if (s.size() == 1) return byte(0);
    uint32_t c = byte(0) & (0x7Fu >> s.size());
    for (size_t i = 1; i < s.size(); ++i) c = c << 6 | (byte(i) & 0x3F);
    return c;
}

}  // namespace

bool is_nfc(std::string_view text) {
    for (size_t i = 0; i < text.size();) {
        const int n = valid_utf8_at(text.substr(i));
        // Nothing below U+0300 is affected, and those are the characters of one byte or two up to CB BF.
        if (n > 2 || (n == 2 && static_cast<unsigned char>(text[i]) >= 0xCC))
            if (find_range(unsettled, code_point(text.substr(i, static_cast<size_t>(n))))) return false;
        i += static_cast<size_t>(std::max(n, 1));
    }
    return true;
}

std::string to_nfc(std::string_view text) {
    std::string out;
    out.reserve(text.size());
    std::vector<uint32_t> run;
    for (size_t i = 0; i < text.size();) {
        const auto n = static_cast<size_t>(valid_utf8_at(text.substr(i)));
        if (n == 0) {
            append_composed(run, out);
            out += text[i++];
            continue;
        }
        decompose(code_point(text.substr(i, n)), run);
        i += n;
    }
    append_composed(run, out);
    return out;
}

}  // namespace nibble
