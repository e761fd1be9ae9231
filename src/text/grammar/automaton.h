// Automaton: all parses of a text at once, as states that are made when first reached and then looked up.
// For a grammar without recursion this is a lazily built finite automaton; recursion adds call stacks.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "src/text/grammar/grammar.h"
#include "src/text/grammar/stacks.h"

namespace nibble {

using ParseState = int32_t;
inline constexpr ParseState dead_state = -1;  // no text of the language begins so

// A state is the set of (grammar state that reads a byte, stacks to return to) after some text, kept merged:
// one entry per grammar state. So ambiguity costs no more than the number of grammar states per byte, and
// texts that are equivalent share a state. Not for use by several threads at once.
class Automaton {
  public:
    explicit Automaton(std::shared_ptr<const Grammar> grammar);

    ParseState start() const { return start_; }
    ParseState next(ParseState state, unsigned char byte) {
        const size_t slot = static_cast<size_t>(state) * n_classes_ + grammar_->byte_class(byte);
        const ParseState known = table_[slot];
        return known != unknown ? known : make_next(state, byte);
    }
    bool may_end(ParseState state) const { return states_[static_cast<size_t>(state)].accepts; }
    bool may_continue(ParseState state) const { return !states_[static_cast<size_t>(state)].reads.empty(); }

    size_t size() const { return states_.size(); }
    // Bytes of memory held, roughly.
    size_t bytes() const;
    // Forgets everything but the given states, which get new ids in place. (Dead ones stay dead.)
    void collect(const std::vector<ParseState*>& live);
    // Since the last call: something was left out because it nested deeper than Stacks::max_depth.
    bool take_too_deep();
    const Grammar& grammar() const { return *grammar_; }

  private:
    struct Config {
        int32_t state;
        StackId stack;
        bool operator==(const Config&) const = default;
        auto operator<=>(const Config&) const = default;
    };
    struct Parse {
        std::vector<Config> reads;  // by grammar state, ascending
        bool accepts = false;
    };
    static constexpr ParseState unknown = -2;

    void reset();
    ParseState make_next(ParseState state, unsigned char byte);
    ParseState close();  // of pending_
    void visit(Config config);
    void call_rules();
    ParseState intern(Parse parse);
    StackId rebuild(const Stacks& old, StackId id, std::unordered_map<StackId, StackId>& made);

    std::shared_ptr<const Grammar> grammar_;
    size_t n_classes_;
    Stacks stacks_;
    std::vector<Parse> states_;
    std::vector<ParseState> table_;  // [state][byte class]
    std::unordered_multimap<uint64_t, ParseState> known_;
    size_t n_configs_ = 0;
    ParseState start_ = 0;
    bool too_deep_ = false;

    // Working memory of close().
    struct Call {
        int32_t rank;
        RuleId rule;
        int32_t back;  // state to return to
        StackId stack;
    };
    std::vector<Config> pending_, reads_;
    std::unordered_map<uint64_t, bool> seen_;
    std::vector<Call> calls_;  // a heap, lowest rank on top
    bool accepts_ = false;
};

}  // namespace nibble
