// Detokenizer: keeps back the beginning of a character until the rest of it arrives.
// Never more than three bytes wait.
#include "src/text/detokenizer.h"

#include "src/text/utf8.h"

namespace nibble {
namespace {

constexpr std::string_view replacement = "\xEF\xBF\xBD";

// Whether s could still grow into a valid character.
bool may_continue(std::string_view s) {
    const int n = utf8_length(static_cast<unsigned char>(s[0]));
    if (static_cast<size_t>(n) <= s.size()) return false;
    for (const char c : s.substr(1))
        if ((static_cast<unsigned char>(c) & 0xC0) != 0x80) return false;
    return true;
}

}  // namespace

std::string Detokenizer::push(Token token) {
    if (tokenizer_->is_control(token)) return {};
    pending_ += tokenizer_->piece(token);
    std::string out;
    std::string_view rest = pending_;
    while (!rest.empty()) {
        const int n = valid_utf8_at(rest);
        if (n > 0) {
            out += rest.substr(0, static_cast<size_t>(n));
            rest.remove_prefix(static_cast<size_t>(n));
        } else if (may_continue(rest)) {
            break;
        } else {
            out += replacement;
            rest.remove_prefix(1);
        }
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
