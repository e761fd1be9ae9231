// Products of the CPU backend beyond the op sweep: NaN, joined instructions, extremes of codes, numbers of
// rows. Everything loops over the instruction sets that this machine can run.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include "ggml/cpu/cpu_backend.h"
#include "ggml/ops/reference_backend.h"
#include "ggml/types/arbitrary.h"
#include "ggml/types/list.h"
#include "tests/cpu/support.h"
#include "tests/nmse.h"

using namespace nibble;

TEST_CASE("a NaN or infinity in a row makes every output of the row NaN, and no other row's") {
    for (const KernelTable* t : tables())
        for (const Type type : {Type::f32, Type::f16, Type::bf16, Type::q8_0})
            for (const int64_t rows : {1, 3, 9, 40})
                for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
                    auto b = backend(*t, 2);
                    const int64_t n = 40, k = 96, row = rows / 2;
                    Encoded w = encoded(type, normal(static_cast<size_t>(n * k), 5), n, k);
                    std::vector<float> x = normal(static_cast<size_t>(rows * k), 6),
                                       out(static_cast<size_t>(rows * n));
                    x[static_cast<size_t>(row * k + 37)] = bad;
                    run(*b, matmul_op, MatmulParams{1}, {tensor(x, rows, k), {}, w.tensor, {}},
                        {tensor(out, rows, n)});
                    for (int64_t i = 0; i < rows * n; ++i)
                        CHECK(std::isfinite(out[static_cast<size_t>(i)]) == (i / n != row));
                }
}

TEST_CASE("a gated unit goes into the product behind it, with the bits that both have by themselves") {
    constexpr int64_t n = 40, k = 1120;  // columns of more than one piece
    for (const KernelTable* t : tables())
        for (const Type type : {Type::f32, Type::bf16, Type::q8_0, Type::q4_0})
            for (const int64_t rows : {1, 9, 40}) {
                INFO(t->name << " " << info(type).name << " " << rows);
                const auto b = CpuBackend::create({2, "", true, t, false});
                REQUIRE(b);
                const Encoded w = encoded(type, normal(static_cast<size_t>(n * k), 5), n, k);
                std::vector<float> gate_up = normal(static_cast<size_t>(rows * 2 * k), 6);
                Instr glu, product;
                glu.op = &glu_op, glu.params = GluParams{}, glu.read_until = 1;
                product.op = &matmul_op, product.params = MatmulParams{1};
                CHECK((*b)->joins_next(glu));
                const auto results = [&](Observer* observer, std::vector<float>& between) {
                    std::vector<float> out(static_cast<size_t>(rows * n));
                    std::vector<BoundInstr> both(2);
                    both[0].instr = &glu;
                    both[0].in = {tensor(gate_up, rows, 2 * k), {}};
                    both[0].out = {tensor(between, rows, k)};
                    both[1].instr = &product;
                    both[1].in = {tensor(between, rows, k), {}, w.tensor, {}};
                    both[1].out = {tensor(out, rows, n)};
                    run(**b, both, observer);
                    return out;
                };
                // Who watches sees both.
                Observer observer;
                std::vector<float> seen(static_cast<size_t>(rows * k), 7), unseen = seen;
                CHECK(results(&observer, seen) == results(nullptr, unseen));
                CHECK(seen[3] != 7);
                const cpu::Operand operand = t->matmul.operand(info(type), rows, k);
                CHECK((unseen[3] == 7) == (operand != cpu::Operand::f32));
            }
}

TEST_CASE("gate and up end in their unit, with the bits that the three instructions have by themselves") {
    constexpr int64_t n = 40;
    struct Case {
        int64_t rows, cols;
        bool one_weight, bias;
        GluParams params;
        int64_t k = 320;
    };
    const Case cases[] = {
        {33, 64, false, false, {}},      {70, 96, false, true, {Activation::gelu_tanh, 0, 0}},
        {600, 96, true, true, {}},       {40, 1088, false, false, {Activation::silu, 1.5f, 1}},
        {40, 1088, true, false, {}},     {40, 80, false, false, {}},
        {51, 256, false, true, {}, 512}, {35, 64, false, false, {}, 2048}};
    for (const KernelTable* t : tables())
        for (const Type type :
             {Type::bf16, Type::q8_0, Type::q4_0, Type::q5_1, Type::nf4, Type::q4_k, Type::q6_k})
            for (const Case& c : cases) {
                INFO(t->name << " " << info(type).name << " " << c.rows << " x " << c.cols);
                const int64_t k = c.k;
                if (c.cols % info(type).block_len != 0 || k % info(type).block_len != 0) continue;
                const auto b = CpuBackend::create({2, "", true, t, false});
                REQUIRE(b);
                const auto placed = [&](int64_t rows, int64_t cols, uint32_t seed) {
                    const Encoded w =
                        encoded(type, normal(static_cast<size_t>(rows * cols), seed, 0.1f), rows, cols);
                    auto p = (*b)->place(w.tensor, WeightUse::matmul);
                    REQUIRE(p);
                    return std::move(*p);
                };
                const int64_t of_weight = c.one_weight ? 2 * c.cols : c.cols;
                const PlacedWeight gate = placed(of_weight, k, 1), up = placed(of_weight, k, 2),
                                   down = placed(n, c.cols, 3);
                std::vector<float> x = normal(static_cast<size_t>(c.rows * k), 4),
                                   bias = normal(static_cast<size_t>(2 * c.cols), 5);
                const auto bias_of = [&](int64_t from, int64_t count) {
                    Tensor v = tensor(bias, 1, count);
                    v.data += from * 4;
                    return c.bias ? v : Tensor{};
                };
                std::vector<Instr> instrs(3);
                instrs[0].op = instrs[2].op = &matmul_op, instrs[1].op = &glu_op;
                instrs[0].params = MatmulParams{c.one_weight ? 1 : 2}, instrs[1].params = c.params;
                instrs[0].read_until = instrs[1].read_until = 1, instrs[2].params = MatmulParams{1};
                const auto results = [&](Observer* observer, std::vector<float>& gate_up) {
                    std::vector<float> y(static_cast<size_t>(c.rows * c.cols)),
                        out(static_cast<size_t>(c.rows * n));
                    std::vector<BoundInstr> bound(3);
                    if (c.one_weight)
                        bound[0].in = {tensor(x, c.rows, k), {}, gate.tensor, bias_of(0, 2 * c.cols)};
                    else
                        bound[0].in = {tensor(x, c.rows, k),   {}, gate.tensor, up.tensor, bias_of(0, c.cols),
                                       bias_of(c.cols, c.cols)};
                    bound[0].out = {tensor(gate_up, c.rows, 2 * c.cols)};
                    bound[1].in = {bound[0].out[0], {}};
                    bound[1].out = {tensor(y, c.rows, c.cols)};
                    bound[2].in = {bound[1].out[0], {}, down.tensor, {}};
                    bound[2].out = {tensor(out, c.rows, n)};
                    for (size_t i = 0; i < 3; ++i) bound[i].instr = &instrs[i];
                    run(**b, bound, observer);
                    return out;
                };
                Observer observer;
                std::vector<float> seen(static_cast<size_t>(c.rows * 2 * c.cols)), unseen = seen;
                CHECK(results(&observer, seen) == results(nullptr, unseen));
                const bool gated = t->matmul.operand(info(type), c.rows, k) == t->matmul.gated_operand;
                CHECK((seen != unseen) == (gated && c.cols % cpu::bf16_step == 0));
            }
}

TEST_CASE("rows of products of more than a few have the same bits, however many there are") {
    constexpr int64_t n = 72, k = 640, most = 530;
    std::vector<float> x = normal(static_cast<size_t>(most * k), 4), all(static_cast<size_t>(most * n));
    for (const KernelTable* t : tables())
        for (const Type type : {Type::bf16, Type::q8_0, Type::q4_0, Type::nf4}) {
            const auto b = CpuBackend::create({1, "", true, t, false});
            REQUIRE(b);
            const Encoded w = encoded(type, normal(static_cast<size_t>(n * k), 5), n, k);
            const auto placed = (*b)->place(w.tensor, WeightUse::matmul);
            REQUIRE(placed);
            const auto multiply = [&](int64_t rows, std::vector<float>& out) {
                run(**b, matmul_op, MatmulParams{1}, {tensor(x, rows, k), {}, placed->tensor, {}},
                    {tensor(out, rows, n)});
            };
            multiply(most, all);
            for (const int64_t rows : {33, 63, 80, 97, 160, 161, 384}) {
                INFO(t->name << " " << info(type).name << " " << rows);
                std::vector<float> some(static_cast<size_t>(rows * n));
                multiply(rows, some);
                CHECK(std::equal(some.begin(), some.end(), all.begin()));
            }
        }
}

// Rows times n x k weights on a backend that streams them in some way.
class FewRows {
  public:
    static constexpr int64_t n = 72, most = 45;

    FewRows(const KernelTable& table, const Tensor& w, bool pack, const cpu::Streaming& streaming)
        : k_(w.cols), x_(normal(static_cast<size_t>(most * k_), 4)) {
        auto b = CpuBackend::create({1, "", pack, &table, true, streaming});
        REQUIRE(b);
        backend_ = std::move(*b);
        auto placed = backend_->place(w, WeightUse::matmul);
        REQUIRE(placed);
        w_ = std::move(*placed);
    }
    std::vector<float> multiply(int64_t first, int64_t rows) {
        std::vector<float> out(static_cast<size_t>(rows * n));
        const Tensor in{
            reinterpret_cast<std::byte*>(x_.data() + first * k_), rows, k_, 4 * k_, Type::f32, Layout::rows};
        run(*backend_, matmul_op, MatmulParams{1}, {in, {}, w_.tensor, {}}, {tensor(out, rows, n)});
        return out;
    }

  private:
    int64_t k_;
    std::vector<float> x_;
    std::unique_ptr<CpuBackend> backend_;
    PlacedWeight w_;
};

// Whatever multiplies them: vectors one row, tiles 16 of them and several tiles in turn, and wherever weights
// come from: one place or several. Columns end behind four groups that are streamed side by side, K inside of
// what tiles go through at once.
void few_rows_equal_one(const KernelTable& table, const TypeInfo& type, int64_t k, bool pack) {
    const Encoded w = encoded(type.type, normal(static_cast<size_t>(FewRows::n * k), 5), FewRows::n, k);
    FewRows one(table, w.tensor, pack, {.code_streams = 1, .one_real_group = true});
    FewRows several(table, w.tensor, pack,
                    {.code_rows = 1, .real_rows = 1, .code_streams = 4, .by_levels = true});
    std::vector<float> alone;
    for (int64_t r = 0; r < FewRows::most; ++r) {
        const auto row = (r % 2 == 0 ? one : several).multiply(r, 1);
        alone.insert(alone.end(), row.begin(), row.end());
    }
    const auto equal = [&](FewRows& product, int64_t rows) {
        INFO(table.name << " " << type.name << " " << rows << " rows of " << k << " packed " << pack);
        const auto some = product.multiply(0, rows);
        CHECK(std::equal(some.begin(), some.end(), alone.begin()));
    };
    for (const int64_t rows : {2, 8, 25}) equal(one, rows);
    for (const int64_t rows : {2, 8, 9, 16, 25, 45}) equal(several, rows);
}

TEST_CASE("rows of products have the bits of one row, however many there are and from how many places") {
    for (const KernelTable* table : tables())
        for (const TypeInfo& type : all_types()) {
            if (!type.encode) continue;
            for (const int64_t k : {32, 96, 288, 448, 768})
                if (k % type.block_len == 0) few_rows_equal_one(*table, type, k, k != 768);
        }
}

// Products are added up in 16 bits where they fit.
TEST_CASE("the largest codes times the largest activations overflow nowhere") {
    constexpr int64_t n = 40, k = 512, rows = 9;
    std::vector<float> x(rows * k, 1);
    for (size_t i = 0; i < k; ++i) x[k + i] = -1;
    ReferenceBackend reference;
    for (const TypeInfo& t : all_types()) {
        if (!t.encode || t.block_len == 1) continue;
        for (const float sign : {1.0f, -1.0f}) {
            std::vector<float> values(n * k, sign), expected(rows * n), out(rows * n);
            for (size_t i = 0; i < values.size(); i += 16) values[i] = -1.001f * sign;
            const Encoded w = encoded(t.type, values, n, k);
            run(reference, matmul_op, MatmulParams{1}, {tensor(x, rows, k), {}, w.tensor, {}},
                {tensor(expected, rows, n)});
            for (const KernelTable* table : tables()) {
                INFO(table->name << " " << t.name << " " << sign);
                const auto b = backend(*table, 1);
                auto placed = b->place(w.tensor, WeightUse::matmul);
                REQUIRE(placed);
                for (const int64_t some : {int64_t{1}, rows}) {
                    run(*b, matmul_op, MatmulParams{1}, {tensor(x, some, k), {}, placed->tensor, {}},
                        {tensor(out, some, n)});
                    const auto size = static_cast<size_t>(some * n);
                    CHECK(nmse(std::span(expected).first(size), std::span(out).first(size)) < 1e-5);
                }
            }
        }
    }
}

template <class Fmt>
Encoded arbitrary(int64_t rows, int64_t cols) {
    std::mt19937 random(7);
    const auto blocks = static_cast<size_t>(rows * cols / Fmt::block_len);
    Encoded e;
    e.bytes.resize(blocks * sizeof(typename Fmt::Block));
    for (size_t i = 0; i < blocks; ++i) {
        const auto b = arbitrary_block<Fmt>(random, 0.01f, 0.03f);
        std::memcpy(e.bytes.data() + i * sizeof b, &b, sizeof b);
    }
    const auto stride = static_cast<int64_t>(*row_bytes(Fmt::type, cols));
    e.tensor = {e.bytes.data(), rows, cols, stride, Fmt::type, Layout::rows};
    return e;
}

TEST_CASE("any codes and any integers of scales, for one row as for many") {
    constexpr int64_t n = 40, k = 512, rows = 49;
    std::vector<float> x = normal(rows * k, 3);
    ReferenceBackend reference;
    for (const Encoded& w :
         {arbitrary<Q2_K>(n, k), arbitrary<Q3_K>(n, k), arbitrary<Q4_K>(n, k), arbitrary<Q5_K>(n, k),
          arbitrary<Q6_K>(n, k), arbitrary<IQ4_XS>(n, k), arbitrary<IQ2_XXS>(n, k), arbitrary<IQ2_XS>(n, k),
          arbitrary<IQ2_S>(n, k), arbitrary<IQ3_XXS>(n, k), arbitrary<IQ3_S>(n, k), arbitrary<IQ1_S>(n, k),
          arbitrary<IQ1_M>(n, k), arbitrary<TQ2_0>(n, k), arbitrary<Q2_0>(n, k)}) {
        std::vector<float> expected(rows * n), many(rows * n), one(n);
        run(reference, matmul_op, MatmulParams{1}, {tensor(x, rows, k), {}, w.tensor, {}},
            {tensor(expected, rows, n)});
        for (const KernelTable* table : tables()) {
            INFO(table->name << " " << info(w.tensor.type).name);
            const auto b = backend(*table, 1);
            auto placed = b->place(w.tensor, WeightUse::matmul);
            REQUIRE(placed);
            run(*b, matmul_op, MatmulParams{1}, {tensor(x, rows, k), {}, placed->tensor, {}},
                {tensor(many, rows, n)});
            run(*b, matmul_op, MatmulParams{1}, {tensor(x, 1, k), {}, placed->tensor, {}},
                {tensor(one, 1, n)});
            CHECK(nmse(expected, many) < 1e-4);
            CHECK(std::memcmp(one.data(), many.data(), n * sizeof(float)) == 0);
        }
    }
}
