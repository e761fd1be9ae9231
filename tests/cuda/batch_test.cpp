// Products of 9 to 128 rows by warpgroups (generation 9.0; elsewhere other kernels are tested here): against
// the reference, columns in runs and in one, and that a row's bits are its own.
#include <doctest/doctest.h>

#include "ggml/base/cat.h"
#include "tests/cuda/mirror.h"
#include "tests/ops/harness.h"

using namespace nibble;

namespace {

constexpr uint32_t seed = 20261126;
// Weights and activations are rounded to f16.
constexpr double tolerance = 1e-6;

// Weights of these types, of `rows` rows each, side by side, with a bias and a residual.
OpCase product(std::span<const Type> types, int64_t x_rows, int64_t rows, int64_t cols) {
    StepShape shape;
    shape.tokens = x_rows;
    const std::vector<Type> all(types.begin(), types.end());
    return {cat(info(all[0]).name, " ", x_rows, " rows by ", all.size(), " times ", rows, " x ", cols), shape,
            tolerance, [=](Builder& b, CaseSink& s) {
                std::vector<Ref> w, bias;
                for (const Type t : all) {
                    w.push_back(s.random_weight(b, t, rows, cols));
                    bias.push_back(s.random_weight(b, Type::f32, 1, rows));
                }
                matmul(b, w, s.random_input(b, RowDim::tokens, cols),
                       {s.random_input(b, RowDim::tokens, rows * static_cast<int64_t>(all.size())), bias});
            }};
}
OpCase product(Type type, int64_t x_rows, int64_t rows, int64_t cols) {
    return product(std::span(&type, 1), x_rows, rows, cols);
}

std::vector<float> results(const OpCase& c, Backend& backend) {
    CaseRun run(c, backend, seed);
    REQUIRE(run.run() == "");
    return run.results();
}

}  // namespace

TEST_CASE("a batch is multiplied by every type as the reference does") {
    const auto backend = mirrored_card();
    if (!backend) return;
    for (const TypeInfo& t : all_types()) {
        if (!t.decode || !t.encode || t.type == Type::f32) continue;
        for (const int64_t x_rows : {9, 33}) {
            const OpCase c = product(t.type, x_rows, 40, 512);
            INFO(c.label);
            CHECK(error_of(c, *backend, seed) <= tolerance);
        }
    }
}

// Tiles of x that are full and not; blocks and row blocks that are not; one tile of columns, even and odd
// numbers of them, more than there are slots, and runs of different lengths.
TEST_CASE("a batch is multiplied up to the edges of its tiles") {
    const auto backend = mirrored_card();
    if (!backend) return;
    for (const Type type : {Type::q4_0, Type::f16, Type::q8_0})
        for (const int64_t cols : {32, 64, 96, 320, 1600})
            for (const auto& [x_rows, rows] :
                 {std::pair{32, 15}, {64, 129}, {100, 20}, {128, 16}, {10, 200}}) {
                const OpCase c = product(type, x_rows, rows, cols);
                INFO(c.label);
                CHECK(error_of(c, *backend, seed) <= tolerance);
            }
    for (const Type type : {Type::q4_k, Type::q5_k, Type::q6_k})
        for (const auto& [x_rows, cols] : {std::pair{32, 1280}, {33, 2304}, {100, 1792}, {12, 4608}}) {
            const OpCase c = product(type, x_rows, 35, cols);
            INFO(c.label);
            CHECK(error_of(c, *backend, seed) <= tolerance);
        }
}

TEST_CASE("a batch is multiplied by weights of several types in one launch") {
    const auto backend = mirrored_card();
    if (!backend) return;
    const Type sets[][3] = {{Type::q4_k, Type::q5_k, Type::q6_k},
                            {Type::q8_0, Type::f16, Type::bf16},
                            {Type::q4_k, Type::nf4, Type::q4_k}};
    for (const auto& types : sets)
        for (const int64_t x_rows : {20, 64, 100}) {
            const OpCase c = product(types, x_rows, 140, 1280);
            INFO(c.label);
            CHECK(error_of(c, *backend, seed) <= tolerance);
        }
}

TEST_CASE("how many rows a batch has does not change their bits") {
    const auto backend = mirrored_card();
    if (!backend) return;
    for (const Type type : {Type::q4_k, Type::q6_k, Type::f16}) {
        // The same operands come first: operands of rows are drawn after the weight.
        const auto of = [&](int64_t x_rows) {
            StepShape shape;
            shape.tokens = x_rows;
            const OpCase c{"rows", shape, tolerance, [&](Builder& b, CaseSink& s) {
                               const Ref w = s.random_weight(b, type, 150, 1536);
                               matmul(b, w, s.random_input(b, RowDim::tokens, 1536));
                           }};
            return results(c, *backend);
        };
        const auto few = of(9);
        for (const int64_t more : {30, 50, 100}) {
            const auto many = of(more);
            CHECK(std::equal(few.begin(), few.end(), many.begin()));
        }
    }
}
