// Grammar: a context-free grammar over bytes, compiled to one small automaton per rule with calls between
// them (a recursive transition network; W. A. Woods, "Transition Network Grammars", CACM 13(10), 1970).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ggml/base/result.h"
#include "src/text/grammar/expr.h"

namespace nibble {

inline constexpr size_t max_grammar_text = 1 << 20;     // bytes of a grammar, schema or expression
inline constexpr int32_t max_grammar_states = 1 << 20;  // of the compiled form
inline constexpr int32_t max_grammar_nesting = 256;     // groups in groups, schemas in schemas

// Immutable, may be shared between threads.
class Grammar {
  public:
    // GBNF, the notation of llama.cpp's grammars: `name ::= ...` with "text", [classes], ., ( ), |, * + ?
    // {m} {m,} {m,n}, # comments; the rule `root` is the start. Escapes: \n \r \t \\ \" \[ \] \xHH \uHHHH
    // \UHHHHHHHH. Line breaks end a rule except inside ( ) and after ::= or |.
    static Result<Grammar> from_gbnf(std::string_view text);

    // A regular expression for the whole text: see regex.h for the subset.
    static Result<Grammar> from_regex(std::string_view pattern);

    // JSON Schema, draft 2020-12: see json_schema.h for the subset and the layout of the output.
    static Result<Grammar> from_json_schema(std::string_view schema);

    // Errors: a rule without a body, left recursion (names the cycle), an empty language, too many states.
    static Result<Grammar> compile(const GrammarSource& source, RuleId start);

    struct State {
        enum class Kind : uint8_t {
            end,    // of the rule
            bytes,  // one byte in [low, high], then next
            call,   // rule `other`, then next
            fork,   // next or other, without a byte
            fail,
        };
        Kind kind = Kind::fail;
        uint8_t low = 0, high = 0;
        bool useful = false;    // the end of the rule can be reached from here
        bool nullable = false;  // ... without a byte
        int32_t next = -1, other = -1;
    };
    struct Rule {
        std::string name;
        int32_t start = 0;  // state
        int32_t rank = 0;   // a rule that can begin with a call of another has the lower rank
    };
    const State& state(int32_t id) const { return states_[static_cast<size_t>(id)]; }
    const Rule& rule(RuleId id) const { return rules_[static_cast<size_t>(id)]; }
    RuleId start_rule() const { return start_; }
    size_t n_states() const { return states_.size(); }
    // Bytes that no state tells apart have one class.
    int32_t n_classes() const { return n_classes_; }
    uint8_t byte_class(unsigned char byte) const { return classes_[byte]; }

  private:
    Result<void> analyse();
    void mark_useful();
    void mark_nullable();
    Result<void> rank_rules();
    void find_classes();
    template <class Visit>
    void left_calls(RuleId rule, std::vector<uint8_t>& seen, Visit visit) const;

    std::vector<State> states_;
    std::vector<Rule> rules_;
    RuleId start_ = 0;
    std::array<uint8_t, 256> classes_{};
    int32_t n_classes_ = 1;
};

}  // namespace nibble
