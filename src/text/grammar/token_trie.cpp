// Building the tree from the sorted list of token texts.
// Texts longer than 65,535 bytes are left out: their tokens are never allowed.
#include "src/text/grammar/token_trie.h"

#include <algorithm>
#include <numeric>

namespace nibble {

std::shared_ptr<const TokenTrie> TokenTrie::create(const Tokenizer& tokenizer) {
    auto trie = std::make_shared<TokenTrie>();
    const size_t n = tokenizer.n_vocab();
    trie->pieces_.resize(n);
    trie->ends_.resize(n, 0);
    std::vector<Token> order;
    for (size_t i = 0; i < n; ++i) {
        const auto t = static_cast<Token>(i);
        if (tokenizer.is_end_of_generation(t)) {
            trie->ends_[i] = 1;
            trie->end_tokens_.push_back(t);
        } else if (!tokenizer.is_control(t) && tokenizer.piece(t).size() <= UINT16_MAX) {
            trie->pieces_[i] = tokenizer.piece(t);
            if (!trie->pieces_[i].empty()) order.push_back(t);
        }
    }
    std::ranges::stable_sort(order, {}, [&](Token t) -> const std::string& { return trie->piece(t); });
    std::vector<uint32_t> path;  // the node of each byte of the text before
    std::string_view before;
    const auto close_to = [&](size_t depth) {
        for (; path.size() > depth; path.pop_back())
            trie->nodes_[path.back()].after = static_cast<uint32_t>(trie->nodes_.size());
    };
    for (const Token t : order) {
        const std::string_view text = trie->piece(t);
        const auto common = static_cast<size_t>(std::ranges::mismatch(text, before).in1 - text.begin());
        close_to(common);
        for (size_t i = common; i < text.size(); ++i) {
            Node node;
            node.byte = static_cast<uint8_t>(text[i]);
            node.depth = static_cast<uint16_t>(i);
            node.first_token = static_cast<uint32_t>(trie->tokens_.size());
            path.push_back(static_cast<uint32_t>(trie->nodes_.size()));
            trie->nodes_.push_back(node);
        }
        if (trie->nodes_[path.back()].n_tokens < UINT16_MAX) {
            ++trie->nodes_[path.back()].n_tokens;
            trie->tokens_.push_back(t);
        }
        trie->max_depth_ = std::max(trie->max_depth_, text.size());
        before = text;
    }
    close_to(0);
    return trie;
}

}  // namespace nibble
