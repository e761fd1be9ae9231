// The search is bounded, so that a text of one token repeated costs no more than another.
// A match that reaches the end of the text goes on with what it has itself guessed, as periods do.
#include "src/engine/lookup_drafter.h"

namespace nibble {
namespace {

constexpr size_t shortest_match = 2, longest_match = GuessOdds::n_strengths - 1;
constexpr int most_places = 64;  // that are compared

uint64_t pair(Token a, Token b) {
    return static_cast<uint64_t>(static_cast<uint32_t>(a)) << 32 | static_cast<uint32_t>(b);
}

}  // namespace

// Of all tokens but the last, which would find itself.
void LookupDrafter::index(std::span<const Token> tokens) {
    if (earlier_.empty()) latest_.reserve(tokens.size());
    while (earlier_.size() + 1 < tokens.size()) {
        const size_t i = earlier_.size();
        earlier_.push_back(-1);
        if (i == 0) continue;
        const auto [place, is_new] = latest_.try_emplace(pair(tokens[i - 1], tokens[i]), -1);
        earlier_.back() = place->second;
        place->second = static_cast<int32_t>(i);
    }
}

LookupDrafter::Match LookupDrafter::longest(std::span<const Token> tokens) const {
    const size_t n = tokens.size();
    Match best;
    if (n <= shortest_match) return best;
    const auto first = latest_.find(pair(tokens[n - 2], tokens[n - 1]));
    int32_t place = first == latest_.end() ? -1 : first->second;
    for (int i = 0; place >= 0 && i < most_places && best.length < longest_match; ++i) {
        const auto end = static_cast<size_t>(place) + 1;
        size_t length = shortest_match;  // a pair is equal to itself
        while (length < std::min(longest_match, end) && tokens[end - 1 - length] == tokens[n - 1 - length])
            ++length;
        if (length > best.length) best = {end, length};
        place = earlier_[static_cast<size_t>(place)];
    }
    return best;
}

Result<std::vector<Token>> LookupDrafter::propose(std::span<const Token> tokens, int32_t limit) {
    guess_.settle(tokens, odds_);
    index(tokens);
    guess_.begin(tokens.size());
    std::vector<Token> draft;
    const Match match = longest(tokens);
    if (match.length == 0) return draft;
    const auto guessed = [&](size_t i) {
        const size_t at = match.next + i;
        return at < tokens.size() ? tokens[at] : guess_.parts()[at - tokens.size()].token;
    };
    // The first is guessed in any case: whether it would have been right is learned for nothing.
    guess_.add({guessed(0), match.length});
    double likely = odds_.of(match.length);
    while (static_cast<int32_t>(draft.size()) < limit && likely >= worth_.at(tokens.size(), n_texts_)) {
        draft.push_back(guess_.parts().back().token);
        const size_t i = draft.size(), strength = match.length + i;
        likely *= odds_.of(strength);
        guess_.add({guessed(i), strength});
    }
    return draft;
}

}  // namespace nibble
