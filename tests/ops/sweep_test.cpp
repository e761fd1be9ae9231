// The sweep: every op x type x awkward shape on every backend, ISA and thread count, against the reference.
// Ops and cases come from the ops' own lists, so a new one is tested without an edit here.
#include <algorithm>
#include <memory>

#include <doctest/doctest.h>

#include "ggml/ops/reference_backend.h"
#include "tests/nmse.h"
#include "tests/ops/backends.h"
#include "tests/ops/harness.h"

using namespace nibble;

namespace {

constexpr uint32_t seed = 20261120;

bool reads(CaseRun& run, Type type, int64_t columns = 1) {  // a multiple of so many columns
    for (const BoundInstr& b : run.bound())
        for (const Tensor& t : b.in)
            if (t.data && t.type == type && t.cols % columns == 0) return true;
    return false;
}

// Where products are of bf16, activations enter them with 8 bits, so the bounds of f32 do not hold. A cache
// in f32 is multiplied in f32 everywhere.
double tolerance(const TestBackend& tested, CaseRun& run, const OpDef& op, const OpCase& c) {
    if (!tested.bf16_products) return c.tolerance;
    if (&op == &attention_op) return run.bound().front().in[1].type != Type::f32 ? 1e-4 : c.tolerance;
    const bool product = &op == &matmul_op || &op == &moe_matmul_op;
    return product && (reads(run, Type::bf16) || !tested.deterministic) ? std::max(c.tolerance, 1e-5)
                                                                        : c.tolerance;
}

// check(op, case, run, its results by the first, by the second backend) for every product.
template <class Check>
void each_product(const std::pair<TestBackend, TestBackend>& pair, Check check) {
    for (const OpDef* op : {&matmul_op, &moe_matmul_op})
        for (const OpCase& c : op->cases()) {
            INFO(pair.second.name << ": " << c.label);
            CaseRun a(c, *pair.first.backend, seed), b(c, *pair.second.backend, seed);
            REQUIRE(a.run() == "");
            REQUIRE(b.run() == "");
            check(op, c, a, a.results(), b.results());
        }
}

}  // namespace

TEST_CASE("nmse measures what it says") {
    const float a[] = {3, 4}, b[] = {3, 5}, z[] = {0, 0}, nan[] = {NAN, 4};
    CHECK(nmse(a, b) == doctest::Approx(1.0 / 25));
    CHECK(nmse(a, a) == 0);
    CHECK(nmse(z, z) == 0);
    CHECK(std::isinf(nmse(z, a)));
    CHECK(std::isinf(nmse(a, nan)));
    CHECK(std::isinf(nmse(a, std::span(a, 1))));
}

TEST_CASE("every op on every backend equals the reference") {
    MESSAGE("seed " << seed);
    ReferenceBackend reference;
    int n = 0;
    for (const TestBackend& tested : test_backends()) {
        INFO("backend " << tested.name);
        for (const OpDef* op : all_ops())
            for (const OpCase& c : op->cases()) {
                INFO(c.label);
                CaseRun expected(c, reference, seed), actual(c, *tested.backend, seed);
                REQUIRE(expected.run() == "");
                REQUIRE(actual.run() == "");
                const double error = CaseRun::error_between(expected, actual),
                             allowed = tolerance(tested, actual, *op, c);
                CHECK_MESSAGE(error <= allowed, "error " << error << " tolerance " << allowed);
                CHECK_MESSAGE(actual.intact(), "a sentinel was overwritten");
                ++n;
            }
    }
    CHECK(n > 300);
}

TEST_CASE("results do not depend on the number of threads, to the last bit") {
    const auto pairs = thread_pairs();
    for (const auto& pair : pairs) {
        const TestBackend &one = pair.first, &many = pair.second;  // clang 14 captures no structured bindings
        INFO(one.name << " against " << many.name);
        for (const OpDef* op : all_ops())
            for (const OpCase& c : op->cases()) {
                CaseRun a(c, *one.backend, seed), b(c, *many.backend, seed);
                REQUIRE(a.run() == "");
                REQUIRE(b.run() == "");
                const auto x = a.results(), y = b.results();
                CHECK_MESSAGE(same_bits(x, y), c.label);
            }
    }
}

TEST_CASE("tiles give the bits of vectors, at any number of rows") {
    for (const auto& pair : tile_pairs(true))
        each_product(pair, [](const OpDef*, const OpCase&, CaseRun& a, const auto& x, const auto& y) {
            // Integers have one result. Pairs of bf16 are added in another order, and where K is no multiple
            // of a tile's depth they meet activations as they are.
            if (!reads(a, Type::bf16))
                CHECK(same_bits(x, y));
            else
                CHECK(nmse(x, y) < (reads(a, Type::bf16, cpu::bf16_step) ? 1e-10 : 1e-5));
        });
}

TEST_CASE("tiles in bf16 give nearly what vectors give, and few rows the bits of one") {
    for (const auto& pair : tile_pairs(false)) {
        int many = 0, few = 0;
        each_product(pair, [&](const OpDef* op, const OpCase& c, CaseRun& a, const auto& x, const auto& y) {
            CHECK(nmse(x, y) < 1e-4);
            if (reads(a, Type::bf16)) return;
            // An expert has fewer rows than its product.
            if (c.shape.tokens <= cpu::few_rows) {
                ++few;
                CHECK(same_bits(x, y));
            } else if (op == &matmul_op) {
                many += !same_bits(x, y);
            }
        });
        CHECK(few > 0);
        CHECK(many > 0);
    }
}

TEST_CASE("each row of a batch is bit-equal to the row alone") {
    for (const TestBackend& tested : test_backends()) {
        if (!tested.deterministic) continue;
        INFO("backend " << tested.name);
        for (const OpDef* op : {&matmul_op, &norm_op, &glu_op, &moe_route_op, &moe_matmul_op, &moe_sum_op})
            for (const OpCase& c : op->cases()) {
                INFO(c.label);
                CHECK(rows_are_independent(c, *tested.backend, seed));
            }
        for (const OpCase& c : attention_op.cases()) {
            INFO(c.label);
            CHECK(tokens_are_independent(c, *tested.backend, seed));
        }
        for (const auto& [op, at] : ops_over_states)
            for (const OpCase& c : op->cases()) {
                INFO(c.label);
                CHECK(steps_are_independent(c, *tested.backend, seed, at));
            }
    }
}
