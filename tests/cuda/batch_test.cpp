// Products of 9 to 128 rows by warpgroups (generation 9.0; elsewhere other kernels are tested here): against
// the reference, columns in runs and in one, and that a row's bits are its own.
#include <doctest/doctest.h>

#include "tests/cuda/mirror.h"

using namespace nibble;

namespace {

constexpr uint32_t seed = 20261126;

}  // namespace

TEST_CASE("a batch is multiplied by every type as the reference does") {
    const auto backend = mirrored_card();
    if (!backend) return;
    for (const Type type : types_in_tiles())
        for (const int64_t x_rows : {9, 33})
            check_case(product_case({type}, x_rows, 40, 512), *backend, seed);
}

// Tiles of x that are full and not; blocks and row blocks that are not; one tile of columns, even and odd
// numbers of them, more than there are slots, and runs of different lengths.
TEST_CASE("a batch is multiplied up to the edges of its tiles") {
    const auto backend = mirrored_card();
    if (!backend) return;
    for (const Type type : {Type::q4_0, Type::f16, Type::q8_0})
        for (const int64_t cols : {32, 64, 96, 320, 1600})
            for (const auto& [x_rows, rows] : {std::pair{32, 15}, {64, 129}, {100, 20}, {128, 16}, {10, 200}})
                check_case(product_case({type}, x_rows, rows, cols), *backend, seed);
    for (const Type type : {Type::q4_k, Type::q5_k, Type::q6_k})
        for (const auto& [x_rows, cols] : {std::pair{32, 1280}, {33, 2304}, {100, 1792}, {12, 4608}})
            check_case(product_case({type}, x_rows, 35, cols), *backend, seed);
}

TEST_CASE("a batch is multiplied by weights of several types in one launch") {
    const auto backend = mirrored_card();
    if (!backend) return;
    for (const std::vector<Type>& types : {std::vector{Type::q4_k, Type::q5_k, Type::q6_k},
                                           {Type::q8_0, Type::f16, Type::bf16},
                                           {Type::q4_k, Type::nf4, Type::q4_k}})
        for (const int64_t x_rows : {20, 64, 100})
            check_case(product_case(types, x_rows, 140, 1280), *backend, seed);
}

TEST_CASE("how many rows a batch has does not change their bits") {
    const auto backend = mirrored_card();
    if (!backend) return;
    for (const Type type : {Type::q4_k, Type::q6_k, Type::f16}) {
        const auto of = [&](int64_t x_rows) {
            return results_of_rows({type}, x_rows, 150, 1536, *backend, seed);
        };
        const auto few = of(9);
        for (const int64_t more : {30, 50, 100}) {
            const auto many = of(more);
            CHECK(std::equal(few.begin(), few.end(), many.begin()));
        }
    }
}
