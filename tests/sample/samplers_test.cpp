// Each sampler against probabilities worked out by hand.
// The tolerance of 1e-6 is that of logits in float; the weights themselves are exact to 6e-14.
#include "tests/sample/support.h"

using namespace nibble;
using namespace nibble::testing;

namespace {
const std::vector<double> five = {0.4, 0.3, 0.15, 0.1, 0.05};
}

TEST_CASE("a neutral chain leaves the softmax alone") {
    check_chain(neutral(), five, {{0, .4}, {1, .3}, {2, .15}, {3, .1}, {4, .05}});
    CHECK(chain_of(neutral(), 5).describe() == "");
}

TEST_CASE("temperature") {
    // T = 0.5 squares: 16, 9, 2.25, 1, 0.25 of 28.5
    check_chain(with({{"temp", "0.5"}}), five,
                {{0, 16 / 28.5}, {1, 9 / 28.5}, {2, 2.25 / 28.5}, {3, 1 / 28.5}, {4, .25 / 28.5}});
    // T = 2 takes roots: 0.64 : 0.36 -> 0.8 : 0.6
    check_chain(with({{"temp", "2"}}), {.64, .36}, {{0, .8 / 1.4}, {1, .6 / 1.4}});
    // As small as it gets without being 0.
    check_chain(with({{"temp", "1e-30"}}), five, {{0, 1}, {1, 0}, {2, 0}, {3, 0}, {4, 0}});
}

TEST_CASE("dynamic temperature") {
    // Uniform over 4: the entropy is maximal, so T = temp + range; uniform stays uniform.
    check_chain(with({{"dynatemp_range", "0.5"}}), {.25, .25, .25, .25},
                {{0, .25}, {1, .25}, {2, .25}, {3, .25}});
    // Two tokens 0.9 : 0.1: H = 0.325083, H / ln 2 = 0.468996, T = 0.5 + 1 * 0.468996 = 0.968996;
    // with exponent 2, T = 0.5 + 0.468996^2 = 0.719957.
    const auto expected = [](double t) {
        const double a = std::pow(.9, 1 / t), b = std::pow(.1, 1 / t);
        return std::map<Token, double>{{0, a / (a + b)}, {1, b / (a + b)}};
    };
    const double h = -(.9 * std::log(.9) + .1 * std::log(.1)) / std::log(2.0);
    CHECK(std::abs(h - 0.468996) < 1e-6);
    check_chain(with({{"dynatemp_range", "0.5"}}), {.9, .1}, expected(.5 + h));
    check_chain(with({{"dynatemp_range", "0.5"}, {"dynatemp_exponent", "2"}}), {.9, .1},
                expected(.5 + h * h));
    // The lower end is cut at 0: one certain token has entropy 0, hence T = 0, and stays alone.
    check_chain(with({{"dynatemp_range", "3"}}), {1, 0}, {{0, 1}});
}

TEST_CASE("top-k") {
    check_chain(with({{"top_k", "2"}}), five, {{0, .4 / .7}, {1, .3 / .7}});
    check_chain(with({{"top_k", "1"}}), five, {{0, 1}});
    check_chain(with({{"top_k", "99"}}), five, {{0, .4}, {1, .3}, {2, .15}, {3, .1}, {4, .05}});
    // Ties at the border go to the lower ids.
    check_chain(with({{"top_k", "2"}}), {.2, .2, .2, .2, .2}, {{0, .5}, {1, .5}});
}

TEST_CASE("top-p") {
    check_chain(with({{"top_p", "0.69"}}), five, {{0, .4 / .7}, {1, .3 / .7}});
    check_chain(with({{"top_p", "0.71"}}), five, {{0, .4 / .85}, {1, .3 / .85}, {2, .15 / .85}});
    check_chain(with({{"top_p", "0.39"}}), five, {{0, 1}});
    check_chain(with({{"top_p", "0"}}), five, {{0, 1}});
}

TEST_CASE("min-p") {
    check_chain(with({{"min_p", "0.3"}}), five, {{0, .4 / .85}, {1, .3 / .85}, {2, .15 / .85}});
    check_chain(with({{"min_p", "1"}}), five, {{0, 1}});
    check_chain(with({{"min_p", "1"}}), {.3, .1, .3, .3}, {{0, 1 / 3.}, {2, 1 / 3.}, {3, 1 / 3.}});
}

TEST_CASE("typical") {
    // H = 1.3927. Surprises .916 1.204 1.897 2.303 2.996; distances .476 .189 .504 .910 1.603: order 1 0 2
    // 3 4.
    check_chain(with({{"typical_p", "0.25"}}), five, {{1, 1}});
    check_chain(with({{"typical_p", "0.6"}}), five, {{0, .4 / .7}, {1, .3 / .7}});
    check_chain(with({{"typical_p", "0.8"}}), five, {{0, .4 / .85}, {1, .3 / .85}, {2, .15 / .85}});
    check_chain(with({{"typical_p", "0"}}), five, {{1, 1}});
}

TEST_CASE("top-n-sigma") {
    // Logits 3 1 1 -1: mean 1, variance (4 + 0 + 0 + 4) / 4 = 2, sigma 1.4142. max - 1.4 sigma = 1.02,
    // max - 1.5 sigma = 0.879.
    const std::vector<float> logits = {1, 3, 1, -1};
    Chain narrow = chain_of(with({{"top_n_sigma", "1.4"}}), 4);
    check_distribution(after(narrow, logits), {{1, 1}});
    Chain wide = chain_of(with({{"top_n_sigma", "1.5"}}), 4);
    const double sum = std::exp(3) + 2 * std::exp(1);
    check_distribution(after(wide, logits),
                       {{0, std::exp(1) / sum}, {1, std::exp(3) / sum}, {2, std::exp(1) / sum}});
    // Banned tokens do not count for sigma; after another truncation only the rest counts.
    Chain banned = chain_of(with({{"top_n_sigma", "1.5"}}), 6);
    CHECK(after(banned, {1, 3, 1, -1, -INFINITY, -INFINITY}).size() == 3);
    // 3 1 1 alone: mean 5/3, sigma 0.9428; max - 1.5 sigma = 1.586.
    Chain later =
        chain_of(with({{"top_n_sigma", "1.5"}, {"top_k", "3"}, {"samplers", "top_k,top_n_sigma"}}), 4);
    check_distribution(after(later, logits), {{1, 1}});
}

TEST_CASE("xtc") {
    // All with p >= 0.14 but the last of them go.
    check_chain(with({{"xtc_probability", "1"}, {"xtc_threshold", "0.14"}}), five,
                {{2, .15 / .3}, {3, .1 / .3}, {4, .05 / .3}});
    // Only one top choice: nothing happens. None: nothing happens.
    const std::map<Token, double> all = {{0, .4}, {1, .3}, {2, .15}, {3, .1}, {4, .05}};
    check_chain(with({{"xtc_probability", "1"}, {"xtc_threshold", "0.35"}}), five, all);
    check_chain(with({{"xtc_probability", "1"}, {"xtc_threshold", "0.9"}}), five, all);
    // Equal probabilities: the one with the highest id is last.
    check_chain(with({{"xtc_probability", "1"}, {"xtc_threshold", "0.2"}}), {.25, .25, .25, .25}, {{3, 1}});
    // After a sorted selection as well as before.
    check_chain(with({{"xtc_probability", "1"}, {"xtc_threshold", "0.14"}, {"top_k", "4"}}), five,
                {{2, .15 / .25}, {3, .1 / .25}});
}

TEST_CASE("xtc acts in its share of the steps, and does not disturb the pick") {
    Chain chain = chain_of(with({{"xtc_probability", "0.3"}}), 5);
    std::vector<float> logits = logits_of(five);
    int acted = 0;
    constexpr int n = 10000;
    Rng rng(7);
    for (int i = 0; i < n; ++i, rng.next_step()) acted += chain.probabilities(logits, rng, 5)->size() < 5;
    CHECK(std::abs(acted - 0.3 * n) < 4 * std::sqrt(n * .3 * .7));
}

TEST_CASE("repetition, frequency and presence penalties") {
    const std::vector<float> logits = {2, -1, 1, 0};
    const auto expect = [&](const SamplerParams& p, const std::vector<Token>& history,
                            const std::vector<double>& edited) {
        Chain chain = chain_of(p, 4, history);
        double sum = 0;
        for (double l : edited) sum += std::exp(l);
        std::map<Token, double> expected;
        for (size_t i = 0; i < 4; ++i) expected[static_cast<Token>(i)] = std::exp(edited[i]) / sum;
        check_distribution(after(chain, logits), expected);
    };
    expect(with({{"repeat_penalty", "2"}}), {0, 1, 3, 3}, {1, -2, 1, 0});
    expect(with({{"frequency_penalty", "0.5"}}), {0, 0, 0, 1}, {0.5, -1.5, 1, 0});
    expect(with({{"presence_penalty", "0.5"}}), {0, 0, 0, 1}, {1.5, -1.5, 1, 0});
    expect(with({{"repeat_penalty", "2"}, {"frequency_penalty", "0.5"}, {"presence_penalty", "0.25"}}),
           {0, 0}, {2 / 2. - 1 - .25, -1, 1, 0});
    // The window moves; a token counts as often as it is in it.
    expect(with({{"frequency_penalty", "0.5"}, {"repeat_last_n", "2"}}), {0, 0, 0, 1}, {1.5, -1.5, 1, 0});
    expect(with({{"frequency_penalty", "0.5"}, {"repeat_last_n", "1"}}), {0, 0, 0, 1}, {2, -1.5, 1, 0});
    expect(with({{"frequency_penalty", "0.5"}, {"repeat_last_n", "0"}}), {0, 0, 0, 1}, {2, -1, 1, 0});
    expect(with({{"frequency_penalty", "0.5"}, {"repeat_last_n", "-1"}}), std::vector<Token>(100, 2),
           {2, -1, -49, 0});
    // Tokens outside the vocabulary are nobody's.
    expect(with({{"presence_penalty", "1"}}), {-1, 4, 1000}, {2, -1, 1, 0});
}

TEST_CASE("logit bias") {
    // ln 2 doubles a token, -inf bans it, two biases add up.
    check_chain(with({{"logit_bias", "1:0.6931471805599453"}}), {.5, .25, .25}, {{0, .4}, {1, .4}, {2, .2}});
    check_chain(with({{"logit_bias", "0:-inf"}}), {.5, .25, .25}, {{1, .5}, {2, .5}});
    check_chain(with({{"logit_bias", "0:5,0:-5"}}), {.5, .25, .25}, {{0, .5}, {1, .25}, {2, .25}});
    // After a selection it still finds its tokens, and the order is established again.
    Chain late =
        chain_of(with({{"logit_bias", "2:10,1:-inf"}, {"top_k", "3"}, {"samplers", "top_k,logit_bias"}}), 4);
    std::vector<float> logits = logits_of({.4, .3, .2, .1});
    const auto result = late.probabilities(logits, Rng(1), 1);
    REQUIRE(result.ok());
    CHECK(result.value()[0].token == 2);
}

TEST_CASE("DRY") {
    // Uniform over 6 tokens: the penalty of a token shows as p / p_unpenalized = exp(-penalty).
    const auto penalties = [](const SamplerParams& p, const std::vector<Token>& history) {
        Chain chain = chain_of(p, 6, history);
        const auto map = after(chain, std::vector<float>(6, 0.f));
        double best = 0;
        for (const auto& [token, probability] : map) best = std::max(best, probability);
        std::map<Token, double> result;
        for (const auto& [token, probability] : map) {
            const double penalty = -std::log(probability / best);
            if (penalty > 1e-6) result[token] = penalty;
        }
        return result;
    };
    SamplerParams p = with({{"dry_multiplier", "1"}, {"dry_base", "2"}, {"dry_allowed_length", "2"}});
    // 0 1 2 3 | 0 1 2: three tokens repeated, 3 would be the fourth: 1 * 2^(3-2).
    check_distribution(penalties(p, {0, 1, 2, 3, 0, 1, 2}), {{3, 2}});
    // Two repeated: 2^0. One repeated: shorter than allowed.
    check_distribution(penalties(p, {4, 1, 2, 3, 0, 1, 2}), {{3, 1}});
    check_distribution(penalties(p, {4, 5, 2, 3, 0, 1, 2}), {});
    // Two continuations of different lengths, and the longest match counts for each.
    check_distribution(penalties(p, {0, 1, 2, 3, 1, 2, 4, 5, 1, 2, 3, 0, 1, 2}), {{3, 2}, {4, 1}});
    // A loop overlaps itself: 5 5 5 5, matches of 3, 2, 1 for token 5.
    check_distribution(penalties(p, {5, 5, 5, 5}), {{5, 2}});
    check_distribution(penalties(p, {0, 1, 0, 1, 0}), {{1, 2}});
    // A breaker ends the match, and is never penalized itself.
    p.dry_breaker_tokens = {1};
    check_distribution(penalties(p, {0, 1, 2, 3, 0, 1, 2}), {});
    p.dry_breaker_tokens = {0};
    check_distribution(penalties(p, {0, 1, 2, 3, 0, 1, 2}), {{3, 1}});
    p.dry_breaker_tokens = {3};
    check_distribution(penalties(p, {0, 1, 2, 3, 0, 1, 2}), {});
    p.dry_breaker_tokens = {2};
    check_distribution(penalties(p, {0, 1, 2, 3, 0, 1, 2}), {});
    // The window hides what is further back.
    p.dry_breaker_tokens = {};
    p.dry_penalty_last_n = 6;
    check_distribution(penalties(p, {0, 1, 2, 3, 0, 1, 2}), {{3, 1}});
    p.dry_penalty_last_n = 3;
    check_distribution(penalties(p, {0, 1, 2, 3, 0, 1, 2}), {});
}

TEST_CASE("DRY's penalty grows without bound but never makes a NaN") {
    SamplerParams p = with({{"dry_multiplier", "100"}, {"dry_base", "10"}});
    Chain chain = chain_of(p, 2, std::vector<Token>(5000, 1));
    check_distribution(after(chain, {0, 50}), {{0, 1}, {1, 0}});
}

TEST_CASE("DRY agrees with a search that tries every place") {
    SamplerParams p = with({{"dry_multiplier", "0.1"}, {"dry_base", "1.1"}, {"dry_allowed_length", "1"}});
    p.dry_breaker_tokens = {3};
    uint32_t state = 5;
    for (int round = 0; round < 300; ++round) {
        CAPTURE(round);
        std::vector<Token> h;
        for (int i = 0; i < 2 + round % 40; ++i) {
            state = state * 1664525u + 1013904223u;
            h.push_back(static_cast<Token>((state >> 20) % (round % 2 ? 4 : 3)));
        }
        std::map<Token, size_t> longest;
        for (size_t i = 0; i + 1 < h.size(); ++i) {  // h[i] would be the end of the earlier occurrence
            size_t n = 0;
            while (n <= i && h[i - n] == h[h.size() - 1 - n] && h[i - n] != 3) ++n;
            if (n >= 1 && h[i + 1] != 3) longest[h[i + 1]] = std::max(longest[h[i + 1]], n);
        }
        double sum = 0;
        std::map<Token, double> expected;
        for (Token t = 0; t < 5; ++t) {
            const double penalty = longest.count(t) ? 0.1 * std::pow(1.1, double(longest[t] - 1)) : 0;
            sum += expected[t] = std::exp(-penalty);
        }
        for (auto& [token, e] : expected) e /= sum;
        Chain chain = chain_of(p, 5, h);
        check_distribution(after(chain, std::vector<float>(5, 0.f)), expected);
    }
}

TEST_CASE("mirostat 2") {
    // tau 1: mu starts at 2 bits, so p >= 0.25 stays.
    SamplerParams p = with({{"mirostat", "2"}, {"mirostat_tau", "1"}, {"mirostat_eta", "0.5"}});
    Chain chain = chain_of(p, 5);
    check_distribution(after(chain, logits_of(five)), {{0, .4 / .7}, {1, .3 / .7}});
    // Token 1 has a surprise of -log2 0.3 = 1.737 bits: mu = 2 - 0.5 * 0.737 = 1.6315, p >= 0.3227 stays.
    chain.accept(1);
    check_distribution(after(chain, logits_of(five)), {{0, 1}});
    // Token 0: 1.3219 bits, mu = 1.6315 - 0.5 * 0.3219 = 1.4706, p >= 0.3608 stays.
    chain.accept(0);
    check_distribution(after(chain, logits_of({.365, .362, .273, 0, 0})),
                       {{0, .365 / .727}, {1, .362 / .727}});
    check_distribution(after(chain, logits_of({.365, .360, .275, 0, 0})), {{0, 1}});
    check_distribution(after(chain, logits_of({.2, .2, .2, .21, .19})), {{3, 1}});  // the best in any case
    chain.reset();
    check_distribution(after(chain, logits_of(five)), {{0, .4 / .7}, {1, .3 / .7}});
    chain.accept(4);  // not offered: mu stays
    check_distribution(after(chain, logits_of(five)), {{0, .4 / .7}, {1, .3 / .7}});
    // The truncating links give way; temperature comes before.
    SamplerParams both = p;
    both.top_k = 1;
    both.temperature = 0.5;
    CHECK(chain_of(both, 5).describe() ==
          "temperature(0.5, dynatemp_range=0, dynatemp_exponent=1) > "
          "mirostat(2, mirostat_tau=1, mirostat_eta=0.5)");
}
