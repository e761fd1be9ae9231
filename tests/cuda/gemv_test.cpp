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

OpCase product(const std::vector<Type>& types, int64_t rows, int64_t cols, int64_t x_rows = 1) {
    return product_case(types, x_rows, rows, cols, 16);
}

}  // namespace

TEST_CASE("one row is multiplied by every type as the reference does") {
    const auto backend = mirrored_card();
    if (!backend) return;
    for (const Type type : types_in_tiles())
        for (const int64_t cols : {256, 768, 1536}) check_case(product({type}, 40, cols), *backend, seed);
}

// More columns than a thread block holds in registers; as many row blocks as it takes several turns for.
TEST_CASE("one row of many columns, or by many rows, is multiplied as the reference does") {
    const auto backend = mirrored_card();
    if (!backend) return;
    for (const Type type : {Type::q4_k, Type::f16, Type::nf4})
        for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{17, 5120}, {33, 15360}, {1300, 512}})
            check_case(product({type}, rows, cols), *backend, seed);
}

TEST_CASE("weights of several types share the launch of one row") {
    const auto backend = mirrored_card();
    if (!backend) return;
    for (const std::vector<Type>& types : {std::vector{Type::q4_k, Type::q5_k, Type::q6_k},
                                           {Type::nf4, Type::q8_0, Type::nf4},
                                           {Type::bf16, Type::q4_0},
                                           {Type::nf4, Type::iq4_nl}})
        for (const int64_t rows : {24, 300}) check_case(product(types, rows, 1024), *backend, seed);
}

TEST_CASE("some rows are multiplied as the reference does, and have the same bits however many they are") {
    const auto backend = mirrored_card();
    if (!backend) return;
    for (const Type type : types_in_tiles())
        for (const int64_t x_rows : {2, 8})
            check_case(product({type, type}, 40, x_rows == 2 ? 2304 : 1280, x_rows), *backend, seed);
    // More row blocks than a thread block's shared memory has sums of.
    check_case(product({Type::q4_k, Type::q6_k, Type::bf16}, 2000, 256, 3), *backend, seed);
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
