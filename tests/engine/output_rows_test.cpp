// Layers that leave nothing behind compute the rows whose logits are wanted, and no others.
// A row has the same logits whichever other rows of a step have theirs.
#include "tests/output_rows.h"

#include <doctest/doctest.h>

#include "ggml/base/cat.h"
#include "ggml/ops/ops.h"
#include "tests/loaded_engine.h"

using namespace nibble;

namespace {

std::vector<int32_t> some_tokens(int32_t n, int32_t seed) {
    std::vector<int32_t> tokens;
    for (int32_t i = 0; i < n; ++i) tokens.push_back((i * 13 + seed) % 48);
    return tokens;
}

OutputRows loaded(std::string_view model, Backend& cpu) {
    Backend* const backends[] = {&cpu};
    auto rows = OutputRows::load(cat(NIBBLE_SOURCE_DIR, "/tests/golden/models/", model), backends);
    REQUIRE_MESSAGE(rows, rows.error().message());
    return std::move(*rows);
}

// By layer: whether its products have a row for every token.
std::vector<bool> layers_of_all_rows(const Program& p) {
    std::vector<bool> all;
    for (const Instr& i : p.instrs) {
        if (i.op != &matmul_op || i.layer < 0) continue;
        all.resize(static_cast<size_t>(i.layer) + 1);
        if (p.values[static_cast<size_t>(i.out[0].id)].dim == RowDim::tokens) all.back() = true;
    }
    return all;
}

}  // namespace

TEST_CASE("layers that share the keys and values of others compute output rows alone") {
    const auto cpu = cpu_backend(1);
    // Behind the layers stands the output matrix.
    const std::vector<bool> shares{true, true, true, false, false, false, false};
    CHECK(layers_of_all_rows(loaded("gemma4", *cpu).runner().program()) == shares);
    const auto own = layers_of_all_rows(loaded("gemma3", *cpu).runner().program());
    CHECK(std::ranges::count(own, false) == 1);
}

TEST_CASE("a row has the logits that it has by itself, whichever rows of a step are wanted") {
    const auto cpu = cpu_backend(2);
    for (const std::string_view model : {"gemma4", "gemma3", "gemma4_moe"}) {
        INFO(model);
        OutputRows rows = loaded(model, *cpu);
        const std::vector<std::vector<int32_t>> texts{some_tokens(21, 3), some_tokens(9, 5),
                                                      some_tokens(13, 8)};
        std::vector<std::vector<std::vector<float>>> alone;  // [text][position]
        for (const auto& text : texts) {
            alone.emplace_back();
            for (size_t i = 0; i < text.size(); ++i) {
                const OutputRows::Part part{{text[i]}, static_cast<int32_t>(i), 1};
                auto logits = rows.step({&part, 1});
                REQUIRE_MESSAGE(logits, logits.error().message());
                alone.back().push_back(std::move(*logits));
            }
        }
        for (const std::vector<int32_t>& wanted :
             {std::vector{1, 1, 1}, {0, 1, 0}, {3, 0, 2}, {0, 0, 4}, {0, 0, 0}, {2, 2, 2}, {1, 9, 0}}) {
            INFO("wanted " << wanted[0] << ", " << wanted[1] << ", " << wanted[2]);
            // Their beginnings, of which nothing is wanted, in a step before.
            std::vector<OutputRows::Part> begin, rest;
            std::vector<float> expected;
            for (size_t s = 0; s < texts.size(); ++s) {
                const auto n = static_cast<std::ptrdiff_t>(s == 1 ? 0 : 4);
                begin.push_back(
                    {{texts[s].begin(), texts[s].begin() + std::max<std::ptrdiff_t>(n, 1)}, 0, 0});
                rest.push_back({{texts[s].begin() + n, texts[s].end()}, static_cast<int32_t>(n), wanted[s]});
                for (auto i = texts[s].size() - static_cast<size_t>(wanted[s]); i < texts[s].size(); ++i)
                    expected.insert(expected.end(), alone[s][i].begin(), alone[s][i].end());
            }
            REQUIRE(rows.step(begin));
            const auto logits = rows.step(rest);
            REQUIRE_MESSAGE(logits, logits.error().message());
            CHECK(*logits == expected);
        }
    }
}

TEST_CASE("output rows out of order are refused") {
    const auto cpu = cpu_backend(1);
    auto rows = loaded("gemma4", *cpu);
    Batch b;
    b.tokens = {1, 2, 3, 4};
    b.positions = {0, 1, 2, 3};
    b.sequences = {{0, 4}};
    const std::vector<int32_t> pages{0};
    const size_t groups = rows.runner().spec().kv_groups.size();
    b.slots.assign(groups, b.positions);
    b.pages.assign(groups, {pages});
    auto& runner = rows.runner();
    for (const std::vector<int32_t>& out : {std::vector{1, 3}, {2, 1}, {3, 4}, {-1}, {2, 2}}) {
        b.out_rows = out;
        CHECK(!runner.run(b));
    }
    b.out_rows = {2, 3};
    CHECK(runner.run(b));
}
