// The parts below the chain: generator, integer weights, candidates, log-probabilities.
// Selections are compared with a full sort.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <unordered_map>

#include <doctest/doctest.h>

#include "src/sample/candidates.h"
#include "src/sample/logprobs.h"
#include "src/sample/rng.h"

using namespace nibble;

TEST_CASE("Philox gives the published answers") {
    using Words = std::array<uint32_t, 4>;
    CHECK(philox4x32_10({0, 0, 0, 0}, {0, 0}) == Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
    CHECK(philox4x32_10({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}) ==
          Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
    CHECK(philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
          Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("random numbers depend on seed, stream, step and lane, and on nothing else") {
    Rng a(1), b(1);
    b.seek(9);
    b.seek(0);
    CHECK(a.bits(RngLane::pick) == b.bits(RngLane::pick));
    CHECK(a.bits(RngLane::pick) == a.bits(RngLane::pick));
    CHECK(a.bits(RngLane::pick) != a.bits(RngLane::xtc));
    CHECK(a.bits(RngLane::pick) != Rng(2).bits(RngLane::pick));
    CHECK(a.bits(RngLane::pick) != Rng(uint64_t{1} << 32 | 1).bits(RngLane::pick));
    CHECK(a.bits(RngLane::pick) != Rng(1, 1).bits(RngLane::pick));
    CHECK(a.bits(RngLane::pick) != Rng(1, uint64_t{1} << 32).bits(RngLane::pick));
    a.next_step();
    CHECK(a.step() == 1);
    CHECK(a.bits(RngLane::pick) != b.bits(RngLane::pick));
    CHECK(Rng(0).bits(RngLane::pick) == 0xe169c58d6627e8d5u);

    double sum = 0, smallest = 1, largest = 0;
    constexpr int n = 100000;
    for (int i = 0; i < n; ++i, a.next_step()) {
        const double u = a.uniform(RngLane::pick);
        sum += u;
        smallest = std::min(smallest, u);
        largest = std::max(largest, u);
    }
    CHECK(smallest >= 0);
    CHECK(largest < 1);
    CHECK(std::abs(sum / n - 0.5) < 4 * std::sqrt(1 / 12. / n));
}

TEST_CASE("integer weights are exp to within one unit, and monotone") {
    CHECK(weight_of(0) == uint64_t{1} << 44);
    CHECK(weight_of(-INFINITY) == 0);
    CHECK(weight_of(-1e300) == 0);
    CHECK(weight_of(-40) == 0);
    CHECK(weight_of(-32) == 0);
    CHECK(weight_of(-30) == 2);  // 1.646
    uint64_t previous = weight_of(0);
    for (double x = 0; x > -33; x -= 1.0 / 4096 + 1e-7) {
        const uint64_t w = weight_of(x);
        REQUIRE(std::abs(static_cast<double>(w) - std::exp(x) * 0x1p44) <= 1);
        REQUIRE(w <= previous);
        previous = w;
    }
    CHECK(std::abs(log_of_weight(weight_of(-2)) + 2) < 1e-12);
}

// Logits that are seen at a temperature and candidates whose logits were replaced have to be the same.
TEST_CASE("a temperature gives the same candidates, whether they are listed or not") {
    std::mt19937 random(5);
    std::normal_distribution<float> normal(0, 4);
    const std::unordered_map<Token, float> edits{{3, 2}, {77, -1}, {199, 30}};
    for (int round = 0; round < 20; ++round) {
        std::vector<float> logits(200);
        for (float& l : logits) l = normal(random);
        for (const Token copy : {50, 120}) logits[static_cast<size_t>(copy)] = logits[9];
        std::vector<float> same = logits;
        Candidates dense, listed;
        REQUIRE(dense.begin(logits));
        REQUIRE(listed.begin(same));
        listed.list();
        listed.changed(false);
        const auto alike = [&] {
            CHECK(dense.best() == listed.best());
            CHECK(dense.total_weight() == listed.total_weight());
            const Candidate a = dense.first(), b = listed.first();
            CHECK(a.id == b.id);
            CHECK(a.logit == b.logit);
            const uint64_t half = dense.weigh() / 2;
            CHECK(half == listed.weigh() / 2);
            CHECK(dense.reach(half).id == listed.reach(half).id);
        };
        for (Candidates* c : {&dense, &listed}) c->scale(0.6);
        CHECK_FALSE(dense.listed());
        alike();
        if (round % 2 == 0) {
            for (Candidates* c : {&dense, &listed})
                c->edit(edits, [](float logit, float value) { return logit + value; });
            alike();
        }
        for (Candidates* c : {&dense, &listed}) c->scale(1.7);
        alike();
        for (Candidates* c : {&dense, &listed}) c->keep_at_least(c->best() - 1.5);
        alike();
        CHECK(dense.size() == listed.size());
        dense.restore();
        CHECK(logits == same);
    }
}

TEST_CASE("registers of every width weigh alike, at every temperature") {
    std::mt19937 random(3);
    std::normal_distribution<float> normal(0, 12);
    float logits[weighed_at_once];
    for (float& l : logits) l = normal(random);
    logits[7] = -INFINITY;
    logits[8] = std::numeric_limits<float>::lowest();
    const double best = *std::ranges::max_element(logits);
    for (const LogitScale& scale :
         {LogitScale{}, LogitScale{best, 0.7}, LogitScale{best, 1e-30}, LogitScale{best, 1e30}}) {
        const double top = scale(static_cast<float>(best));
        for (const WeighWhole weigh : ways_to_weigh()) {
            WeighedRun run;
            weigh(logits, scale, top, run);
            for (size_t i = 0; i < weighed_at_once; ++i) {
                INFO(logits[i] << " at " << scale.temperature);
                CHECK(run.weight[i] == weight_of(scale(logits[i]) - top));
                CHECK((run.distance[i] == top - scale(logits[i]) || run.distance[i] > 32));
            }
        }
        WeighedRun some;
        weigh_run(logits, 5, scale, top, some);
        for (size_t i = 0; i < 5; ++i) CHECK(some.weight[i] == weight_of(scale(logits[i]) - top));
    }
}

namespace {

std::vector<float> some_logits(size_t n, uint32_t seed, uint32_t distinct) {
    std::vector<float> logits(n);
    for (float& l : logits) {
        seed = seed * 1664525u + 1013904223u;
        l = static_cast<float>((seed >> 8) % distinct) / 16 - 4;
        if ((seed >> 8) % 7 == 0) l = -INFINITY;
    }
    logits[n / 2] = 3;
    return logits;
}

std::vector<Candidate> full_sort(const std::vector<float>& logits) {
    std::vector<Candidate> all;
    for (size_t i = 0; i < logits.size(); ++i)
        if (logits[i] > -INFINITY) all.push_back({static_cast<Token>(i), logits[i]});
    std::ranges::sort(all, precedes);
    return all;
}

bool same(std::span<const Candidate> a, std::span<const Candidate> b) {
    return std::ranges::equal(
        a, b, [](const Candidate& x, const Candidate& y) { return x.id == y.id && x.logit == y.logit; });
}

}  // namespace

TEST_CASE("selections agree with a full sort, dense and listed, with few and many ties") {
    for (size_t n : {1u, 5u, 64u, 100u, 1000u, 5000u}) {
        for (uint32_t distinct : {1u, 3u, 50u, 100000u}) {
            CAPTURE(n);
            CAPTURE(distinct);
            std::vector<float> logits = some_logits(n, static_cast<uint32_t>(n) + distinct, distinct);
            const auto all = full_sort(logits);
            for (size_t k : {size_t{1}, size_t{2}, size_t{40}, size_t{78}, size_t{79}, n - n / 3}) {
                CAPTURE(k);
                if (k == 0) continue;
                const auto expected = std::span(all).first(std::min(k, all.size()));
                Candidates dense, listed;
                REQUIRE(dense.begin(logits).ok());
                dense.keep_top(k);
                CHECK(same(dense.sorted(k), expected));
                CHECK(dense.size() == expected.size());
                REQUIRE(listed.begin(logits).ok());
                listed.list();
                listed.sorted(k / 2);
                listed.keep_top(k);
                CHECK(same(listed.sorted(k), expected));
                const double threshold = expected.back().logit;
                for (bool as_list : {false, true}) {
                    Candidates c;
                    REQUIRE(c.begin(logits).ok());
                    if (as_list) c.sorted(3);
                    CHECK(c.best() == all[0].logit);
                    CHECK(c.first().id == all[0].id);
                    c.keep_at_least(threshold);
                    const auto end = std::ranges::find_if(
                        all, [threshold](const Candidate& x) { return x.logit < threshold; });
                    CHECK(same(c.sorted(n), {all.begin(), end}));
                }
            }
        }
    }
}

TEST_CASE("the total weight is the same dense, listed and sorted") {
    std::vector<float> logits = some_logits(5000, 3, 100000);
    Candidates c;
    REQUIRE(c.begin(logits).ok());
    const uint64_t dense = c.total_weight();
    c.list();
    CHECK(c.total_weight() == dense);
    c.sorted(17);
    CHECK(c.total_weight() == dense);
    c.sorted(5000);
    CHECK(c.total_weight() == dense);
}

TEST_CASE("edits are seen by what follows and undone by restore") {
    std::vector<float> logits = some_logits(300, 1, 50);
    const std::vector<float> before = logits;
    const std::unordered_map<Token, double> values = {{5, 100}, {150, -INFINITY}, {299, 50},  {300, 1},
                                                      {-1, 1},  {7, 1e300},       {8, -1e300}};
    const auto replace = [](double, double value) { return value; };
    Candidates c;
    REQUIRE(c.begin(logits).ok());
    c.edit(values, replace);
    c.edit(std::unordered_map<Token, double>{{5, 99}}, replace);
    CHECK(c.best() == std::numeric_limits<float>::max());
    CHECK(c.first().id == 7);
    CHECK(logits[8] == std::numeric_limits<float>::lowest());
    CHECK(logits[150] == -INFINITY);
    c.keep_top(3);
    CHECK(c.sorted(3)[1].id == 5);
    CHECK(c.sorted(3)[1].logit == 99);
    CHECK(c.sorted(3)[2].id == 299);
    c.edit(std::unordered_map<Token, double>{{299, 1000}, {7, NAN}}, replace);
    CHECK(c.first().id == 299);
    CHECK(c.sorted(3)[2].logit == -INFINITY);  // NaN is nothing that can be picked
    c.restore();
    CHECK(logits == before);
}

TEST_CASE("log-probabilities of the unmodified distribution") {
    const std::vector<float> logits = {std::log(.2f), std::log(.5f), -INFINITY, std::log(.3f)};
    CHECK(std::abs(*log_sum_exp(logits)) < 1e-6);
    const auto top = top_logprobs(logits, 10);
    REQUIRE(top.ok());
    REQUIRE(top.value().size() == 3);
    const Token order[] = {1, 3, 0};
    const double p[] = {.5, .3, .2};
    for (size_t i = 0; i < 3; ++i) {
        CHECK(top.value()[i].token == order[i]);
        CHECK(std::abs(top.value()[i].logprob - std::log(p[i])) < 1e-6);
    }
    CHECK(top_logprobs(logits, 0)->empty());
    CHECK(top_logprobs(logits, 1)->size() == 1);
    // A shift of all logits changes nothing, however large; far tails keep their value.
    const std::vector<float> far = {1000, 900, 0};
    CHECK(std::abs(*log_sum_exp(far) - 1000) < 1e-12);
    CHECK(top_logprobs(far, 3)->at(2).logprob == doctest::Approx(-1000));
    CHECK(!log_sum_exp(std::vector<float>{1, NAN}));
    CHECK(!top_logprobs(std::vector<float>{}, 3));
}
