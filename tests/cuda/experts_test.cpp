// Experts of a few rows: that what they share launches with, and the rows beside a row, change no bit; that a
// row whose expert does not exist gets zeros.
#include <random>

#include <doctest/doctest.h>

#include "ggml/cpu/cpu_backend.h"
#include "ggml/ops/reference_backend.h"
#include "src/eval/synthetic.h"
#include "tests/cuda/mirror.h"
#include "tests/ops/harness.h"
#include "tests/output_rows.h"

using namespace nibble;

namespace {

constexpr uint32_t seed = 20261127;
constexpr int64_t n_embd = 512, n_ff = 768, most_rows = 8;
constexpr int32_t n_experts = 6, n_used = 3;

// Norm, router, choice, gate and up, unit, down, sum and residual, as a model has them; with the results of
// an expert that all rows share, if wanted.
class Experts {
  public:
    Experts(Type type, bool shared, const CudaOptions& options) : card_(test_card(options)) {
        if (!card_) return;
        Builder b({most_rows, 1, 1});
        std::mt19937 random(seed);
        std::normal_distribution<float> normal(0, 0.1f);
        const auto weight = [&](int64_t rows, int64_t cols, Type t) {
            GuardedRows& w = weights_.emplace_back(GuardedRows::make(t, rows, cols, 0));
            std::vector<float> row(static_cast<size_t>(cols));
            for (int64_t r = 0; r < rows; ++r) {
                for (float& v : row) v = normal(random);
                info(t).encode(row.data(), w.tensor.data + r * w.tensor.stride, row.size());
            }
            auto placed = card_->place(w.tensor, rows == 1 ? WeightUse::vector : WeightUse::matmul);
            REQUIRE(placed);
            placed_.push_back(std::move(*placed));
            return b.weight(placed_.back().tensor, "w");
        };
        // What a norm reads is a result: an input is in memory of its own.
        const Ref residual = add(b, b.input("x", Type::f32, RowDim::tokens, n_embd),
                                 b.input("y", Type::f32, RowDim::tokens, n_embd));
        const Ref x = norm(b, residual, weight(1, n_embd, Type::f32));
        const Ref bias[] = {weight(1, n_experts, Type::f32)};
        const Ref logits = matmul(b, weight(n_experts, n_embd, Type::f32), x, {{}, bias});
        const Ref routes =
            moe_route(b, logits, {n_used, true, Gating::sigmoid}, weight(1, n_experts, Type::f32));
        const Ref gate_up[] = {weight(n_experts * n_ff, n_embd, type),
                               weight(n_experts * n_ff, n_embd, type)};
        const Ref gate_up_bias[] = {weight(1, n_experts * n_ff, Type::f32), Ref{}};
        const Ref down[] = {weight(n_experts * n_embd, n_ff, type)};
        const Ref hidden = moe_matmul(b, gate_up, x, routes, {n_experts, n_used}, gate_up_bias);
        const Ref y = glu(b, hidden, {Activation::silu});
        const Ref outputs = moe_matmul(b, down, y, routes, {n_experts, n_used});
        const Ref beside = shared ? b.input("beside", Type::f32, RowDim::tokens, n_embd) : Ref{},
                  gate = shared ? b.input("gate", Type::f32, RowDim::tokens, 1) : Ref{};
        b.mark_output(add(b, residual, moe_sum(b, outputs, routes, beside, gate), {0.5f}), "out");
        inputs_ = {"x", "y"};
        if (shared) inputs_.insert(inputs_.end(), {"beside", "gate"});
        Backend* const backends[] = {card_.get()};
        auto program = compile(std::move(b), {}, backends);
        REQUIRE(program);
        auto runner = Runner::create(std::move(*program), backends);
        REQUIRE(runner);
        runner_ = std::make_unique<Runner>(std::move(*runner));
    }
    explicit operator bool() const { return card_ != nullptr; }

    std::vector<float> run(int64_t rows) {
        std::mt19937 random(seed);
        std::normal_distribution<float> normal(0, 1);
        for (const std::string& name : inputs_)
            for (float& v : runner_->input<float>(name)) v = normal(random);
        REQUIRE(runner_->run({rows, 1, 1}));
        const auto out = runner_->output("out");
        REQUIRE(out);
        return {out->begin(), out->begin() + rows * n_embd};
    }
    int64_t joined() const { return card_->joined_instructions(); }

  private:
    std::unique_ptr<CudaBackend> card_;
    std::deque<GuardedRows> weights_;
    std::vector<PlacedWeight> placed_;
    std::vector<std::string> inputs_;
    std::unique_ptr<Runner> runner_;
};

}  // namespace

TEST_CASE("experts that share launches give the bits of those by themselves, and of rows alone") {
    for (const Type type : {Type::q4_k, Type::q8_0, Type::nf4}) {
        INFO(info(type).name);
        const bool shared = type == Type::q8_0;
        Experts joined(type, shared, {.graphs = false}),
            apart(type, shared, {.graphs = false, .joined = false});
        if (!joined) return;
        const std::vector<float> one = joined.run(1);
        for (const int64_t rows : {1, 3}) {
            const int64_t before = joined.joined();
            const std::vector<float> together = joined.run(rows);
            // The router and the choice; the unit; the sum and the residual.
            CHECK(joined.joined() - before == 2 + 1 + 2);
            CHECK(same_bits(together, apart.run(rows)));
            CHECK(std::equal(one.begin(), one.end(), together.begin()));
        }
    }
}

TEST_CASE("each of a few rows of experts is bit-equal to the row alone") {
    const auto backend = mirrored_card();
    if (!backend) return;
    for (const OpCase& c : moe_matmul_op.cases()) {
        if (c.shape.tokens > 8) continue;
        INFO(c.label);
        CHECK(rows_are_independent(c, *backend, seed));
    }
}

TEST_CASE("a chosen expert that does not exist gives zeros") {
    const auto card = mirrored_card();
    if (!card) return;
    const OpCase c{
        "experts", {2, 1, 1}, 1e-6, [](Builder& b, CaseSink& s) {
            std::vector<Ref> weights;
            for (int i = 0; i < 2; ++i)
                weights.push_back(s.random_weight(b, Type::q8_0, n_experts * 32, 256));
            const Ref x = s.random_input(b, RowDim::tokens, 256);
            moe_matmul(b, weights, x, s.random_input(b, RowDim::tokens, 2 * n_used), {n_experts, n_used});
        }};
    ReferenceBackend reference;
    CaseRun expected(c, reference, seed), actual(c, *card, seed);
    constexpr float chosen[2][n_used] = {{0, -1, 5}, {n_experts, 2, 1e9f}};
    for (CaseRun* const run : {&expected, &actual}) {
        for (int64_t r = 0; r < 2; ++r) std::copy_n(chosen[r], n_used, run->bound()[0].in[1].row(r));
        REQUIRE(run->run() == "");
    }
    CHECK(CaseRun::error_between(expected, actual) <= 1e-6);
    const std::vector<float> results = actual.results();
    for (const int64_t missing : {1, n_used + 1})  // of the first row, of both weights
        for (int64_t i = 0; i < 32; ++i) CHECK(results[static_cast<size_t>(missing * 32 + i)] == 0);
}

namespace {

// A known mixture with small matrices, which few columns divide otherwise than its own.
ModelShape small_mixture(std::string_view name, int32_t width) {
    auto shape = find_shape(name);
    REQUIRE(shape);
    shape->n_layers = 2, shape->n_embd = width, shape->n_ff = shape->n_ff_expert = width;
    shape->n_heads = 4, shape->n_kv_heads = 2, shape->n_vocab = 300, shape->n_ctx = 64;
    shape->n_experts = 8, shape->n_experts_used = 3;
    return *shape;
}

}  // namespace

TEST_CASE("a mixture's layer is six launches, and a step's rows have the logits that each has alone") {
    auto cpu = CpuBackend::create({1, "", true});
    REQUIRE(cpu);
    ThreadPool pool(1);
    for (const std::string_view name : {"qwen3-30b-a3b", "gpt-oss-20b"}) {
        INFO(name);
        const auto card = test_card({.graphs = false});
        if (!card) return;
        auto model = synthetic_model(small_mixture(name, name == "gpt-oss-20b" ? 576 : 512), "int8",
                                     Fill::random, 1, pool);
        REQUIRE_MESSAGE(model.ok(), (model ? "" : model.error().message()));
        Backend* const both[] = {cpu->get(), card.get()};
        auto rows = OutputRows::load(std::move(*model), both);
        REQUIRE_MESSAGE(rows, (rows ? "" : rows.error().message()));
        const auto logits = [&](const std::vector<OutputRows::Part>& parts) {
            const int64_t before = card->joined_instructions();
            auto step = rows->step(parts);
            REQUIRE_MESSAGE(step, (step ? "" : step.error().message()));
            // Of each layer: norm, q, k and v, norms of heads where there are some, and what stores them; the
            // router and the choice; the unit; the sum and the residual. And the output's norm, and
            // the rows of which logits are wanted.
            const int64_t norms_of_heads = name == "gpt-oss-20b" ? 0 : 2;
            CHECK(card->joined_instructions() - before == 2 * (2 + norms_of_heads + 2 + 1 + 2) + 1 + 1);
            return std::move(*step);
        };
        std::vector<float> alone;
        for (const int32_t token : {5, 12, 19}) {
            const auto row = logits({{{token}, 0, 1}});
            alone.insert(alone.end(), row.begin(), row.end());
        }
        CHECK(same_bits(alone, logits({{{5}, 0, 1}, {{12}, 0, 1}, {{19}, 0, 1}})));
    }
}
