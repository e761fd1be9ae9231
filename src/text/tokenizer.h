// Tokenizer: text to tokens and back, for byte-level BPE (Sennrich et al. 2016, arXiv:1508.07909; Radford et
// al. 2019) and SentencePiece BPE with byte fallback (Kudo & Richardson 2018, arXiv:1808.06226).
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ggml/base/result.h"
#include "src/text/segment.h"
#include "src/text/thoughts.h"
#include "src/text/vocab.h"

namespace nibble {

struct EncodeOptions {
    bool parse_special = false;  // control tokens in the text become tokens; otherwise they are text
    bool add_bos = true;         // BOS and EOS, if the vocabulary asks for them
};

// Immutable after create(); may be used from several threads. Movable.
class Tokenizer {
  public:
    // Errors: no tokens, ids outside the vocabulary, an unknown split kind, lists of unequal length.
    static Result<Tokenizer> create(Vocab vocab);
    Tokenizer(Tokenizer&&) noexcept;
    Tokenizer& operator=(Tokenizer&&) noexcept;
    ~Tokenizer();

    // Any bytes: what is not valid UTF-8 becomes byte tokens.
    std::vector<Token> encode(std::string_view text, EncodeOptions options = {}) const;
    // The pieces of a rendered chat template as one text. Control tokens come from template pieces alone; BOS
    // and EOS are the template's business, so none is added.
    std::vector<Token> encode(std::span<const TemplateSegment> segments) const;

    // The bytes of one token in the middle of a text; a control token gives its name. Out of range: empty.
    const std::string& piece(Token token) const;
    // The text of a whole sequence; SentencePiece's prefixed space is taken off again.
    std::string decode(std::span<const Token> tokens, bool keep_control = true) const;

    size_t n_vocab() const;
    const Vocab& vocab() const;
    bool is_control(Token token) const;
    bool is_end_of_generation(Token token) const;
    std::span<const Token> ends() const;  // for which that is true, in order
    // By which thoughts are told from the answer, where the vocabulary has tokens for that.
    const std::optional<ThoughtTokens>& thought_tokens() const;
    std::optional<Token> find(std::string_view token_text) const;  // as the vocabulary spells it

  private:
    struct State;
    explicit Tokenizer(std::unique_ptr<const State> state);
    std::unique_ptr<const State> state_;
};

}  // namespace nibble
