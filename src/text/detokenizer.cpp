// Detokenizer: keeps back the beginning of a character until the rest of it arrives.
// Each longest beginning of a character that stays unfinished becomes one U+FFFD (Unicode 15, section 3.9).
#include "src/text/detokenizer.h"

#include <utility>

#include "src/text/utf8.h"

namespace nibble {
namespace {

constexpr std::string_view replacement = "\xEF\xBF\xBD";

}  // namespace

Detokenizer::Detokenizer(const Tokenizer& tokenizer, bool fresh)
    : tokenizer_(&tokenizer),
      strip_space_(fresh && tokenizer.vocab().model == Vocab::Model::spm &&
                   tokenizer.vocab().add_space_prefix) {}

std::string Detokenizer::push(Token token) {
    std::string_view piece;
    if (!tokenizer_->is_control(token)) {
        piece = tokenizer_->piece(token);
        if (std::exchange(strip_space_, false) && piece.starts_with(' ')) piece.remove_prefix(1);
    }
    const auto& thoughts = tokenizer_->thought_tokens();
    if (thoughts)
        pending_ += parts_.push(*thoughts, token, piece);
    else
        pending_ += piece;
    std::string out;
    std::string_view rest = pending_;
    while (!rest.empty()) {
        if (const int n = valid_utf8_at(rest)) {
            out += rest.substr(0, static_cast<size_t>(n));
            rest.remove_prefix(static_cast<size_t>(n));
            continue;
        }
        const size_t begun = unfinished_utf8_at(rest);
        if (begun == rest.size()) break;
        out += replacement;
        rest.remove_prefix(begun > 0 ? begun : 1);
    }
    pending_ = std::string(rest);
    return out;
}

std::string Detokenizer::flush() {
    const bool unfinished = !pending_.empty();
    pending_.clear();
    return unfinished ? std::string(replacement) : std::string();
}

}  // namespace nibble
