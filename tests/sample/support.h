// Shared by the sampler tests: logits from probabilities, and the distribution that a chain leaves.
// Probabilities are given as numbers, so that expectations can be worked out by hand.
#pragma once

#include <cmath>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "src/sample/chain.h"

namespace nibble::testing {

// Everything off, temperature 1: the chain leaves the softmax as it is.
inline SamplerParams neutral() {
    SamplerParams p;
    p.temperature = 1;
    p.top_k = 0;
    p.top_p = 1;
    p.min_p = 0;
    return p;
}

inline SamplerParams with(std::vector<std::pair<std::string_view, std::string_view>> settings,
                          SamplerParams p = neutral()) {
    for (const auto& setting : settings) {
        CAPTURE(setting.first);
        REQUIRE(set(p, setting.first, setting.second).ok());
    }
    return p;
}

inline std::vector<float> logits_of(const std::vector<double>& probabilities) {
    std::vector<float> logits;
    for (double p : probabilities) logits.push_back(p > 0 ? static_cast<float>(std::log(p)) : -INFINITY);
    return logits;
}

inline Chain chain_of(const SamplerParams& params, size_t n_vocab, const std::vector<Token>& history = {}) {
    auto chain = Chain::create(params, n_vocab);
    REQUIRE(chain.ok());
    for (Token t : history) chain->accept(t);
    return std::move(chain).value();
}

// Token -> probability after the chain; logits must come back untouched.
inline std::map<Token, double> after(Chain& chain, std::vector<float> logits, uint64_t seed = 1) {
    const std::vector<float> before = logits;
    const auto result = chain.probabilities(logits, Rng(seed), logits.size());
    REQUIRE(result.ok());
    REQUIRE(logits == before);
    std::map<Token, double> map;
    for (const TokenProbability& p : result.value()) map[p.token] = p.probability;
    return map;
}

inline void check_distribution(const std::map<Token, double>& actual, const std::map<Token, double>& expected,
                               double tolerance = 1e-6) {
    REQUIRE(actual.size() == expected.size());
    for (const auto& entry : expected) {
        const Token token = entry.first;
        CAPTURE(token);
        REQUIRE(actual.count(token) == 1);
        CHECK(std::abs(actual.at(token) - entry.second) <= tolerance);
    }
}

inline void check_chain(const SamplerParams& params, const std::vector<double>& probabilities,
                        const std::map<Token, double>& expected, const std::vector<Token>& history = {}) {
    Chain chain = chain_of(params, probabilities.size(), history);
    check_distribution(after(chain, logits_of(probabilities)), expected);
}

}  // namespace nibble::testing
