// What a card refuses: more shared memory than a block of its generation has, too many blocks in a direction.
// The emulated cards refuse it too; the second one has least of it, as compute capability 7.5.
#include <doctest/doctest.h>

#include "ggml/base/cat.h"
#include "tests/cuda/mirror.h"
#include "tests/ops/harness.h"

using namespace nibble;

namespace {

constexpr uint32_t seed = 20261122;

// Few rows of a weight as wide as those of large models.
OpCase wide_matmul(Type type, int64_t cols, int64_t rows) {
    StepShape shape;
    shape.tokens = rows;
    return {cat(info(type).name, " ", cols, " columns, ", rows, " rows"), shape, 1e-4,
            [=](Builder& b, CaseSink& s) {
                const Ref w = s.random_weight(b, type, 32, cols);
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
