// What the draw op draws from the beginning of a row is what the sampler chain picks from the whole of it.
// The chain is the definition; the op may say that it cannot tell, but where the chain can, it should.
#include <random>

#include <doctest/doctest.h>

#include "ggml/base/cat.h"
#include "ggml/ops/ops.h"
#include "ggml/ops/reference_backend.h"
#include "ggml/program/runner.h"
#include "src/sample/chain.h"
#include "tests/sample/support.h"

using namespace nibble;

namespace {

constexpr int32_t n_listed = 256;

// One row: its shortlist, and what is drawn from that.
class Device {
  public:
    explicit Device(int64_t n_vocab) : memory_(1) {
        Builder b({1, 1, 1});
        const Ref x = b.input("x", Type::f32, RowDim::outputs, n_vocab);
        const Ref weighed = b.input("weighed", Type::i32, RowDim::outputs, 3);
        const Ref how = b.input("how", Type::i32, RowDim::outputs, draw_columns);
        Tensor drawn;
        drawn.data = reinterpret_cast<std::byte*>(memory_.data());
        drawn.rows = drawn.cols = 1;
        drawn.stride = sizeof(float);
        const Ref list = shortlist(b, x, weighed, {n_listed});
        draw(b, list, weighed, how, b.cache(drawn, "drawn"), {n_listed});
        b.mark_output(list, "list");
        Backend* const backends[] = {&backend_};
        auto program = compile(std::move(b), {}, backends);
        REQUIRE(program);
        auto runner = Runner::create(std::move(*program), backends);
        REQUIRE(runner);
        runner_ = std::make_unique<Runner>(std::move(*runner));
    }

    // `before`: what was drawn the last time.
    Token draws(const std::vector<float>& logits, int32_t n_text, double temperature, const DrawRow& row,
                Token before) {
        std::ranges::copy(logits, runner_->input<float>("x").begin());
        std::ranges::copy(weighed_row(temperature, n_text), runner_->input("weighed").begin());
        std::ranges::copy(encoded(row), runner_->input("how").begin());
        memory_[0] = static_cast<float>(before);
        REQUIRE(runner_->run({1, 1, 1}));
        return static_cast<Token>(memory_[0]);
    }

  private:
    ReferenceBackend backend_;
    std::vector<float> memory_;
    std::unique_ptr<Runner> runner_;
};

// The defaults, and settings.
SamplerParams with(std::vector<std::pair<std::string_view, std::string_view>> settings) {
    return testing::with(std::move(settings), {});
}

struct Count {
    int drawn = 0, all = 0;
};

// Texts of a few tokens over random rows, of which the last ones have no text.
Count compare(const SamplerParams& params, int32_t n_vocab, int32_t padding, float spread) {
    Device device(n_vocab);
    std::mt19937 random(7);
    std::normal_distribution<float> normal(0, spread);
    Count count;
    for (uint64_t seed = 0; seed < 6; ++seed) {
        auto chain = Chain::create(params, static_cast<size_t>(n_vocab));
        REQUIRE(chain);
        Rng rng(seed);
        Token before = 0;
        for (int step = 0; step < 20; ++step) {
            std::vector<float> logits(static_cast<size_t>(n_vocab));
            for (float& l : logits) l = normal(random);
            logits[static_cast<size_t>(before)] += spread;  // repeated, if nothing penalizes it
            // The history as it is one step before, and as it is.
            const bool ahead = step > 0 && step % 2 == 1;
            Chain behind = chain->clone();
            if (ahead) behind.rewind(behind.history().size() - 1);
            const auto row = behind.draw_row(rng, ahead);
            REQUIRE(row);
            const Token drawn = device.draws(logits, n_vocab - padding, chain->weighed_at(), *row, before);
            std::fill(logits.end() - padding, logits.end(), -INFINITY);
            const auto picked = chain->pick(logits, rng);
            REQUIRE(picked);
            if (drawn >= 0) CHECK(drawn == *picked);
            count.drawn += drawn >= 0;
            ++count.all;
            chain->accept(before = *picked);
        }
    }
    return count;
}

}  // namespace

TEST_CASE("a device draws what the chain picks") {
    struct Case {
        std::vector<std::pair<std::string_view, std::string_view>> settings;
        double decided;  // this part of all, at least, over 5000 tokens
    };
    const std::vector<Case> cases = {
        {{}, 1},
        {{{"temperature", "0"}}, 1},
        {{{"top_k", "0"}, {"top_p", "0.4"}}, 0.5},
        {{{"top_k", "0"}, {"top_p", "1"}, {"min_p", "0"}, {"temperature", "0.3"}}, 0.9},
        {{{"top_k", "0"}, {"top_p", "1"}, {"min_p", "0.2"}, {"temperature", "1"}}, 0.9},
        {{{"samplers", "temperature,top_p"}, {"temperature", "0.4"}, {"top_p", "0.8"}}, 0.9},
        {{{"repeat_penalty", "1.3"}, {"frequency_penalty", "0.2"}, {"presence_penalty", "0.5"}}, 1},
        {{{"temperature", "0"}, {"repeat_penalty", "1.2"}}, 1},
        {{{"repeat_last_n", "3"}, {"presence_penalty", "2"}, {"top_k", "5"}}, 1},
        {{{"samplers", "top_k,penalties,temperature"}, {"frequency_penalty", "-0.5"}}, 1},
        {{{"logit_bias", "39:-inf,12:-3"}}, 1},
        {{{"logit_bias", "1:-inf,2:-inf,3:-0.5"}, {"temperature", "0"}}, 1},
    };
    for (const Case& c : cases) {
        const SamplerParams params = with(c.settings);
        INFO(Chain::create(params, 10)->describe());
        for (const int32_t padding : {0, 100}) {
            const Count large = compare(params, 5000, padding, 3);
            CHECK(large.all == 120);
            CHECK(large.drawn >= c.decided * large.all);
            compare(params, 300, padding, 1);  // flat: much is not decided
        }
        compare(params, 40, 7, 2);  // all are listed
    }
}

TEST_CASE("chains that no device can follow say so") {
    const auto described = [](const SamplerParams& p, size_t n_history) {
        auto chain = Chain::create(p, 1000);
        REQUIRE(chain);
        for (size_t i = 0; i < n_history; ++i) chain->accept(static_cast<Token>(i % 1000));
        return bool(chain->draw_row(Rng(1), false)) && bool(chain->draw_row(Rng(1), true));
    };
    CHECK(described({}, 500));
    CHECK_FALSE(described(with({{"mirostat", "2"}}), 5));
    CHECK_FALSE(described(with({{"typical_p", "0.9"}}), 5));
    CHECK_FALSE(described(with({{"dynatemp_range", "0.5"}}), 5));
    CHECK_FALSE(described(with({{"dry_multiplier", "0.8"}}), 5));
    SamplerParams banned;
    banned.logit_bias = {{5, -INFINITY}, {6, 3}};
    CHECK(described(banned, 5));
    for (Token t = 0; t < 20; ++t) banned.logit_bias.push_back({t, 1});
    CHECK_FALSE(described(banned, 5));
    CHECK(described(with({{"presence_penalty", "1"}}), 500));
    CHECK(described(with({{"presence_penalty", "1"}, {"repeat_last_n", "-1"}}), 60));
    CHECK_FALSE(described(with({{"presence_penalty", "1"}, {"repeat_last_n", "-1"}}), 64));
    CHECK_FALSE(described(with({{"presence_penalty", "1"}, {"repeat_last_n", "80"}}), 500));
}
