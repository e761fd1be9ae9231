// GrammarSource: a context-free grammar as a tree of expressions; what GBNF, regular expressions and JSON
// schemas are translated into, and what Grammar::compile() turns into an automaton.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/text/grammar/charset.h"

namespace nibble {

using ExprId = int32_t;
using RuleId = int32_t;
inline constexpr int32_t unbounded = -1;
inline constexpr int32_t max_repeat = 1 << 20;  // the largest count of a repetition

struct Expr {
    enum class Kind : uint8_t { text, chars, sequence, choice, repeat, rule };
    Kind kind = Kind::text;
    std::string text;           // text: these bytes; empty: the empty text
    CharSet chars;              // chars: one character of the set
    std::vector<ExprId> parts;  // sequence, choice (without parts: nothing matches); repeat: one
    int32_t min = 0, max = 0;   // repeat
    RuleId rule = 0;            // rule: a reference
};

// Expressions may be shared: each use is a copy in the automaton.
class GrammarSource {
  public:
    ExprId text(std::string_view bytes);
    ExprId chars(CharSet set);
    ExprId sequence(std::vector<ExprId> parts);
    ExprId choice(std::vector<ExprId> parts);
    ExprId repeat(ExprId part, int32_t min, int32_t max);  // max: unbounded, or at least min
    ExprId optional(ExprId part) { return repeat(part, 0, 1); }
    ExprId any_number(ExprId part) { return repeat(part, 0, unbounded); }
    ExprId reference(RuleId rule);

    RuleId add_rule(std::string name);  // without a body yet
    void define(RuleId rule, ExprId body) { rules_[static_cast<size_t>(rule)].body = body; }

    struct Rule {
        std::string name;
        ExprId body = -1;
    };
    const std::vector<Rule>& rules() const { return rules_; }
    const Expr& at(ExprId id) const { return exprs_[static_cast<size_t>(id)]; }
    size_t size() const { return exprs_.size(); }
    int32_t depth(ExprId id) const { return depths_[static_cast<size_t>(id)]; }  // of nesting

  private:
    ExprId add(Expr expr);
    std::vector<Expr> exprs_;
    std::vector<int32_t> depths_;
    std::vector<Rule> rules_;
};

}  // namespace nibble
