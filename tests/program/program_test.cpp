// Builder, compile() and Runner: sticky errors, views, arena reuse, placement over two devices, expansions.
// A small chain of real ops stands in for a model.
#include <cstring>
#include <numeric>

#include <doctest/doctest.h>

#include "ggml/ops/ops.h"
#include "ggml/ops/reference_backend.h"
#include "ggml/program/runner.h"

using namespace nibble;

namespace {

// Counts what it hands out, and can pretend to lack an op or to have memory of its own.
class CountingBackend : public ReferenceBackend {
  public:
    const OpDef* lacks = nullptr;
    bool host = true;
    size_t allocated = 0;
    int runs = 0;

    DeviceInfo device() const override { return {"counting", "", host, 0, 0}; }
    bool supports(const OpDef& op, const OpArgs& shapes) const override {
        if (&op != lacks) return true;
        return &op == &matmul_op && !shapes.in[1] && !shapes.in.back();  // the bare product only
    }
    Result<Buffer> allocate(size_t bytes, std::string_view purpose) override {
        allocated += bytes;
        return ReferenceBackend::allocate(bytes, purpose);
    }
    Result<void> run(std::span<BoundInstr> instrs, Observer* observer) override {
        ++runs;
        return ReferenceBackend::run(instrs, observer);
    }
};

constexpr int64_t width = 8;

// Two layers of x += W x + b, then the last row; W is a permutation, so results are exact.
struct Chain {
    std::vector<float> weight = std::vector<float>(width * width), bias = std::vector<float>(width);
    Chain() {
        for (int64_t i = 0; i < width; ++i) weight[static_cast<size_t>(i * width + (i + 1) % width)] = 1;
        std::iota(bias.begin(), bias.end(), 1.0f);
    }
    static Tensor tensor(std::vector<float>& v, int64_t rows) {
        const auto cols = static_cast<int64_t>(v.size()) / rows;
        return {reinterpret_cast<std::byte*>(v.data()), rows, cols, cols * 4, Type::f32, Layout::rows};
    }
    Builder record() {
        Builder b({4, 1, 1});
        Ref x = b.input("x", Type::f32, RowDim::tokens, width);
        const Ref rows = b.input("rows", Type::i32, RowDim::outputs, 1);
        const Ref w = b.weight(tensor(weight, width), "w"), biases[] = {b.weight(tensor(bias, 1), "b")};
        for (int32_t layer = 0; layer < 2; ++layer) {
            b.at(layer, cat("layer ", layer));
            x = matmul(b, w, x, {x, biases});
        }
        b.at(2, "end");
        b.mark_output(take_rows(b, x, rows), "y");
        return b;
    }
};

std::vector<float> run(const Placement& placement, std::span<Backend* const> backends) {
    Chain chain;
    auto program = compile(chain.record(), placement, backends);
    REQUIRE(program);
    auto runner = Runner::create(std::move(*program), backends);
    REQUIRE(runner);
    const auto x = runner->input<float>("x");
    std::iota(x.begin(), x.end(), 0.0f);
    runner->input("rows")[0] = 2;
    REQUIRE(runner->run({3, 1, 1}).ok());
    const auto y = runner->output("y");
    REQUIRE(y);
    return {y->begin(), y->end()};
}

}  // namespace

TEST_CASE("one device, two devices and an expansion give the same values") {
    CountingBackend a, b;
    Backend* const one[] = {&a};
    const auto expected = run({{0, 0}, 0, 0}, one);
    CHECK(expected.size() == width);
    CHECK(expected[0] == 16 + 1 + 17 + (17 + 2 + 18) + 1);  // row 2 of x is 16, 17, ...

    b.host = false;  // inputs and results must be carried over
    Backend* const two[] = {&a, &b};
    CHECK(run({{0, 1}, 0, 1}, two) == expected);
    CHECK(b.runs == 1);
    CHECK(run({{1, 0}, 1, 0}, two) == expected);

    CountingBackend bare;
    bare.lacks = &matmul_op;
    Backend* const lacking[] = {&bare};
    CHECK(run({{0, 0}, 0, 0}, lacking) == expected);
}

TEST_CASE("outputs stay while others are read, also from a device with memory of its own") {
    const auto both = [](bool host) {
        CountingBackend a;
        a.host = host;
        Backend* const one[] = {&a};
        Chain chain;
        Builder b = chain.record();
        const Ref more = b.input("more", Type::f32, RowDim::tokens, width);
        b.mark_output(add(b, more, more), "z");
        auto runner = Runner::create(*compile(std::move(b), {{0, 0}, 0, 0}, one), one);
        REQUIRE(runner);
        for (const char* name : {"x", "more"}) {
            const auto in = runner->input<float>(name);
            std::iota(in.begin(), in.end(), 0.0f);
        }
        runner->input("rows")[0] = 2;
        REQUIRE(runner->run({3, 1, 1}).ok());
        const auto y = runner->output("y"), z = runner->output("z");  // z is longer
        REQUIRE((y && z));
        std::vector<float> all(y->begin(), y->end());
        all.insert(all.end(), z->begin(), z->end());
        return all;
    };
    const auto expected = both(true);
    REQUIRE(expected.size() == width * 4);
    CHECK(expected[0] == 16 + 1 + 17 + (17 + 2 + 18) + 1);
    CHECK(expected[width + 1] == 2);
    CHECK(both(false) == expected);
}

TEST_CASE("the footprint is what is really allocated") {
    CountingBackend a;
    Backend* const one[] = {&a};
    Chain chain;
    auto program = compile(chain.record(), {{0, 0}, 0, 0}, one);
    REQUIRE(program);
    const DeviceFootprint f = program->footprint()[0];
    CHECK(f.weights == (width * width + width) * 4);
    // Both layers' outputs; the result of the end fits where the first layer's, dead by then, was.
    CHECK(f.arena == 2 * 4 * width * 4);
    auto runner = Runner::create(std::move(*program), one);
    REQUIRE(runner);
    CHECK(a.allocated == f.arena);
    CHECK(runner->allocated_bytes(0) == f.arena + f.inputs);
}

TEST_CASE("the first failed check sticks and names the place") {
    Chain chain;
    Builder b({4, 1, 1});
    const Ref x = b.input("x", Type::f32, RowDim::tokens, width + 1);
    b.at(3, "blk.3.attn_q");
    const Ref y = matmul(b, b.weight(Chain::tensor(chain.weight, width), "blk.3.attn_q.weight"), x);
    CHECK(!y);
    glu(b, y);
    norm(b, y, {});
    CountingBackend a;
    Backend* const one[] = {&a};
    const auto program = compile(std::move(b), {}, one);
    REQUIRE(!program);
    CHECK(program.error().where == "blk.3.attn_q");
    CHECK(program.error().what.find("blk.3.attn_q.weight") != std::string::npos);
}

TEST_CASE("columns are views and stay inside") {
    Builder b({2, 1, 1});
    const Ref x = b.input("x", Type::f32, RowDim::tokens, 10);
    CHECK(b.value(b.columns(b.columns(x, 2, 6), 1, 3)).first_col == 3);
    std::vector<float> values(20);
    const Ref w =
        b.weight({reinterpret_cast<std::byte*>(values.data()), 2, 10, 40, Type::f32, Layout::rows}, "w");
    const Value& part = b.value(b.columns(b.columns(w, 2, 6), 1, 3));
    CHECK(part.bound.row(1) == &values[13]);
    CHECK(part.bound.cols == 3);
    CHECK(!b.columns(x, 8, 3));
    CHECK(b.failed());
}

TEST_CASE("a step larger than recorded is refused") {
    CountingBackend a;
    Backend* const one[] = {&a};
    Chain chain;
    auto program = compile(chain.record(), {{0, 0}, 0, 0}, one);
    auto runner = Runner::create(std::move(*program), one);
    CHECK(!runner->run({5, 1, 1}));
    CHECK(!runner->output("z"));
}
