// Finds the card that the tests run on.
// The emulated one is always there; without a real one its tests have nothing to do.
#include "tests/cuda/mirror.h"

#include <doctest/doctest.h>

#include "ggml/base/cat.h"
#include "ggml/ops/reference_backend.h"
#include "tests/nmse.h"
#include "tests/ops/harness.h"

namespace nibble {

std::unique_ptr<CudaBackend> test_card(const CudaOptions& options) {
    if (CudaBackend::devices() == 0) {
        MESSAGE("no GPU: nothing was tested");
        return nullptr;
    }
    auto card = CudaBackend::create(options);
    REQUIRE_MESSAGE(card, card.error().message());
    return std::move(*card);
}

std::unique_ptr<MirrorBackend> mirrored_card(const CudaOptions& options) {
    auto card = test_card(options);
    return card ? std::make_unique<MirrorBackend>(std::move(card)) : nullptr;
}

double error_of(const OpCase& c, Backend& backend, uint32_t seed) {
    ReferenceBackend reference;
    CaseRun expected(c, reference, seed), actual(c, backend, seed);
    REQUIRE(expected.run() == "");
    REQUIRE(actual.run() == "");
    CHECK_MESSAGE(actual.intact(), "a sentinel was overwritten");
    return CaseRun::error_between(expected, actual);
}

void check_case(const OpCase& c, Backend& backend, uint32_t seed) {
    INFO(c.label);
    CHECK(error_of(c, backend, seed) <= c.tolerance);
}

std::vector<Type> types_in_tiles() {
    std::vector<Type> types;
    for (const TypeInfo& t : all_types())
        if (t.decode && t.encode && t.type != Type::f32) types.push_back(t.type);
    return types;
}

OpCase product_case(const std::vector<Type>& types, int64_t x_rows, int64_t rows, int64_t cols,
                    int64_t more) {
    StepShape shape;
    shape.tokens = x_rows;
    return {
        cat(info(types.front()).name, " ", x_rows, " rows by ", types.size(), " times ", rows, " x ", cols),
        shape, 1e-6, [=](Builder& b, CaseSink& s) {
            std::vector<Ref> weights, biases;
            int64_t all = 0;
            for (const Type t : types) {
                const int64_t n = rows + more * static_cast<int64_t>(weights.size());
                weights.push_back(s.random_weight(b, t, n, cols));
                biases.push_back(s.random_weight(b, Type::f32, 1, n));
                all += n;
            }
            matmul(b, weights, s.random_input(b, RowDim::tokens, cols),
                   {s.random_input(b, RowDim::tokens, all), biases});
        }};
}

std::vector<float> results_of_rows(const std::vector<Type>& types, int64_t x_rows, int64_t rows, int64_t cols,
                                   Backend& backend, uint32_t seed) {
    StepShape shape;
    shape.tokens = x_rows;
    const OpCase c{"rows", shape, 1e-6, [=](Builder& b, CaseSink& s) {
                       std::vector<Ref> weights;
                       for (const Type t : types) weights.push_back(s.random_weight(b, t, rows, cols));
                       matmul(b, weights, s.random_input(b, RowDim::tokens, cols));
                   }};
    CaseRun run(c, backend, seed);
    REQUIRE(run.run() == "");
    return run.results();
}

}  // namespace nibble
