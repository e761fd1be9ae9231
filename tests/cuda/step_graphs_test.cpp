// Steps that are recorded and replayed in the faster of two ways: which one stays, and when nothing is
// compared.
#include "ggml/cuda/step_graphs.h"

#include <algorithm>

#include <doctest/doctest.h>

#include "tests/cuda/mirror.h"

using namespace nibble;
using namespace nibble::cuda;

namespace {

// Steps that leave a number in the card's memory, by which the two ways can be told.
struct Numbers {
    static constexpr size_t bytes = size_t{1} << 20;
    static constexpr uint8_t chained = 1, apart = 2;
    Stream stream;
    std::shared_ptr<std::byte> memory;

    static std::optional<Numbers> make() {
        if (CudaBackend::devices() == 0) {
            MESSAGE("no GPU: nothing was tested");
            return {};
        }
        auto stream = Stream::create(0);
        auto memory = allocate(0, bytes, "test");
        REQUIRE(stream);
        REQUIRE(memory);
        return Numbers{std::move(*stream), std::move(*memory)};
    }
    // In each way as many pieces of work as is said.
    StepGraphs::Launch step(int64_t rows, int in_chain, int by_itself) {
        return [=, this](bool in_chains) -> Result<int64_t> {
            for (int i = 0; i < (in_chains ? in_chain : by_itself); ++i)
                stream.fill(memory.get(), in_chains ? chained : apart, bytes);
            return in_chains ? rows : 0;
        };
    }
    // What so many times of the step leave.
    std::vector<uint8_t> run(StepGraphs& graphs, uint64_t number, const StepGraphs::Launch& step, int times) {
        std::vector<uint8_t> left;
        for (int i = 0; i < times; ++i) {
            const auto ran = graphs.run(stream, number, step);
            REQUIRE(ran);
            CHECK(*ran);
            left.push_back(0);
            stream.to_host(std::as_writable_bytes(std::span(&left.back(), 1)), memory.get());
            REQUIRE(stream.synchronize());
        }
        return left;
    }
};

constexpr int few = 1, many = 400;
constexpr int trial = 2 + 12;  // alone in both ways, then replays of both in turn

}  // namespace

TEST_CASE("of two ways of launching a step the one that takes less time stays") {
    auto numbers = Numbers::make();
    if (!numbers) return;
    StepGraphs graphs(0, true, true);
    for (const bool chains_win : {true, false}) {
        const auto step = numbers->step(3, chains_win ? few : many, chains_win ? many : few);
        const auto left = numbers->run(graphs, chains_win, step, trial + 3);
        for (int i = 0; i < trial; ++i)
            CHECK(left[size_t(i)] == (i % 2 == 0 ? Numbers::chained : Numbers::apart));
        for (size_t i = trial; i < left.size(); ++i)
            CHECK(left[i] == (chains_win ? Numbers::chained : Numbers::apart));
        const auto found = graphs.found();
        REQUIRE(found.size() == 1);
        CHECK(found[0].rows == 3);
        CHECK((found[0].chained_ms < found[0].apart_ms) == chains_win);
    }
    CHECK(graphs.replayed() == 2 * (12 + 3));
}

TEST_CASE("steps without chains, and those whose way is given, are replayed without a comparison") {
    auto numbers = Numbers::make();
    if (!numbers) return;
    StepGraphs measured(0, true, true), chained(0, true, false), apart(0, false, true);
    const auto all = [](const std::vector<uint8_t>& left, uint8_t n) {
        return std::ranges::all_of(left, [=](uint8_t i) { return i == n; });
    };
    CHECK(all(numbers->run(measured, 1, numbers->step(0, many, few), trial + 3), Numbers::chained));
    CHECK(all(numbers->run(chained, 1, numbers->step(1, many, few), trial + 3), Numbers::chained));
    CHECK(all(numbers->run(apart, 1, numbers->step(1, few, many), trial + 3), Numbers::apart));
    for (StepGraphs* const g : {&measured, &chained, &apart}) {
        CHECK(g->found().empty());
        CHECK(g->replayed() == trial + 2);
    }
}
