// The op sweep on the CUDA backend: every op, type and awkward shape against the reference.
// Compiled twice: for emulated blocks (every test run) and for a real card (tests/gpu).
#include <algorithm>
#include <cmath>
#include <cstdlib>

#include <doctest/doctest.h>

#include "ggml/base/cat.h"
#include "ggml/ops/reference_backend.h"
#include "tests/cuda/mirror.h"
#include "tests/ops/harness.h"

using namespace nibble;

namespace {

constexpr uint32_t seed = 20261121;

// Activations enter the tensor cores with 11 bits, so the bounds of f32 sums do not hold.
double tolerance(const OpDef& op, const OpCase& c) {
    const bool tensor_cores = &op == &matmul_op || &op == &moe_matmul_op || &op == &attention_op;
    return std::max(c.tolerance, tensor_cores || &op == &embed_op ? 1e-6 : 0);
}

}  // namespace

TEST_CASE("each row of a batch is bit-equal to the row alone, on the GPU") {
    const auto backend = mirrored_card({.gemv = false});
    if (!backend) return;
    for (const OpDef* op : {&matmul_op, &norm_op, &glu_op, &moe_route_op, &moe_matmul_op, &moe_sum_op})
        for (const OpCase& c : op->cases()) {
            INFO(c.label);
            CHECK(rows_are_independent(c, *backend, seed));
        }
    for (const auto& [op, at] : ops_over_states)
        for (const OpCase& c : op->cases()) {
            INFO(c.label);
            CHECK(steps_are_independent(c, *backend, seed, at));
        }
}

// The weights of these cases are so small that the default streams them.
TEST_CASE("many rows have the same bits, whether weights are streamed or multiplied as matrices") {
    const auto streamed = mirrored_card({.warpgroups = false}),
               matrices = mirrored_card({.most_streamed = 0, .warpgroups = false});
    if (!streamed) return;
    for (const OpCase& c : matmul_op.cases()) {
        if (c.shape.tokens <= 32) continue;
        INFO(c.label);
        CaseRun a(c, *streamed, seed), b(c, *matrices, seed);
        REQUIRE(a.run() == "");
        REQUIRE(b.run() == "");
        CHECK(same_bits(a.results(), b.results()));
        CHECK(b.intact());
    }
}

TEST_CASE("every op on the GPU equals the reference") {
    const auto backend = mirrored_card();
    if (!backend) return;
    const char* only = std::getenv("NIBBLE_OP");
    int n = 0;
    for (const OpDef* op : all_ops()) {
        if (only && op->name != only) continue;
        for (const OpCase& c : op->cases()) {
            INFO(c.label);
            CHECK(error_of(c, *backend, seed) <= tolerance(*op, c));
            ++n;
        }
    }
    CHECK((only || n > 300));
}

// Weights of f32 by tiles of products that share what they read, or one by one: with rows that no tile is
// filled by, and columns that do not divide.
TEST_CASE("products of f32 weights have the same bits, whether tiles or single ones, on the GPU") {
    const auto backend = mirrored_card();
    if (!backend) return;
    struct Case {
        int64_t weights, cols, rows;
    };
    for (const Case& c : {Case{13, 200, 67}, {32, 64, 64}, {1, 600, 3}, {5, 31, 90}, {128, 520, 2}}) {
        StepShape shape;
        shape.tokens = static_cast<int32_t>(c.rows);
        const OpCase op{cat(c.weights, " x ", c.cols, ", ", c.rows, " rows"), shape, 1e-9,
                        [&](Builder& b, CaseSink& s) {
                            const Ref w = s.random_weight(b, Type::f32, c.weights, c.cols);
                            matmul(b, w, s.random_input(b, RowDim::tokens, c.cols));
                        }};
        INFO(op.label);
        CHECK(error_of(op, *backend, seed) <= op.tolerance);
        CHECK(rows_are_independent(op, *backend, seed));
    }
}

// Groups for a warp, for a block, and of more columns than a block has on their way at once.
TEST_CASE("norms of wide rows are right on the GPU, and each row's is its own") {
    const auto backend = mirrored_card();
    if (!backend) return;
    struct Case {
        int64_t cols;
        NormParams p;
        bool all;
    };
    for (const Case& c : {Case{1152, {1e-5f, 128}, false},
                          {512, {}, false},
                          {1536, {1e-6f, 768, true}, true},
                          {515, {}, true},
                          {4096, {}, false},
                          {4099, {1e-5f, 0, true}, true},
                          {8200, {1e-5f, 0, true}, true}}) {
        StepShape shape;
        shape.tokens = 3;
        const OpCase op{cat(c.cols, " columns"), shape, 1e-12, [&](Builder& b, CaseSink& s) {
                            const int64_t group = c.p.group ? c.p.group : c.cols;
                            const auto vec = [&] { return s.random_weight(b, Type::f32, 1, group); };
                            const Ref x = s.random_input(b, RowDim::tokens, c.cols, 3), w = vec();
                            norm(b, x, w, c.p, c.all ? vec() : Ref{},
                                 c.all ? s.random_input(b, RowDim::tokens, c.cols) : Ref{});
                        }};
        INFO(op.label);
        CHECK(error_of(op, *backend, seed) <= op.tolerance);
        CHECK(rows_are_independent(op, *backend, seed));
    }
}

// So many tokens that a warp takes several, and transforms that are wider than what a warp has of a head.
TEST_CASE("many tokens and wide transforms are rotated and stored as the reference has them, on the GPU") {
    const auto backend = mirrored_card();
    if (!backend) return;
    struct Case {
        Type type;
        int32_t tokens;
        RopeStoreParams p;
    };
    const auto half = RopeStyle::half, adjacent = RopeStyle::adjacent;
    for (const Case& c : {Case{Type::f16, 1541, {2, 1, 32, 32, 32, 8, half}},
                          {Type::q8_0, 1541, {1, 1, 32, 64, 32, 8, adjacent}},
                          {Type::f32, 5, {3, 2, 256, 192, 256, 8, half, 256}},
                          {Type::f32, 5, {2, 1, 1024, 64, 128, 8, adjacent, 512}},
                          {Type::bf16, 5, {2, 2, 576, 0, 64, 8, adjacent}}}) {
        StepShape shape;
        shape.tokens = c.tokens;
        const OpCase op{
            cat(c.tokens, " tokens, ", c.p.head_dim, " columns"), shape, c.type == Type::q8_0 ? 1e-6 : 1e-12,
            [&](Builder& b, CaseSink& s) {
                const RopeStoreParams& p = c.p;
                const int64_t pages = c.tokens / p.page_size + 1, rows = pages * p.page_size * p.n_kv_heads;
                std::vector<int32_t> slots;
                for (int32_t t = 0; t < c.tokens; ++t) slots.push_back(t % 7 ? c.tokens - t : -1);
                const auto input = [&](int64_t cols) { return s.random_input(b, RowDim::tokens, cols); };
                const Ref q = input(int64_t{p.n_heads} * p.head_dim),
                          k = input(int64_t{p.n_kv_heads} * p.head_dim),
                          v = p.v_head_dim ? input(int64_t{p.n_kv_heads} * p.v_head_dim) : Ref{},
                          table = input(p.rot_dim), at = s.int_input(b, RowDim::tokens, 1, slots),
                          keys = s.random_cache(b, c.type, rows, p.head_dim),
                          values = p.v_head_dim ? s.random_cache(b, c.type, rows, p.v_head_dim) : Ref{};
                rope_store(b, {q, k, v}, table, at, keys, values, p);
            }};
        INFO(op.label);
        CHECK(error_of(op, *backend, seed) <= op.tolerance);
    }
}

// Pairs for several warps to sort, of which more than half name an expert that there is not.
TEST_CASE("pairs without an expert give zeros on the GPU, and the others their products") {
    const auto backend = mirrored_card();
    if (!backend) return;
    for (const Type type : {Type::q8_0, Type::f32})
        for (const int32_t used : {1, 7}) {
            StepShape shape;
            shape.tokens = 90;
            const OpCase c{
                "", shape, 1e-6, [&](Builder& b, CaseSink& s) {
                    const Ref weights[2] = {s.random_weight(b, type, 8 * 16, 64),
                                            s.random_weight(b, type, 8 * 16, 64)};
                    const Ref routes = s.random_input(b, RowDim::tokens, 2 * used, 8);
                    moe_matmul(b, weights, s.random_input(b, RowDim::tokens, 64), routes, {8, used});
                }};
            INFO(cat(info(type).name, ", ", used, " experts used"));
            ReferenceBackend reference;
            CaseRun expected(c, reference, seed), actual(c, *backend, seed);
            for (CaseRun* run : {&expected, &actual}) {
                BoundInstr& b = run->bound().front();
                for (int64_t r = 0; r < shape.tokens; ++r) {
                    for (int64_t i = 0; i < used; ++i) b.in[1].row(r)[i] = std::floor(b.in[1].row(r)[i]);
                    std::fill_n(b.out[0].row(r), b.out[0].cols, NAN);
                }
                REQUIRE(run->run() == "");
            }
            CHECK(actual.intact());
            CHECK(CaseRun::error_between(expected, actual) <= c.tolerance);
        }
}

// Rows have units of their own (tiles.h), whatever the range of the format's scales.
TEST_CASE("weights that are very large or very small lose nothing on the GPU") {
    const auto backend = mirrored_card();
    if (!backend) return;
    for (const TypeInfo& t : all_types()) {
        if (!t.decode || !t.encode || t.type == Type::f32) continue;
        const bool wide = t.type == Type::bf16 || t.type == Type::mxfp4;
        for (const float size : {wide ? 1e-25f : 1e-5f, wide ? 1e25f : 1e4f})
            for (const int64_t rows_of_x : {1, 3}) {
                StepShape shape;
                shape.tokens = rows_of_x;
                const OpCase c{cat(t.name, " of size ", size), shape, 1e-6, [&](Builder& b, CaseSink& s) {
                                   matmul(b, s.random_weight(b, t.type, 40, 512, size),
                                          s.random_input(b, RowDim::tokens, 512));
                               }};
                INFO(c.label);
                CHECK(error_of(c, *backend, seed) <= c.tolerance);
            }
    }
}
