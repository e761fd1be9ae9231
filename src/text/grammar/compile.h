// Expression trees to states: characters become ranges of UTF-8 bytes, repetitions become copies and loops.
// Internal to src/text/grammar.
#pragma once

#include "src/text/grammar/grammar.h"

namespace nibble {

// Thompson's construction from the end backwards, so that no state is only a link.
class StateBuilder {
  public:
    explicit StateBuilder(const GrammarSource& source) : source_(source) {}

    // States for the expression, followed by `next`; gives the first one. After too much work it gives
    // anything, and overflowed() is true.
    int32_t emit(ExprId id, int32_t next);
    int32_t add(Grammar::State state);
    bool overflowed() const { return overflowed_; }
    std::vector<Grammar::State> take() { return std::move(states_); }

  private:
    int32_t emit_text(const std::string& bytes, int32_t next);
    int32_t emit_chars(const CharSet& set, int32_t next);
    int32_t emit_repeat(const Expr& e, int32_t next);
    int32_t fork(int32_t a, int32_t b);

    const GrammarSource& source_;
    std::vector<Grammar::State> states_;
    int64_t work_ = 0;
    bool overflowed_ = false;
};

}  // namespace nibble
