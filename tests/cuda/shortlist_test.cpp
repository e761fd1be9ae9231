// shortlist on the CUDA backend where values are not all different and finite.
// A row without a list is allowed only where the op's contract says so.
#include <algorithm>
#include <cmath>
#include <limits>

#include <doctest/doctest.h>

#include "ggml/ops/ops.h"
#include "ggml/ops/reference_backend.h"
#include "ggml/program/runner.h"
#include "tests/cuda/mirror.h"

using namespace nibble;

namespace {

constexpr int64_t cols = 5000;
constexpr int32_t count = 64;
constexpr float inf = std::numeric_limits<float>::infinity();

std::vector<float> list_of(Backend& backend, const std::vector<float>& row) {
    Builder b({1, 1, 1});
    const Ref x = b.input("x", Type::f32, RowDim::tokens, static_cast<int64_t>(row.size()));
    const Ref weighed = b.input("weighed", Type::i32, RowDim::tokens, 3);
    b.mark_output(shortlist(b, x, weighed, {count}), "list");
    Backend* const list[] = {&backend};
    auto program = compile(std::move(b), {}, list);
    REQUIRE(program);
    auto runner = Runner::create(std::move(*program), list);
    REQUIRE(runner);
    std::copy(row.begin(), row.end(), runner->input<float>("x").begin());
    std::ranges::copy(weighed_row(0.5, static_cast<int32_t>(row.size())),
                      runner->input<int32_t>("weighed").begin());
    REQUIRE(runner->run({1, 1, 1}, nullptr));
    const auto out = runner->output("list");
    REQUIRE(out);
    return {out->begin(), out->end()};
}

// All different, in no order.
std::vector<float> scattered() {
    std::vector<float> row(cols);
    for (int64_t i = 0; i < cols; ++i)
        row[static_cast<size_t>(i)] = static_cast<float>(i * 1237 % cols) - 2500;
    return row;
}

}  // namespace

TEST_CASE("a list of the largest values copes with ties, both zeros and missing values") {
    const auto gpu = test_card();
    if (!gpu) return;
    ReferenceBackend reference;
    const auto same = [&](const std::vector<float>& row) {
        return list_of(*gpu, row) == list_of(reference, row);
    };
    CHECK(same(scattered()));

    std::vector<float> row = scattered();
    for (size_t i = 0; i < row.size(); ++i) row[i] = std::floor(row[i] / 10);  // each value ten times
    CHECK(same(row));
    for (size_t i = 0; i < row.size(); ++i) row[i] = row[i] > 240 ? (i % 2 ? 0.0f : -0.0f) : -1;
    CHECK(same(row));

    row.assign(cols, -inf);
    CHECK(same(row));
    row[17] = -3, row[4999] = 2, row[18] = std::numeric_limits<float>::lowest();
    CHECK(same(row));
    CHECK(list_of(*gpu, row)[0] == 2);
    CHECK(list_of(*gpu, row)[count] == 4999);
    CHECK(list_of(*gpu, row)[count + 3] == -1);
}

TEST_CASE("no list of values that are not numbers, or are all the same") {
    const auto gpu = test_card();
    if (!gpu) return;
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::quiet_NaN(), inf})
        for (const size_t at : {size_t{0}, size_t{63}, size_t{2500}, size_t{cols - 1}}) {
            std::vector<float> row = scattered();
            row[at] = bad;
            CHECK(std::isnan(list_of(*gpu, row)[0]));
        }
    const std::vector<float> equal = list_of(*gpu, std::vector<float>(cols, 1.5f));
    CHECK((std::isnan(equal[0]) || (equal[0] == 1.5f && equal[count + 1] == 1)));
}
