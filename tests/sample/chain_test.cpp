// The chain as a whole: drawing, greedy decoding, order, edge cases, constraints, state.
// Statistical tests use fixed seeds and bounds that a right implementation passes for nearly every seed.
#include <algorithm>
#include <chrono>
#include <limits>

#include "tests/sample/support.h"

using namespace nibble;
using namespace nibble::testing;

namespace {

Token pick(Chain& chain, std::vector<float> logits, Rng& rng, TokenFilter* filter = nullptr) {
    const std::vector<float> before = logits;
    const auto token = chain.pick(logits, rng, filter);
    REQUIRE(token.ok());
    REQUIRE(logits == before);
    return *token;
}

// Chi-squared of n draws against the distribution that the chain says it draws from.
double chi_squared(Chain& chain, const std::vector<float>& logits, int n, uint64_t seed, size_t& n_outcomes) {
    const auto expected = after(chain, logits);
    std::map<Token, int> counts;
    Rng rng(seed);
    for (int i = 0; i < n; ++i) ++counts[pick(chain, logits, rng)];
    double sum = 0;
    n_outcomes = expected.size();
    for (const auto& [token, count] : counts) REQUIRE(expected.count(token) == 1);
    for (const auto& [token, p] : expected) {
        REQUIRE(p * n > 5);
        sum += std::pow(counts[token] - p * n, 2) / (p * n);
    }
    return sum;
}

class Allow final : public TokenFilter {
  public:
    explicit Allow(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}
    bool allows(Token token) override { return std::ranges::find(tokens_, token) != tokens_.end(); }
    void mask(std::span<float> logits) override {
        ++n_masks;
        for (size_t i = 0; i < logits.size(); ++i)
            if (!allows(static_cast<Token>(i))) logits[i] = -INFINITY;
    }
    int n_masks = 0;

  private:
    std::vector<Token> tokens_;
};

std::vector<float> random_logits(size_t n, uint64_t seed) {
    // Sums of uniforms: roughly normal with deviation 3, like the logits of a model.
    std::vector<float> logits(n);
    Rng rng(seed);
    for (float& l : logits) {
        double sum = -6;
        for (uint32_t i = 0; i < 12; ++i) sum += rng.uniform(RngLane{i});
        l = static_cast<float>(3 * sum);
        rng.next_step();
    }
    return logits;
}

}  // namespace

TEST_CASE("draws follow the distribution (chi-squared)") {
    const std::vector<float> logits = logits_of({.05, .3, .15, .1, .4});
    const std::vector<std::vector<std::pair<std::string_view, std::string_view>>> settings = {
        {},
        {{"temp", "0.7"}},
        {{"temp", "1.5"}, {"top_p", "0.9"}},
        {{"top_k", "4"}, {"min_p", "0.2"}},
        {{"typical_p", "0.9"}},
        {{"top_n_sigma", "1"}, {"temp", "2"}},
        {{"dynatemp_range", "0.5"}},
        {{"mirostat", "2"}, {"mirostat_tau", "2"}},
        {{"presence_penalty", "0.3"}},
    };
    // 99.99 % points of chi-squared for 1 to 4 degrees of freedom.
    const double limit[] = {0, 15.14, 18.42, 21.11, 23.51};
    for (size_t i = 0; i < settings.size(); ++i) {
        CAPTURE(i);
        Chain chain = chain_of(with(settings[i]), 5, {1, 2});
        size_t n_outcomes = 0;
        const double x = chi_squared(chain, logits, 20000, 1000 + i, n_outcomes);
        REQUIRE(n_outcomes >= 2);
        CHECK(x < limit[n_outcomes - 1]);
        CHECK(x > 1e-4);  // too good would mean that the draws are not random
    }
}

TEST_CASE("draws from a long list reach the tail in the right proportion") {
    // 4096 equal tokens, no truncation: uniform over ids. 16 bins, 15 degrees of freedom, 99.99 %: 44.3.
    Chain chain = chain_of(neutral(), 4096);
    std::vector<float> logits(4096, 1.5f);
    std::vector<int> bins(16, 0);
    Rng rng(3);
    constexpr int n = 8000;
    for (int i = 0; i < n; ++i) ++bins[static_cast<size_t>(*chain.pick(logits, rng) / 256)];
    double x = 0;
    for (int b : bins) x += std::pow(b - n / 16., 2) / (n / 16.);
    CHECK(x < 44.3);
}

TEST_CASE("a seed reproduces the picks; streams, steps and seeds differ") {
    Chain chain = chain_of(SamplerParams{}, 1000);
    const std::vector<float> logits = random_logits(1000, 1);
    const auto text = [&](Rng rng, uint32_t from = 0) {
        rng.seek(from);
        std::vector<Token> tokens;
        for (int i = 0; i < 20; ++i) tokens.push_back(pick(chain, logits, rng));
        return tokens;
    };
    CHECK(text(Rng(5)) == text(Rng(5)));
    CHECK(text(Rng(5)) != text(Rng(6)));
    CHECK(text(Rng(5, 1)) != text(Rng(5, 2)));
    const auto whole = text(Rng(5)), later = text(Rng(5), 7);
    CHECK(std::equal(whole.begin() + 7, whole.end(), later.begin()));
    // Pinned: any compiler and machine must give these.
    std::string text_of_5;
    for (Token t : whole) text_of_5 += std::to_string(t) + " ";
    CHECK(text_of_5 == "884 160 57 245 214 214 933 612 989 893 214 884 893 17 929 160 929 989 929 57 ");
}

TEST_CASE("a truncation that removes nothing does not change the picks") {
    const std::vector<float> logits = random_logits(2000, 2);
    Chain plain = chain_of(neutral(), 2000);
    Chain wide = chain_of(with({{"top_k", "1999"}, {"min_p", "1e-12"}, {"samplers", "min_p,top_k"}}), 2000);
    Chain xtc = chain_of(with({{"xtc_probability", "1"}, {"xtc_threshold", "0.9"}}), 2000);
    Rng a(11), b(11), c(11);
    for (int i = 0; i < 50; ++i) {
        const Token token = pick(plain, logits, a);
        CHECK(pick(wide, logits, b) == token);
        CHECK(pick(xtc, logits, c) == token);
    }
}

TEST_CASE("temperature 0 is the best token after the edits, the lowest id on ties") {
    Rng rng(1);
    SamplerParams p = with({{"temp", "0"}});
    Chain chain = chain_of(p, 300);
    std::vector<float> logits(300, -2.f);
    CHECK(pick(chain, logits, rng) == 0);
    logits[299] = logits[131] = logits[130] = 1;
    CHECK(pick(chain, logits, rng) == 130);
    CHECK(chain.describe() == "greedy");
    // Nothing that truncates or draws can contradict it; edits do.
    p = with({{"temp", "0"},
              {"xtc_probability", "1"},
              {"typical_p", "0.01"},
              {"mirostat", "2"},
              {"presence_penalty", "5"},
              {"logit_bias", "131:-1"},
              {"dynatemp_range", "1"}});
    Chain edited = chain_of(p, 300, {130});
    CHECK(pick(edited, logits, rng) == 299);
    CHECK(edited.probabilities(logits, rng, 10)->at(0).probability == 1);
    // Negative and positive zero are equal logits.
    CHECK(pick(chain, std::vector<float>(300, -0.f), rng) == 0);
    std::vector<float> zeros(300, -0.f);
    zeros[200] = 0.f;
    CHECK(pick(chain, zeros, rng) == 0);
}

TEST_CASE("the order of the links is the one asked for") {
    // top-k 2 then top-p 0.6 of the renormalized (.571, .429): both stay. top-p 0.6 first: .4 + .3, both
    // stay; with 0.5 the first order keeps one token, the second keeps two.
    const std::vector<double> five = {0.4, 0.3, 0.15, 0.1, 0.05};
    check_chain(with({{"top_k", "2"}, {"top_p", "0.5"}, {"samplers", "top_k,top_p"}}), five, {{0, 1}});
    check_chain(with({{"top_k", "2"}, {"top_p", "0.5"}, {"samplers", "top_p; top_k"}}), five,
                {{0, .4 / .7}, {1, .3 / .7}});
    // Temperature before min-p flattens first: ratios 1 .866 .612 .5 .354.
    check_chain(with({{"temp", "2"}, {"min_p", "0.6"}, {"samplers", "min_p,temperature"}}), five,
                {{0, 1 / (1 + std::sqrt(.75))}, {1, std::sqrt(.75) / (1 + std::sqrt(.75))}});
    Chain chain = chain_of(with({{"temp", "2"}, {"min_p", "0.6"}, {"samplers", "temperature,min_p"}}), 5);
    CHECK(after(chain, logits_of(five)).size() == 3);
    CHECK(chain.describe() == "temperature(2, dynatemp_range=0, dynatemp_exponent=1) > min_p(0.6)");
    CHECK(chain_of(SamplerParams{}, 5).describe() ==
          "top_k(40) > top_p(0.95) > min_p(0.05) > temperature(0.8, dynatemp_range=0, dynatemp_exponent=1)");
    // Without temperature in the list its value means nothing, 0 included.
    check_chain(with({{"temp", "0"}, {"samplers", ""}}), five,
                {{0, .4}, {1, .3}, {2, .15}, {3, .1}, {4, .05}});
}

TEST_CASE("logits without a distribution end as an error that names the token") {
    Chain chain = chain_of(SamplerParams{}, 200);
    Rng rng(1);
    std::vector<float> logits(200, 0.f);
    for (float bad : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::quiet_NaN()}) {
        logits[150] = bad;
        const auto r = chain.pick(logits, rng);
        REQUIRE(!r);
        CHECK(r.error().what == "the logit of token 150 of 200 is NaN");
    }
    logits[150] = INFINITY;
    REQUIRE(!chain.pick(logits, rng));
    CHECK(chain.pick(logits, rng).error().what == "the logit of token 150 of 200 is infinite");
    std::vector<float> none(200, -INFINITY);
    CHECK(chain.pick(none, rng).error().what == "all 200 logits are -inf: there is nothing to pick");
    CHECK(!chain.pick(std::span(logits).first(199), rng));
    CHECK(rng.step() == 0);  // a pick that failed used nothing up
    none[77] = -1e30f;
    CHECK(pick(chain, none, rng) == 77);
    // Extreme but finite values.
    std::vector<float> extreme(200, std::numeric_limits<float>::lowest());
    extreme[9] = std::numeric_limits<float>::max();
    CHECK(pick(chain, extreme, rng) == 9);
}

TEST_CASE("-inf is never picked, by any link") {
    std::vector<float> logits(500, -INFINITY);
    for (size_t i : {3u, 140u, 141u, 499u}) logits[i] = static_cast<float>(i) / 500;
    for (const char* order :
         {"", "top_k", "top_p", "typical", "top_n_sigma", "xtc", "temperature", "mirostat"}) {
        CAPTURE(order);
        SamplerParams p = with({{"top_k", "100"},
                                {"top_p", "0.999"},
                                {"typical_p", "0.999"},
                                {"temp", "5"},
                                {"top_n_sigma", "50"},
                                {"xtc_probability", "0.5"},
                                {"samplers", order},
                                {"mirostat", std::string_view(order) == "mirostat" ? "2" : "0"}});
        Chain chain = chain_of(p, 500);
        Rng rng(4);
        for (int i = 0; i < 100; ++i)
            CHECK(logits[static_cast<size_t>(pick(chain, logits, rng))] > -INFINITY);
    }
}

TEST_CASE("equal logits, a vocabulary of one, and sizes around a block") {
    Rng rng(1);
    for (size_t n : {1u, 2u, 7u, 8u, 63u, 64u, 65u, 1000u}) {
        CAPTURE(n);
        Chain chain = chain_of(SamplerParams{}, n);
        const auto map = after(chain, std::vector<float>(n, -3.f));
        const size_t kept = std::min<size_t>(n, 40);
        // top-p 0.95 of `kept` equal tokens keeps the first ceil(0.95 * kept).
        CHECK(map.size() == static_cast<size_t>(std::ceil(0.95 * static_cast<double>(kept) - 1e-9)));
        CHECK(map.begin()->first == 0);
        CHECK(map.rbegin()->first == static_cast<Token>(map.size()) - 1);
        CHECK(pick(chain, std::vector<float>(n, 0.f), rng) < static_cast<Token>(map.size()));
    }
    CHECK(!Chain::create(SamplerParams{}, 0));
    CHECK(!Chain::create(SamplerParams{}, (1 << 19) + 1));
}

TEST_CASE("the largest vocabulary does not overflow the sum of weights") {
    constexpr size_t n = size_t{1} << 19;
    Chain chain = chain_of(neutral(), n);
    std::vector<float> logits(n, 0.f);
    const auto top = chain.probabilities(logits, Rng(1), 3);
    REQUIRE(top.ok());
    CHECK(top.value()[2].probability == 0x1p-19);
}

TEST_CASE("excluding every token is an error of the link that did it") {
    Chain chain = chain_of(with({{"logit_bias", "0:-inf,1:-inf"}}), 2);
    std::vector<float> logits = {0, 1};
    Rng rng(1);
    const auto r = chain.pick(logits, rng);
    REQUIRE(!r);
    CHECK(r.error().message() == "logit_bias: excludes every token that is left (allow more tokens)");
    CHECK(logits == std::vector<float>{0, 1});
    CHECK(!Chain::create(with({{"logit_bias", "2:1"}}), 2));
}

TEST_CASE("a constraint is asked for its mask only when the free pick is refused") {
    const std::vector<float> logits = logits_of({.5, .3, .2});
    Chain chain = chain_of(neutral(), 3);
    Allow all({0, 1, 2}), two({1, 2}), none({});
    Rng rng(1);
    for (int i = 0; i < 100; ++i) pick(chain, logits, rng, &all);
    CHECK(all.n_masks == 0);
    // Free pick, then redraw among the allowed: together exactly the renormalized distribution, .6 : .4.
    int ones = 0;
    constexpr int n = 10000;
    for (int i = 0; i < n; ++i) {
        const Token t = pick(chain, logits, rng, &two);
        REQUIRE(t != 0);
        ones += t == 1;
    }
    CHECK(std::abs(two.n_masks - .5 * n) < 4 * std::sqrt(n * .25));
    CHECK(std::abs(ones - .6 * n) < 4 * std::sqrt(n * .24));
    std::vector<float> copy = logits;
    REQUIRE(!chain.pick(copy, rng, &none));
    CHECK(copy == logits);
    // Penalties are not applied twice: token 1 stays ahead of 2 only if its penalty counts once.
    Chain greedy = chain_of(with({{"temp", "0"}, {"presence_penalty", "0.3"}}), 3, {1});
    CHECK(pick(greedy, logits, rng, &two) == 1);
    CHECK(chain.probabilities(copy, rng, 3, &two)->size() == 2);
}

TEST_CASE("clone and rewind restore the state of every link") {
    SamplerParams p = with({{"repeat_penalty", "1.3"},
                            {"frequency_penalty", "0.2"},
                            {"repeat_last_n", "3"},
                            {"dry_multiplier", "0.8"}});
    const std::vector<float> logits = random_logits(6, 9);
    Chain chain = chain_of(p, 6, {0, 1, 2, 0, 1});
    const auto before = after(chain, logits);
    Chain twin = chain.clone();
    for (Token t : {2, 3, 3}) chain.accept(t);
    CHECK(after(chain, logits) != before);
    CHECK(after(twin, logits) == before);
    chain.rewind(5);
    CHECK(after(chain, logits) == before);
    chain.reset();
    CHECK(chain.history().empty());
    Chain fresh = chain_of(p, 6);
    CHECK(after(chain, logits) == after(fresh, logits));
    CHECK(twin.history().size() == 5);
}

TEST_CASE("time of a pick from a vocabulary of 151,936") {
    constexpr size_t n = 151936;
    const std::vector<float> original = random_logits(n, 42);
    const auto time = [&](std::string_view name, const SamplerParams& params) {
        Chain chain = chain_of(params, n, {5, 6, 7, 5, 6, 7});
        std::vector<float> logits = original;
        Rng rng(1);
        double best = 1e9;
        for (int i = 0; i < 30; ++i) {
            const auto start = std::chrono::steady_clock::now();
            REQUIRE(chain.pick(logits, rng).ok());
            const std::chrono::duration<double, std::micro> t = std::chrono::steady_clock::now() - start;
            best = std::min(best, t.count());
        }
        MESSAGE(std::string(name), ": ", best, " us");
        return best;
    };
    std::vector<float> sorted = original;
    const auto start = std::chrono::steady_clock::now();
    std::ranges::sort(sorted);
    const std::chrono::duration<double, std::micro> sorting = std::chrono::steady_clock::now() - start;
    CHECK(time("default chain", SamplerParams{}) < sorting.count() / 4);
    time("greedy", with({{"temp", "0"}}));
    time("all links", with({{"repeat_penalty", "1.1"},
                            {"dry_multiplier", "0.8"},
                            {"top_n_sigma", "3"},
                            {"top_k", "100"},
                            {"typical_p", "0.99"},
                            {"top_p", "0.95"},
                            {"min_p", "0.05"},
                            {"xtc_probability", "0.5"},
                            {"temp", "0.8"}}));
    time("top-p alone", with({{"top_p", "0.95"}}));
    time("min-p alone", with({{"min_p", "0.05"}}));
    time("temperature alone", with({{"temp", "0.8"}}));
    time("mirostat", with({{"mirostat", "2"}}));
    time("typical alone", with({{"typical_p", "0.95"}}));
}

namespace {

// The first n tokens in order, as a device hands them over.
std::vector<Candidate> first_tokens(const std::vector<float>& logits, size_t n) {
    std::vector<Candidate> list;
    for (size_t i = 0; i < logits.size(); ++i)
        if (logits[i] > -INFINITY) list.push_back({static_cast<Token>(i), logits[i]});
    std::ranges::sort(list, precedes);
    list.resize(std::min(n, list.size()));
    return list;
}

struct Decided {
    int steps = 0, decided = 0;
};

// What a device makes of all logits for this chain.
TotalWeight weighed(const Chain& chain, const std::vector<float>& logits) {
    TotalWeight total{chain.weighed_at(), 0};
    const float best = *std::ranges::max_element(logits);
    if (total.temperature > 0)
        for (const float l : logits) total.weight += exp_weight_at(l, best, total.temperature);
    return total;
}

// Two chains side by side for some steps: one sees all logits, the other the best 64, perhaps with the weight
// of all, and all of them only where these do not tell.
Decided decided_by_the_best(const SamplerParams& params, TokenFilter* filter = nullptr,
                            bool with_weight = false) {
    constexpr size_t n_vocab = 5000;
    auto whole = Chain::create(params, n_vocab), partly = Chain::create(params, n_vocab);
    REQUIRE(whole.ok());
    REQUIRE(partly.ok());
    Rng rng(7), other(7);
    Decided result;
    for (uint64_t step = 0; step < 60; ++step) {
        std::vector<float> logits = random_logits(n_vocab, step % 20);
        if (step % 3 == 0)  // ties, also across the end of the list
            for (float& l : logits) l = std::round(l);
        const Token expected = pick(*whole, logits, rng, filter);
        const auto list = first_tokens(logits, 64);
        const TotalWeight total = with_weight ? weighed(*partly, logits) : TotalWeight{};
        const auto token = partly->pick({list, total}, other, filter);
        REQUIRE(token.ok());
        ++result.steps;
        if (*token) ++result.decided;
        REQUIRE((*token ? **token : pick(*partly, logits, other, filter)) == expected);
        whole->accept(expected);
        partly->accept(expected);
    }
    return result;
}

}  // namespace

TEST_CASE("the best tokens alone give the same picks, or say that they do not tell") {
    const auto always = [](std::vector<std::pair<std::string_view, std::string_view>> settings) {
        const Decided d = decided_by_the_best(with(std::move(settings)));
        return d.decided == d.steps;
    };
    const auto never = [](std::vector<std::pair<std::string_view, std::string_view>> settings) {
        return decided_by_the_best(with(std::move(settings))).decided == 0;
    };
    CHECK(always({{"temperature", "0"}}));
    CHECK(always({{"top_k", "40"}}));
    CHECK(always({{"top_k", "40"}, {"top_p", "0.95"}, {"min_p", "0.05"}, {"temperature", "0.8"}}));
    CHECK(always({{"top_k", "20"}, {"repeat_penalty", "1.3"}, {"repeat_last_n", "-1"}}));
    CHECK(always(
        {{"top_k", "20"}, {"xtc_probability", "0.5"}, {"typical_p", "0.9"}, {"dynatemp_range", "0.5"}}));
    CHECK(always({{"temperature", "0"}, {"frequency_penalty", "0.7"}, {"presence_penalty", "0.2"}}));
    CHECK(always({{"top_k", "8"}, {"dry_multiplier", "0.8"}, {"dry_allowed_length", "1"}}));
    CHECK(always({{"min_p", "0.2"}}));
    CHECK(never({{"top_k", "64"}}));
    CHECK(never({{"top_p", "0.9"}}));
    CHECK(never({{"temperature", "0.7"}}));
    CHECK(never({{"top_n_sigma", "1"}}));
    CHECK(never({{"mirostat", "2"}}));
    CHECK(decided_by_the_best(
              with({{"samplers", "temperature,top_k"}, {"temperature", "0.7"}, {"top_k", "40"}}))
              .decided > 30);

    // Edits that could bring a token forward that is not listed.
    CHECK(never({{"top_k", "10"}, {"logit_bias", "17:2"}}));
    CHECK(always({{"top_k", "10"}, {"logit_bias", "17:-2,19:-inf"}}));
    const Decided raised = decided_by_the_best(with({{"temperature", "0"}, {"repeat_penalty", "0.5"}}));
    CHECK(raised.decided == 1);  // only while there is nothing to repeat
    // Edits that push nearly everything listed behind the end of the list.
    std::string bans;
    for (const Candidate& c : first_tokens(random_logits(5000, 1), 60))
        bans += std::to_string(c.id) + ":-50,";
    bans.pop_back();
    const Decided few = decided_by_the_best(with({{"top_k", "10"}, {"logit_bias", bans}}));
    CHECK(few.decided > 0);
    CHECK(few.decided < few.steps);
}

TEST_CASE("with the weight of all tokens, sums are decided by the best where they end among them") {
    using Settings = std::vector<std::pair<std::string_view, std::string_view>>;
    const auto decided = [](Settings settings) {
        return decided_by_the_best(with(std::move(settings)), nullptr, true);
    };
    for (const Settings& settings :
         {Settings{}, Settings{{"temperature", "0.7"}}, Settings{{"top_p", "0.6"}},
          Settings{{"top_p", "0.6"}, {"temperature", "1.3"}},
          Settings{{"mirostat", "2"}, {"mirostat_tau", "3"}},
          Settings{{"samplers", "temperature,top_p"}, {"temperature", "0.7"}, {"top_p", "0.8"}}}) {
        const Decided d = decided(settings);
        CHECK(d.decided > d.steps / 3);
    }
    const Decided hot = decided({{"temperature", "3"}});
    CHECK(hot.decided < hot.steps);
    // Dynamic temperatures have no sum of their own, and who edits logits changes the sum.
    CHECK(decided({{"dynatemp_range", "0.5"}}).decided == 0);
    CHECK(decided({{"top_p", "0.6"}, {"logit_bias", "17:-2"}}).decided == 0);
}

TEST_CASE("a constraint leaves a pick among the best tokens undecided, not wrong") {
    std::vector<Token> even;
    for (Token t = 0; t < 5000; t += 2) even.push_back(t);
    Allow filter(even);
    const Decided d = decided_by_the_best(with({{"top_k", "10"}}), &filter);
    CHECK(d.decided > 10);
    CHECK(d.decided < d.steps);
}
