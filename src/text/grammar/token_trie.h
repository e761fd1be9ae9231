// TokenTrie: the texts of a vocabulary's tokens as a tree over bytes, in one flat array.
// Walking it meets every common beginning once, and a beginning that is refused skips all that share it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "src/text/tokenizer.h"

namespace nibble {

// Immutable. Control tokens and tokens without text are not in the tree; those that end a generation are
// listed apart.
class TokenTrie {
  public:
    static std::shared_ptr<const TokenTrie> create(const Tokenizer& tokenizer);

    struct Node {
        uint32_t after = 0;  // index of the first node that is not below this one
        uint32_t first_token = 0;
        uint16_t n_tokens = 0;
        uint16_t depth = 0;  // bytes before this one
        uint8_t byte = 0;
    };
    std::span<const Node> nodes() const { return nodes_; }  // depth first
    std::span<const Token> tokens(const Node& n) const {
        return std::span(tokens_).subspan(n.first_token, n.n_tokens);
    }
    size_t n_vocab() const { return pieces_.size(); }
    // Empty: never allowed by a grammar.
    const std::string& piece(Token token) const { return pieces_[static_cast<size_t>(token)]; }
    bool ends(Token token) const { return ends_[static_cast<size_t>(token)] != 0; }
    std::span<const Token> end_tokens() const { return end_tokens_; }
    size_t max_depth() const { return max_depth_; }

  private:
    std::vector<Node> nodes_;
    std::vector<Token> tokens_, end_tokens_;
    std::vector<std::string> pieces_;
    std::vector<uint8_t> ends_;
    size_t max_depth_ = 0;
};

}  // namespace nibble
