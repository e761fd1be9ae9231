// Constraint: a grammar over a vocabulary; Matcher: how far one sequence has come in it.
// Knows tokens and bytes, but neither logits nor requests.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "src/text/grammar/automaton.h"
#include "src/text/grammar/token_trie.h"

namespace nibble {

// One bit per token, 64 to a word, the lowest id in the lowest bit.
using TokenMask = std::vector<uint64_t>;

// Shared by all sequences under the same grammar, so that what one has worked out serves the others: states
// of the automaton and the masks of those for which one was needed. Memory is bounded; what was forgotten is
// worked out again. Not for use by several threads at once.
class Constraint {
  public:
    // Errors: no token of the vocabulary can begin a text of the language (and the empty text is none).
    static Result<std::shared_ptr<Constraint>> create(std::shared_ptr<const Grammar> grammar,
                                                      std::shared_ptr<const TokenTrie> tokens);
    Constraint(const Constraint&) = delete;
    Constraint& operator=(const Constraint&) = delete;

    struct Counters {
        uint64_t masks_made = 0, masks_reused = 0;
    };
    const Counters& counters() const { return counters_; }
    size_t bytes() const { return automaton_.bytes() + mask_bytes_; }

  private:
    friend class Matcher;
    Constraint(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const TokenTrie> tokens)
        : automaton_(std::move(grammar)), tokens_(std::move(tokens)) {}
    ParseState follow(ParseState from, std::string_view text);
    ParseState follow(ParseState from, Token token);
    std::shared_ptr<const TokenMask> mask(ParseState& from);
    std::shared_ptr<TokenMask> make_mask(ParseState& from);
    void limit_memory(std::vector<ParseState>* more);

    Automaton automaton_;
    std::shared_ptr<const TokenTrie> tokens_;
    std::vector<ParseState*> positions_;                   // of the matchers
    std::vector<std::shared_ptr<const TokenMask>> masks_;  // by state
    size_t mask_bytes_ = 0;
    Counters counters_;
};

// The position of one sequence. Copyable: a copy goes its own way (beams, drafts).
class Matcher {
  public:
    explicit Matcher(std::shared_ptr<Constraint> constraint);
    Matcher(const Matcher& other);
    Matcher& operator=(const Matcher& other);
    ~Matcher();

    // Whether the text so far and this token begin (or, for a token that ends a generation, are) a text of
    // the language. Costs a table look-up per byte of the token.
    bool allows(Token token) const;
    // The same for all tokens; valid until the next call. Made once per state of the automaton.
    std::shared_ptr<const TokenMask> mask() const;
    // Goes on by a token. An Error (invalid_argument) if it is not allowed; the position is then unchanged.
    Result<void> accept(Token token);
    // Goes on by a text, however it would be cut into tokens; the same error.
    Result<void> accept(std::string_view text);

    bool may_end() const;       // the text so far is in the language
    bool may_continue() const;  // some longer text that begins with it is
    // Nesting deeper than Stacks::max_depth was refused since the last call.
    bool take_too_deep() const { return constraint_->automaton_.take_too_deep(); }

  private:
    std::shared_ptr<Constraint> constraint_;
    mutable ParseState at_;  // renumbered when the automaton forgets
    bool ended_ = false;
};

}  // namespace nibble
