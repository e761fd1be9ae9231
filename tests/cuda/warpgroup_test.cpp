// Products of many rows by warpgroups (generation 9.0; elsewhere other kernels are tested here): against the
// reference, at the edges of tiles, and that a row's bits are its own.
#include <doctest/doctest.h>

#include "ggml/base/cat.h"
#include "tests/cuda/mirror.h"
#include "tests/ops/harness.h"

using namespace nibble;

namespace {

constexpr uint32_t seed = 20261123;
// Weights and activations are rounded to f16.
constexpr double tolerance = 1e-6;

// A card that multiplies that way from 33 rows on.
std::unique_ptr<MirrorBackend> early_card() { return mirrored_card({.most_streamed = 0}); }

}  // namespace

TEST_CASE("warpgroups multiply every type as the reference does") {
    const auto backend = early_card();
    if (!backend) return;
    for (const Type type : types_in_tiles()) check_case(product_case({type}, 33, 40, 256), *backend, seed);
}

// One warpgroup's rows or both, once or twice; tiles of x and of columns that are not full, one, even and
// odd, and more than there are stages, twice over.
TEST_CASE("warpgroups multiply up to the edges of their tiles") {
    const auto backend = early_card();
    if (!backend) return;
    for (const Type type : {Type::q4_0, Type::f16})
        for (const int64_t cols : {32, 64, 96, 320, 800})
            for (const auto& [x_rows, rows] : {std::pair{129, 15}, {128, 129}, {40, 273}, {250, 260}})
                check_case(product_case({type}, x_rows, rows, cols), *backend, seed);
}

TEST_CASE("weights of several types share the rows that warpgroups multiply") {
    const auto backend = early_card();
    if (!backend) return;
    struct Case {
        int64_t x_rows;
        Type types[3];
    };
    for (const Case& c : {Case{70, {Type::q4_k, Type::q4_k, Type::q6_k}},
                          {300, {Type::q8_0, Type::f16, Type::q5_k}},
                          {300, {Type::q4_k, Type::nf4, Type::q4_k}}}) {
        StepShape shape;
        shape.tokens = c.x_rows;
        const OpCase op{cat("three weights, ", c.x_rows, " rows"), shape, tolerance,
                        [=](Builder& b, CaseSink& s) {
                            const Ref w[] = {s.random_weight(b, c.types[0], 140, 256),
                                             s.random_weight(b, c.types[1], 20, 256),
                                             s.random_weight(b, c.types[2], 33, 256)};
                            matmul(b, w, s.random_input(b, RowDim::tokens, 256),
                                   {s.random_input(b, RowDim::tokens, 193), {}});
                        }};
        INFO(op.label);
        CHECK(error_of(op, *backend, seed) <= tolerance);
    }
}

TEST_CASE("how many rows there are does not change the bits of those that warpgroups multiply") {
    const auto backend = early_card();
    if (!backend) return;
    const auto results = [&](int64_t x_rows) {
        return results_of_rows({Type::q4_0}, x_rows, 200, 128, *backend, seed);
    };
    const auto few = results(40), many = results(300);
    CHECK(std::equal(few.begin(), few.end(), many.begin()));
}

// Experts with more pairs than a tile and with few, two weights with bias, inputs of all experts or their
// own.
TEST_CASE("warpgroups multiply by experts") {
    const auto backend = early_card();
    if (!backend) return;
    struct Case {
        Type type;
        int64_t x_rows, rows, cols;
        int32_t experts, used, weights;
        bool own;  // inputs of each expert
        bool routed = true;
    };
    for (const Case& c : {Case{Type::q4_0, 170, 192, 64, 4, 2, 2, false},
                          {Type::f16, 70, 64, 64, 3, 3, 1, true, false},
                          {Type::bf16, 90, 64, 128, 2, 2, 1, true},
                          {Type::nf4, 200, 64, 192, 3, 1, 1, false},
                          {Type::q4_k, 66, 64, 256, 1, 1, 2, false}}) {
        StepShape shape;
        shape.tokens = c.x_rows;
        const OpCase op{cat(info(c.type).name, " ", c.x_rows, " rows, ", c.used, " of ", c.experts), shape,
                        tolerance, [=](Builder& b, CaseSink& s) {
                            std::vector<Ref> weights, biases;
                            for (int32_t i = 0; i < c.weights; ++i) {
                                weights.push_back(s.random_weight(b, c.type, c.experts * c.rows, c.cols));
                                biases.push_back(s.random_weight(b, Type::f32, 1, c.experts * c.rows));
                            }
                            const Ref logits =
                                c.routed ? s.random_input(b, RowDim::tokens, c.experts) : Ref{};
                            const Ref x = s.random_input(b, RowDim::tokens, c.own ? c.cols * c.used : c.cols);
                            const Ref routes = c.routed ? moe_route(b, logits, {c.used, true}) : Ref{};
                            moe_matmul(b, weights, x, routes, {c.experts, c.used}, biases);
                        }};
        INFO(op.label);
        CHECK(error_of(op, *backend, seed) <= tolerance);
    }
}

TEST_CASE("a card is used with its warpgroups only if they multiply as they should") {
    const auto card = test_card();
    if (!card) return;
    CHECK(card->device().description.find("are not used") == std::string::npos);
}
