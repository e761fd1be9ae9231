// Products of one row: weights of every type, several types in one launch, and rows that do not divide.
// Their sums are scaled in f32, so they are compared with the reference, and with those of the other kernels.
#include <algorithm>

#include <doctest/doctest.h>

#include "ggml/base/cat.h"
#include "ggml/cpu/cpu_backend.h"
#include "tests/cuda/mirror.h"
#include "tests/nmse.h"
#include "tests/ops/harness.h"
#include "tests/output_rows.h"

using namespace nibble;

namespace {

constexpr uint32_t seed = 20261126;
constexpr double tolerance = 1e-6;  // x is rounded to f16

OpCase product(const std::vector<Type>& types, int64_t rows, int64_t cols, int64_t x_rows = 1) {
    StepShape shape;
    shape.tokens = x_rows;
    return {cat(info(types.front()).name, " ", x_rows, " rows by ", rows, " x ", cols), shape, tolerance,
            [=](Builder& b, CaseSink& s) {
                std::vector<Ref> weights, biases;
                int64_t all = 0;
                for (const Type t : types) {
                    const int64_t n = rows + 16 * static_cast<int64_t>(weights.size());
                    weights.push_back(s.random_weight(b, t, n, cols));
                    biases.push_back(s.random_weight(b, Type::f32, 1, n));
                    all += n;
                }
                matmul(b, weights, s.random_input(b, RowDim::tokens, cols),
                       {s.random_input(b, RowDim::tokens, all), biases});
            }};
}

}  // namespace

TEST_CASE("one row is multiplied by every type as the reference does") {
    const auto backend = mirrored_card();
    if (!backend) return;
    for (const TypeInfo& t : all_types()) {
        if (!t.decode || !t.encode || t.type == Type::f32) continue;
        for (const int64_t cols : {256, 768, 1536}) {
            const OpCase c = product({t.type}, 40, cols);
            INFO(c.label);
            CHECK(error_of(c, *backend, seed) <= tolerance);
        }
    }
}

// More columns than a thread block holds in registers; as many row blocks as it takes several turns for.
TEST_CASE("one row of many columns, or by many rows, is multiplied as the reference does") {
    const auto backend = mirrored_card();
    if (!backend) return;
    for (const Type type : {Type::q4_k, Type::f16, Type::nf4})
        for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{17, 5120}, {33, 15360}, {1300, 512}}) {
            const OpCase c = product({type}, rows, cols);
            INFO(c.label);
            CHECK(error_of(c, *backend, seed) <= tolerance);
        }
}

TEST_CASE("weights of several types share the launch of one row") {
    const auto backend = mirrored_card();
    if (!backend) return;
    for (const std::vector<Type>& types : {std::vector{Type::q4_k, Type::q5_k, Type::q6_k},
                                           {Type::nf4, Type::q8_0, Type::nf4},
                                           {Type::bf16, Type::q4_0},
                                           {Type::nf4, Type::iq4_nl}}) {
        for (const int64_t rows : {24, 300}) {
            const OpCase c = product(types, rows, 1024);
            INFO(c.label);
            CHECK(error_of(c, *backend, seed) <= tolerance);
        }
    }
}

TEST_CASE("some rows are multiplied as the reference does, and have the same bits however many they are") {
    const auto backend = mirrored_card();
    if (!backend) return;
    for (const TypeInfo& t : all_types()) {
        if (!t.decode || !t.encode || t.type == Type::f32) continue;
        for (const int64_t x_rows : {2, 8}) {
            const OpCase c = product({t.type, t.type}, 40, x_rows == 2 ? 2304 : 1280, x_rows);
            INFO(c.label);
            CHECK(error_of(c, *backend, seed) <= tolerance);
        }
    }
    // More row blocks than a thread block's shared memory has sums of.
    const OpCase many = product({Type::q4_k, Type::q6_k, Type::bf16}, 2000, 256, 3);
    CHECK(error_of(many, *backend, seed) <= tolerance);
    for (const Type type : {Type::q5_0, Type::nf4}) {
        const OpCase of_8 = product({type}, 40, 768, 8);
        CaseRun all(of_8, *backend, seed);
        REQUIRE(all.run() == "");
        for (const int64_t n : {2, 5}) {
            CaseRun some(product({type}, 40, 768, n), *backend, seed);
            for (size_t i = 0; i < 2; ++i)
                for (int64_t r = 0; r < n; ++r) {
                    const Tensor &from = all.bound().front().in[i], &to = some.bound().front().in[i];
                    std::copy_n(from.row(r), from.cols, to.row(r));
                }
            REQUIRE(some.run() == "");
            const Tensor &a = all.bound().front().out[0], &b = some.bound().front().out[0];
            for (int64_t r = 0; r < n; ++r) CHECK(std::equal(b.row(r), b.row(r) + b.cols, a.row(r)));
        }
    }
}

// Norms and gated units share its launches.
TEST_CASE("a text whose rows come one by one has the logits that other kernels give") {
    auto cpu = CpuBackend::create({1, "", true});
    const auto alone = test_card(), with_others = test_card({.gemv = false});
    REQUIRE(cpu);
    if (!alone) return;
    for (const std::string name : {"models/fairytale-int8.gguf", "models/fairytale"}) {
        INFO(name);
        std::vector<float> logits[2];
        for (const bool gemv : {false, true}) {
            Backend* const both[] = {cpu->get(), gemv ? alone.get() : with_others.get()};
            auto rows = OutputRows::load(cat(NIBBLE_SOURCE_DIR, "/", name), both);
            REQUIRE_MESSAGE(rows, rows.error().message());
            for (int32_t i = 0; i < 5; ++i) {
                const std::vector<OutputRows::Part> part{{{5 + 7 * i}, i, 1}};
                const auto step = rows->step(part);
                REQUIRE_MESSAGE(step, step.error().message());
                logits[gemv].insert(logits[gemv].end(), step->begin(), step->end());
            }
        }
        CHECK(nmse(logits[0], logits[1]) < 1e-6);
        CHECK(logits[0] != logits[1]);
    }
}
