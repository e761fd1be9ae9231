// Drafter: guesses how a text goes on, so that one step can check several tokens for little more than the
// price of one. A guess changes what a step costs and never the text: every token is drawn as without it.
// Y. Leviathan, M. Kalman, Y. Matias, "Fast Inference from Transformers via Speculative Decoding",
// arXiv:2211.17192; tokens are kept where the draw agrees with the guess, so that the seed still decides.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "ggml/base/result.h"
#include "src/sample/candidates.h"

namespace nibble {

// Of one sequence.
class Drafter {
  public:
    virtual ~Drafter() = default;
    // At most `limit` tokens, likely to follow `tokens`. Those of the call before are the beginning of them:
    // what came behind shows how good that guess was.
    virtual Result<std::vector<Token>> propose(std::span<const Token> tokens, int32_t limit) = 0;
    // How many texts a step takes further, this one among them; one unless told otherwise.
    void set_company(int32_t n_texts) { n_texts_ = n_texts; }

  protected:
    int32_t n_texts_ = 1;
};

// How likely a guess must be to be worth its row. Weights are read once for all rows of a step, so that a row
// beside others takes about a tenth of a step, and more where arithmetic is the limit; but every row attends
// to the whole text by itself.
struct Worth {
    double row = 0.15;      // share of a step that a row takes, in a short text
    double step = 0;        // that making the guess takes
    double n_tokens = 1e9;  // of which keys and values are as many bytes as the weights
    double most = 0.95;     // beyond that no guess need be sure
    // A right guess saves one text's part of a step, which is the less the more texts share it.
    double at(size_t n, int32_t n_texts = 1) const {
        const double tokens = static_cast<double>(n), texts = n_texts;
        const double share = (texts * row + step) / (1 - row + texts * row);
        return std::min(most, share + 0.7 * tokens / (tokens + n_tokens));
    }
};

// How often guesses came true, by the strength of what they stood on; the text so far decides.
class GuessOdds {
  public:
    static constexpr size_t n_strengths = 17;
    // At first: as if two guesses of each strength had been seen, the weakest right in 0.3, the strongest in
    // 0.9 of all cases.
    GuessOdds() {
        for (size_t i = 0; i < n_strengths; ++i)
            counts_[i] = {2 * (0.3 + 0.6 * static_cast<double>(i) / (n_strengths - 1)), 2};
    }

    double of(size_t strength) const { return at(strength).right / at(strength).all; }

    void learn(size_t strength, bool right) {
        Count& c = counts_[std::min(strength, n_strengths - 1)];
        if (c.all >= remembered) c.right /= 2, c.all /= 2;  // a text changes its ways
        c.right += right ? 1 : 0;
        c.all += 1;
    }

  private:
    static constexpr double remembered = 32;
    struct Count {
        double right = 0, all = 0;
    };
    const Count& at(size_t strength) const { return counts_[std::min(strength, n_strengths - 1)]; }
    std::array<Count, n_strengths> counts_;
};

// The last guess, whole, until what really came tells which of it was right.
class OpenGuess {
  public:
    struct Part {
        Token token = 0;
        size_t strength = 0;
    };
    // `behind`: of how many tokens it is the continuation.
    void begin(size_t behind) { behind_ = behind, parts_.clear(); }
    void add(Part part) { parts_.push_back(part); }
    const std::vector<Part>& parts() const { return parts_; }

    // How many were right. Only the first wrong one counts: what was guessed behind it stood on it.
    size_t settle(std::span<const Token> tokens, GuessOdds& odds) {
        size_t n = 0;
        for (bool right = true; right && n < parts_.size() && behind_ + n < tokens.size(); n += right) {
            right = parts_[n].token == tokens[behind_ + n];
            odds.learn(parts_[n].strength, right);
        }
        parts_.clear();
        return n;
    }

  private:
    size_t behind_ = 0;
    std::vector<Part> parts_;
};

// What became of a model's guesses at one text, whose strength is the probability that it gave them: how
// likely the next ones are to come true, and whether to ask for any. Where the last few were of no use, fewer
// and fewer steps have one.
class GuessRecord {
  public:
    // Whether to guess now; learns what came of the last guess.
    bool ready(std::span<const Token> tokens) {
        if (!guess_.parts().empty()) {
            const size_t right = guess_.settle(tokens, odds_);
            fruitless_ = right == 0       ? std::min(fruitless_ + 1, most_fruitless)
                         : n_drafted_ > 0 ? 0
                                          : std::max(0, fruitless_ - 1);
            pause_ = fruitless_ > 2 ? 1 << (fruitless_ - 2) : 0;
        }
        if (pause_ == 0) return true;
        --pause_;
        return false;
    }

    void begin(size_t behind) { guess_.begin(behind), likely_ = 1, n_drafted_ = 0; }
    void give_up() { pause_ = std::numeric_limits<int32_t>::max(); }

    // Whether the guess is worth going on with this token.
    bool add(Token token, double probability, double worth) {
        const auto strength = static_cast<size_t>(probability * (GuessOdds::n_strengths - 1));
        guess_.add({token, strength});
        likely_ *= odds_.of(strength);
        const bool goes_on = likely_ >= worth;
        n_drafted_ += goes_on ? 1 : 0;
        return goes_on;
    }

  private:
    static constexpr int32_t most_fruitless = 5;  // that are counted: then eight steps of nine have no guess
    GuessOdds odds_;
    OpenGuess guess_;
    double likely_ = 1;      // that all of the guess comes true
    size_t n_drafted_ = 0;   // of the guess, what was proposed
    int32_t fruitless_ = 0;  // guesses of late that were of no use
    int32_t pause_ = 0;      // steps without a guess, after those
};

}  // namespace nibble
