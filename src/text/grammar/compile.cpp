// Emitting states. A set of characters is cut into ranges whose UTF-8 forms are products of byte ranges;
// equal tails are shared.
#include "src/text/grammar/compile.h"

#include <map>
#include <tuple>

#include "src/text/utf8.h"

namespace nibble {
namespace {

using State = Grammar::State;

struct ByteRange {
    uint8_t low, high;
};

std::string utf8(uint32_t c) {
    std::string s;
    append_utf8(s, c);
    return s;
}

// Cuts [first, last] (all of one encoded length) until all bytes but one prefix are full ranges:
// visit(byte ranges in order).
template <class Visit>
void cut_ranges(uint32_t first, uint32_t last, size_t n_bytes, Visit& visit) {
    for (size_t tail = 1; tail < n_bytes; ++tail) {
        const uint32_t low_bits = (uint32_t{1} << (6 * tail)) - 1;
        if ((first & ~low_bits) == (last & ~low_bits)) continue;  // they differ only in these bits
        if ((first & low_bits) != 0) {
            cut_ranges(first, first | low_bits, n_bytes, visit);
            return cut_ranges((first | low_bits) + 1, last, n_bytes, visit);
        }
        if ((last & low_bits) != low_bits) {
            cut_ranges(first, (last & ~low_bits) - 1, n_bytes, visit);
            return cut_ranges(last & ~low_bits, last, n_bytes, visit);
        }
    }
    const std::string a = utf8(first), b = utf8(last);
    std::vector<ByteRange> bytes;
    for (size_t i = 0; i < n_bytes; ++i)
        bytes.push_back({static_cast<uint8_t>(a[i]), static_cast<uint8_t>(b[i])});
    visit(bytes);
}

}  // namespace

int32_t StateBuilder::add(State state) {
    if (states_.size() >= static_cast<size_t>(max_grammar_states)) {
        overflowed_ = true;
        return 0;
    }
    states_.push_back(state);
    return static_cast<int32_t>(states_.size() - 1);
}

int32_t StateBuilder::fork(int32_t a, int32_t b) {
    State s;
    s.kind = State::Kind::fork;
    s.next = a;
    s.other = b;
    return add(s);
}

int32_t StateBuilder::emit_text(const std::string& bytes, int32_t next) {
    for (auto b = bytes.rbegin(); b != bytes.rend() && !overflowed_; ++b) {
        State s;
        s.kind = State::Kind::bytes;
        s.low = s.high = static_cast<uint8_t>(*b);
        s.next = next;
        next = add(s);
    }
    return next;
}

int32_t StateBuilder::emit_chars(const CharSet& set, int32_t next) {
    std::map<std::tuple<uint8_t, uint8_t, int32_t>, int32_t> made;
    std::vector<int32_t> starts;
    const auto visit = [&](const std::vector<ByteRange>& bytes) {
        int32_t at = next;
        for (auto b = bytes.rbegin(); b != bytes.rend(); ++b) {
            const auto [known, fresh] = made.try_emplace({b->low, b->high, at}, 0);
            if (fresh) {
                State s;
                s.kind = State::Kind::bytes;
                s.low = b->low;
                s.high = b->high;
                s.next = at;
                known->second = add(s);
            }
            at = known->second;
        }
        starts.push_back(at);
    };
    constexpr CodeRange lengths[] = {{0, 0x7F}, {0x80, 0x7FF}, {0x800, 0xFFFF}, {0x10000, 0x10FFFF}};
    for (const CodeRange& r : set.ranges())
        for (size_t n = 0; n < 4; ++n) {
            const uint32_t first = std::max(r.first, lengths[n].first),
                           last = std::min(r.last, lengths[n].last);
            if (first <= last && !overflowed_) cut_ranges(first, last, n + 1, visit);
        }
    if (starts.empty()) return add({});
    int32_t at = starts.back();
    for (size_t i = starts.size() - 1; i-- > 0;) at = fork(starts[i], at);
    return at;
}

int32_t StateBuilder::emit_repeat(const Expr& e, int32_t next) {
    const ExprId part = e.parts[0];
    int32_t at = next;
    if (e.max == unbounded) {
        const int32_t loop = fork(-1, next);
        const int32_t body = emit(part, loop);
        if (overflowed_) return 0;
        states_[static_cast<size_t>(loop)].next = body;
        at = loop;
    } else {
        for (int32_t i = e.min; i < e.max && !overflowed_; ++i) {
            const int32_t body = emit(part, at);
            if (body == at) break;  // the empty text
            at = fork(body, next);
        }
    }
    for (int32_t i = 0; i < e.min && !overflowed_; ++i) {
        const int32_t body = emit(part, at);
        if (body == at) break;
        at = body;
    }
    return at;
}

int32_t StateBuilder::emit(ExprId id, int32_t next) {
    if (++work_ > 4 * int64_t{max_grammar_states}) overflowed_ = true;
    if (overflowed_) return 0;
    const Expr& e = source_.at(id);
    switch (e.kind) {
        case Expr::Kind::text:
            return emit_text(e.text, next);
        case Expr::Kind::chars:
            return emit_chars(e.chars, next);
        case Expr::Kind::sequence:
            for (auto p = e.parts.rbegin(); p != e.parts.rend(); ++p) next = emit(*p, next);
            return next;
        case Expr::Kind::choice: {
            if (e.parts.empty()) return add({});
            int32_t at = emit(e.parts.back(), next);
            for (size_t i = e.parts.size() - 1; i-- > 0;) at = fork(emit(e.parts[i], next), at);
            return at;
        }
        case Expr::Kind::repeat:
            return emit_repeat(e, next);
        case Expr::Kind::rule: {
            State s;
            s.kind = State::Kind::call;
            s.next = next;
            s.other = e.rule;
            return add(s);
        }
    }
    return 0;
}

}  // namespace nibble
