// What a card refuses: more shared memory than a block of it has, too many blocks in a direction, kernels for
// other cards. The emulated ones refuse it too; the second has as little shared memory as generation 7.5.
#include <cstdlib>

#include <doctest/doctest.h>

#include "ggml/base/cat.h"
#include "tests/cuda/mirror.h"
#include "tests/ops/harness.h"

using namespace nibble;

namespace {

constexpr uint32_t seed = 20261122;

// Few rows of a weight, which may be as wide as those of large models.
OpCase wide_matmul(Type type, int64_t cols, int64_t rows, int64_t weight_rows = 32) {
    StepShape shape;
    shape.tokens = rows;
    return {cat(info(type).name, " ", cols, " columns, ", rows, " rows"), shape, 1e-4,
            [=](Builder& b, CaseSink& s) {
                const Ref w = s.random_weight(b, type, weight_rows, cols);
                matmul(b, w, s.random_input(b, RowDim::tokens, cols));
            }};
}

}  // namespace

TEST_CASE("products keep to the shared memory that the oldest cards have") {
    if (CudaBackend::devices() < 2) {
        MESSAGE("no second GPU: nothing was tested");
        return;
    }
    auto second = CudaBackend::create({.device = 1});
    REQUIRE_MESSAGE(second, second.error().message());
    MirrorBackend backend(std::move(*second));
    for (const Type type : {Type::nf4, Type::q4_0, Type::bf16})
        for (const int64_t cols : {14336, 21760})
            for (const int64_t rows : {1, 33}) {
                const OpCase c = wide_matmul(type, cols, rows);
                INFO(c.label);
                CHECK(error_of(c, backend, seed) <= 1e-6);
            }
}

// Blocks of 128 x 128 are two stages deep there, where three of 16-bit and 8-bit weights have no room.
TEST_CASE("matrices are multiplied with the shared memory that the oldest cards have, and to the same bits") {
    if (CudaBackend::devices() < 2) {
        MESSAGE("no second GPU: nothing was tested");
        return;
    }
    auto first = CudaBackend::create({.device = 1}),
         second = CudaBackend::create({.device = 1, .most_streamed = 0, .warpgroups = false});
    REQUIRE_MESSAGE(first, first.error().message());
    REQUIRE_MESSAGE(second, second.error().message());
    MirrorBackend streamed(std::move(*first)), matrices(std::move(*second));
    for (const Type type : {Type::f16, Type::q8_0, Type::q6_k})
        for (const int64_t cols : {256, 1280}) {
            const OpCase c = wide_matmul(type, cols, 100, 150);
            INFO(c.label);
            CaseRun a(c, streamed, seed), b(c, matrices, seed);
            REQUIRE(a.run() == "");
            REQUIRE(b.run() == "");
            CHECK(same_bits(a.results(), b.results()));
            CHECK(b.intact());
        }
}

TEST_CASE("a card that the program has no kernels for is refused when it is opened") {
    if (CudaBackend::devices() == 0) {
        MESSAGE("no GPU: nothing was tested");
        return;
    }
    REQUIRE(::setenv("NIBBLE_CARD_KERNELS", "0", 1) == 0);  // a real card does not know that
    const auto card = CudaBackend::create({});
    ::unsetenv("NIBBLE_CARD_KERNELS");
    if (card) {
        const std::string name = (*card)->card().name;
        CHECK(name != "emulated");
        CHECK(name != "card in software");
        return;
    }
    CHECK(card.error().code == ErrorCode::unsupported);
    CHECK(card.error().where == "cuda:0");
    CHECK(card.error().what.find("are not in this program") != std::string::npos);
    CHECK(CudaBackend::create({}).ok());  // and nothing is left of the error
}

TEST_CASE("a step can have more rows than a grid has in its second direction") {
    const auto backend = mirrored_card();
    if (!backend) return;
    StepShape shape;
    shape.tokens = 65536;
    const OpCase c{"f32, many rows", shape, 1e-9, [](Builder& b, CaseSink& s) {
                       const Ref w = s.random_weight(b, Type::f32, 2, 4);
                       matmul(b, w, s.random_input(b, RowDim::tokens, 4));
                   }};
    CHECK(error_of(c, *backend, seed) <= 1e-9);
}
