// The step of a beam search and the score of answers, against plain enumeration.
// The engine's own search is held to the same in tests/engine/choice_test.cpp.
#include "src/sample/beam_search.h"

#include <algorithm>
#include <cmath>
#include <map>

#include <doctest/doctest.h>

using namespace nibble;

namespace {

// A made-up model of four tokens: the distribution depends on the last two.
std::vector<TokenLogprob> model(std::span<const Token> tokens) {
    uint32_t h = 12345;
    for (size_t i = tokens.size() > 2 ? tokens.size() - 2 : 0; i < tokens.size(); ++i)
        h = h * 1664525u + static_cast<uint32_t>(tokens[i]) + 1013904223u;
    std::vector<double> weights;
    double sum = 0;
    for (int t = 0; t < 4; ++t) {
        h = h * 1664525u + 1013904223u;
        sum += weights.emplace_back(0.01 + (h >> 8) % 1000);
    }
    std::vector<TokenLogprob> next;
    for (Token t = 0; t < 4; ++t) next.push_back({t, std::log(weights[static_cast<size_t>(t)] / sum)});
    return next;
}

struct Text {
    std::vector<Token> tokens;
    double logprob = 0;
};

// The best texts of `depth` tokens that a search with so many beams finds, best first.
std::vector<Text> search(size_t width, int depth) {
    std::vector<Text> beams(1);
    for (int step = 0; step < depth; ++step) {
        std::vector<double> logprobs;
        std::vector<std::vector<TokenLogprob>> next;
        for (const Text& b : beams) {
            logprobs.push_back(b.logprob);
            next.push_back(model(b.tokens));
        }
        std::vector<Text> longer;
        for (const Continuation& c : best_continuations(logprobs, next, width)) {
            longer.push_back({beams[c.beam].tokens, c.logprob});
            longer.back().tokens.push_back(c.token);
        }
        beams = std::move(longer);
    }
    return beams;
}

std::vector<Text> all_texts(int depth) {
    std::vector<Text> all(1);
    for (int step = 0; step < depth; ++step) {
        std::vector<Text> longer;
        for (const Text& t : all)
            for (const TokenLogprob& n : model(t.tokens)) {
                longer.push_back({t.tokens, t.logprob + n.logprob});
                longer.back().tokens.push_back(n.token);
            }
        all = std::move(longer);
    }
    std::ranges::stable_sort(all, std::greater(), &Text::logprob);
    return all;
}

}  // namespace

TEST_CASE("beams: with a width of all continuations the search is exhaustive, with less it is never better") {
    const std::vector<Text> all = all_texts(5);
    REQUIRE(all.size() == 1024);
    const std::vector<Text> found = search(1024, 5);
    REQUIRE(found.size() == 1024);
    for (size_t i = 0; i < all.size(); ++i) CHECK(found[i].logprob == doctest::Approx(all[i].logprob));
    CHECK(found[0].tokens == all[0].tokens);
    bool ever_worse = false;
    for (const size_t width : {1, 2, 3, 8, 64}) {
        const std::vector<Text> some = search(width, 5);
        CHECK(some.size() == width);
        CHECK(std::ranges::is_sorted(some, std::greater(), &Text::logprob));
        for (size_t i = 0; i < width; ++i) CHECK(some[i].logprob <= all[i].logprob + 1e-12);
        ever_worse |= some[0].logprob < all[0].logprob - 1e-9;
    }
    CHECK(ever_worse);  // else these texts would show nothing
}

TEST_CASE("beams: one beam is the greedy text; equal ones are ordered by beam, then by token") {
    Text greedy;
    for (int i = 0; i < 5; ++i) {
        const std::vector<TokenLogprob> next = model(greedy.tokens);
        greedy.tokens.push_back(std::ranges::max_element(next, {}, &TokenLogprob::logprob)->token);
    }
    CHECK(search(1, 5)[0].tokens == greedy.tokens);

    const std::vector<double> logprobs = {-1, -1};
    const std::vector<std::vector<TokenLogprob>> next = {{{7, -2}, {3, -2}}, {{1, -2}, {9, -1}}};
    const auto order = best_continuations(logprobs, next, 4);
    REQUIRE(order.size() == 4);
    CHECK((order[0].beam == 1 && order[0].token == 9 && order[0].logprob == -2));
    CHECK((order[1].beam == 0 && order[1].token == 3));
    CHECK((order[2].beam == 0 && order[2].token == 7 && order[2].token_logprob == -2));
    CHECK((order[3].beam == 1 && order[3].token == 1));
    CHECK(best_continuations(logprobs, next, 2).size() == 2);
    CHECK(best_continuations({}, {}, 2).empty());
}

TEST_CASE("the score of an answer: probability, mean, and what lies between and beyond") {
    CHECK(answer_score(-6, 4, 0) == -6);
    CHECK(answer_score(-6, 4, 1) == -1.5);
    CHECK(answer_score(-6, 4, 0.5) == -3);
    CHECK(answer_score(-6, 4, 2) == -0.375);
    CHECK(answer_score(0, 0, 1) == 0);
    CHECK(answer_score(-6, 4, 0) < answer_score(-5, 2, 0));  // a short answer wins by probability
    CHECK(answer_score(-6, 4, 1) > answer_score(-5, 2, 1));  // a long one by the mean
}
