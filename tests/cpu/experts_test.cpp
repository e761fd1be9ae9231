// Experts of the CPU backend beyond the op sweep: instructions that are done together.
// Everything loops over the instruction sets that this machine can run.
#include <vector>

#include <doctest/doctest.h>

#include "ggml/cpu/cpu_backend.h"
#include "ggml/types/list.h"
#include "tests/cpu/support.h"

using namespace nibble;

namespace {

constexpr int32_t n_experts = 6, n_used = 4;

// Most rows have the first expert, some twice, and few the last ones; some have less than n_used.
std::vector<float> uneven_routes(int64_t rows) {
    std::vector<float> routes;
    for (int64_t r = 0; r < rows; ++r) {
        const int64_t ids[] = {r % 11 == 3 ? 4 : 0, r % 13 == 0 ? 0 : 1 + r % 2, r % 7 == 1 ? -1 : 3,
                               r % 5 == 4 ? 5 : 9};
        for (const int64_t id : ids) routes.push_back(static_cast<float>(id));
        for (int i = 0; i < n_used; ++i) routes.push_back(0.25f);
    }
    return routes;
}

}  // namespace

TEST_CASE("experts' gate and up end in their unit, with the bits that the three instructions have alone") {
    constexpr int64_t n = 64, k = 256;
    struct Case {
        int64_t rows, n_ff;
        bool bias;
        GluParams params;
    };
    const Case cases[] = {{1, 256, true, {}},  {9, 96, false, {Activation::gelu_tanh, 0, 0}},
                          {40, 256, true, {}}, {40, 80, true, {}},
                          {1, 1088, true, {}}, {90, 1088, false, {Activation::silu, 1.5f, 1}},
                          {570, 64, true, {}}};
    for (const KernelTable* t : tables())
        for (const Type type : {Type::bf16, Type::q8_0, Type::q4_0, Type::q4_k})
            for (const Case& c : cases) {
                INFO(t->name << " " << info(type).name << " " << c.rows << " x " << c.n_ff);
                if (c.n_ff % info(type).block_len != 0) continue;
                const auto b = CpuBackend::create({c.rows == 1 ? 1 : 2, "", true, t, false});
                REQUIRE(b);
                std::vector<Encoded> encodings;  // what is not packed stays where it is
                const auto placed = [&](int64_t rows, int64_t cols, uint32_t seed) {
                    const std::vector<float> values =
                        normal(static_cast<size_t>(n_experts * rows * cols), seed, 0.1f);
                    encodings.push_back(encoded(type, values, n_experts * rows, cols));
                    auto p =
                        (*b)->place(encodings.back().tensor,
                                    rows % packed_expert_rows == 0 ? WeightUse::matmul : WeightUse::apart);
                    REQUIRE(p);
                    return std::move(*p);
                };
                const PlacedWeight gate = placed(c.n_ff, k, 1), up = placed(c.n_ff, k, 2),
                                   down = placed(n, c.n_ff, 3);
                std::vector<float> x = normal(static_cast<size_t>(c.rows * k), 4),
                                   biases = normal(static_cast<size_t>(n_experts * c.n_ff), 5),
                                   routes = uneven_routes(c.rows);
                const Tensor bias = c.bias ? tensor(biases, 1, n_experts * c.n_ff) : Tensor{};
                const Tensor route = tensor(routes, c.rows, 2 * n_used);
                std::vector<Instr> instrs(3);
                instrs[0].op = instrs[2].op = &moe_matmul_op, instrs[1].op = &glu_op;
                instrs[0].params = MoeMatmulParams{n_experts, n_used, 2}, instrs[1].params = c.params;
                instrs[2].params = MoeMatmulParams{n_experts, n_used, 1};
                instrs[0].read_until = instrs[1].read_until = 1;
                const auto results = [&](Observer* observer, std::vector<float>& gate_up) {
                    std::vector<float> y(static_cast<size_t>(c.rows * n_used * c.n_ff)),
                        out(static_cast<size_t>(c.rows * n_used * n), 7);
                    std::vector<BoundInstr> bound(3);
                    bound[0].in = {tensor(x, c.rows, k), route, gate.tensor, up.tensor, bias, bias};
                    bound[0].out = {tensor(gate_up, c.rows, 2 * n_used * c.n_ff)};
                    bound[1].in = {bound[0].out[0], {}};
                    bound[1].out = {tensor(y, c.rows, n_used * c.n_ff)};
                    bound[2].in = {bound[1].out[0], route, down.tensor, {}};
                    bound[2].out = {tensor(out, c.rows, n_used * n)};
                    for (size_t i = 0; i < 3; ++i) bound[i].instr = &instrs[i];
                    run(**b, bound, observer);
                    return out;
                };
                Observer observer;
                std::vector<float> seen(static_cast<size_t>(c.rows * 2 * n_used * c.n_ff)), unseen = seen;
                CHECK(results(&observer, seen) == results(nullptr, unseen));
                const bool real = t->matmul.operand(info(type), c.rows, c.n_ff) == cpu::Operand::f32;
                CHECK((seen != unseen) == (!real && c.n_ff % cpu::int8_block == 0));
            }
}
