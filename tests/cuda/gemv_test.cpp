// Products of one row and of some: weights of every type, several types in one launch, and rows that do not
// divide, against the reference and the other kernels; and that a row has the bits that it has alone.
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

// Columns that are no whole units of a type whose blocks are smaller; of any of them, one unit or more.
std::vector<int64_t> broken_columns(Type type) {
    if (info(type).block_len > 64) return {};
    return {576, 896, 1344};
}

}  // namespace

TEST_CASE("one row is multiplied by every type as the reference does") {
    const auto backend = mirrored_card();
    if (!backend) return;
    for (const Type type : types_in_tiles()) {
        for (const int64_t cols : {256, 768, 1536}) check_case(product({type}, 40, cols), *backend, seed);
        for (const int64_t cols : broken_columns(type))
            for (const int64_t x_rows : {1, 3}) check_case(product({type}, 40, cols, x_rows), *backend, seed);
    }
}

TEST_CASE("columns that are no whole units are multiplied as others are") {
    const auto units = mirrored_card(), tiles = mirrored_card({.gemv = false});
    if (!units) return;
    for (const Type type : types_in_tiles())
        for (const int64_t cols : broken_columns(type)) {
            INFO(info(type).name << " " << cols);
            for (const int64_t x_rows : {1, 3})  // in another order than the kernels that are for many rows
                CHECK(results_of_rows({type}, x_rows, 300, cols, *units, seed) !=
                      results_of_rows({type}, x_rows, 300, cols, *tiles, seed));
        }
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

namespace {

const std::vector<std::vector<Type>> lists = {{Type::q4_k, Type::q5_k, Type::q6_k},
                                              {Type::q6_k, Type::q4_k},
                                              {Type::nf4, Type::q8_0, Type::nf4},
                                              {Type::q4_k, Type::q6_k, Type::bf16}};

}  // namespace

TEST_CASE("some rows are multiplied as the reference does") {
    const auto backend = mirrored_card();
    if (!backend) return;
    for (const Type type : types_in_tiles())
        check_case(product({type}, 40, 1536, type == Type::q4_k ? 8 : 3), *backend, seed);
    for (const auto& types : lists) check_case(product(types, 24, 1024, 5), *backend, seed);
}

// More row blocks than a thread block's shared memory has sums of, too.
TEST_CASE("some rows by many are multiplied as the reference does") {
    const auto backend = mirrored_card();
    if (!backend) return;
    for (const Type type : types_in_tiles())
        for (const int64_t x_rows : {2, 8})
            check_case(product({type, type}, 40, x_rows == 2 ? 2304 : 1536, x_rows), *backend, seed);
    for (const auto& types : lists) check_case(product(types, 300, 1024, 5), *backend, seed);
    for (const Type type : types_in_tiles())  // of which not all divide
        check_case(product({type, type}, 40, 1280, 8), *backend, seed);
    check_case(product({Type::q4_k, Type::q6_k}, 2000, 256, 3), *backend, seed);
    check_case(product({Type::q4_k, Type::q6_k, Type::bf16}, 2000, 256, 3), *backend, seed);
    check_case(product({Type::iq4_nl}, 4000, 256, 8), *backend, seed);
}

TEST_CASE("a row has the same bits alone and among up to eight") {
    const auto backend = mirrored_card();
    if (!backend) return;
    const auto check = [&](const std::vector<Type>& types, int64_t rows, int64_t cols) {
        INFO(info(types.front()).name);
        const auto of = [&](int64_t x_rows) {
            return results_of_rows(types, x_rows, rows, cols, *backend, seed);
        };
        const std::vector<float> all = of(8);
        for (const int64_t n : {1, 2, 5}) {
            const std::vector<float> some = of(n);
            CHECK(std::equal(some.begin(), some.end(), all.begin()));
        }
    };
    for (const Type type : types_in_tiles()) {
        check({type}, 40, 1536);
        for (const int64_t cols : broken_columns(type)) check({type, type}, 24, cols);
    }
    check({Type::q4_k, Type::q5_k, Type::q6_k}, 150, 768);
    check({Type::q8_0, Type::q8_0, Type::q8_0}, 100, 2048);
    check({Type::q4_0}, 17, 15360);
    check({Type::f16}, 1300, 256);
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

// With their norms and gated units: some users at once, and tokens that were guessed.
TEST_CASE("a step's rows have the logits that each has alone, up to eight") {
    auto cpu = CpuBackend::create({1, "", true});
    const auto card = test_card();
    REQUIRE(cpu);
    if (!card) return;
    Backend* const both[] = {cpu->get(), card.get()};
    for (const std::string name : {"models/fairytale-int8.gguf", "models/fairytale"}) {
        INFO(name);
        auto rows = OutputRows::load(cat(NIBBLE_SOURCE_DIR, "/", name), both);
        REQUIRE_MESSAGE(rows, rows.error().message());
        const auto logits = [&](const std::vector<OutputRows::Part>& parts) {
            auto step = rows->step(parts);
            REQUIRE_MESSAGE(step, step.error().message());
            return std::move(*step);
        };
        const int32_t tokens[] = {5, 12, 19};
        std::vector<float> alone;
        for (const int32_t t : tokens) {
            const auto row = logits({{{t}, 0, 1}});
            alone.insert(alone.end(), row.begin(), row.end());
        }
        CHECK(alone == logits({{{tokens[0]}, 0, 1}, {{tokens[1]}, 0, 1}, {{tokens[2]}, 0, 1}}));
        const std::vector<int32_t> text{5, 12, 19, 26, 33};
        std::vector<float> one_by_one;
        for (int32_t i = 0; i < 5; ++i) {
            const auto row = logits({{{text[static_cast<size_t>(i)]}, i, 1}});
            one_by_one.insert(one_by_one.end(), row.begin(), row.end());
        }
        CHECK(one_by_one == logits({{text, 0, 5}}));
    }
}
