// What tests of the CPU backend share: every instruction set here, tensors over vectors, instructions to run.
// Sets of few processors are there in software too.
#pragma once

#include <memory>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include "ggml/cpu/cpu_backend.h"
#include "tests/isa/emulated.h"

namespace nibble {

using cpu::KernelTable;

inline std::vector<const KernelTable*> tables() {
    std::vector<const KernelTable*> list;
    for (const auto tables : {cpu::compiled_tables(), emulated_tables()})
        for (const KernelTable* t : tables)
            if (t->available(cpu::features())) list.push_back(t);
    return list;
}

inline std::unique_ptr<CpuBackend> backend(const KernelTable& t, int threads) {
    auto b = CpuBackend::create({threads, "", true, &t});
    REQUIRE(b);
    return std::move(*b);
}

inline Tensor tensor(std::vector<float>& v, int64_t rows, int64_t cols) {
    return {reinterpret_cast<std::byte*>(v.data()), rows, cols, cols * 4, Type::f32, Layout::rows};
}
inline Tensor tensor(std::vector<int32_t>& v, int64_t rows, int64_t cols) {
    return {reinterpret_cast<std::byte*>(v.data()), rows, cols, cols * 4, Type::i32, Layout::rows};
}

inline std::vector<float> normal(size_t n, uint32_t seed, float scale = 1) {
    std::mt19937 random(seed);
    std::normal_distribution<float> dist(0, scale);
    std::vector<float> v(n);
    for (float& x : v) x = dist(random);
    return v;
}

struct Encoded {
    std::vector<std::byte> bytes;
    Tensor tensor;
};
inline Encoded encoded(Type type, const std::vector<float>& v, int64_t rows, int64_t cols) {
    Encoded e;
    const auto stride = static_cast<int64_t>(*row_bytes(type, cols));
    e.bytes.resize(static_cast<size_t>(rows * stride));
    info(type).encode(v.data(), e.bytes.data(), v.size());
    e.tensor = {e.bytes.data(), rows, cols, stride, type, Layout::rows};
    return e;
}

// Instructions in one run, each with scratch as it asks for.
inline void run(Backend& b, std::vector<BoundInstr> instrs, Observer* observer) {
    std::vector<Buffer> memory;
    for (BoundInstr& i : instrs) {
        auto scratch = b.allocate(b.scratch_bytes(*i.instr->op, i.args()), "scratch");
        REQUIRE(scratch);
        i.scratch = {scratch->data.get(), scratch->size};
        memory.push_back(std::move(*scratch));
    }
    REQUIRE(b.run(instrs, observer));
}

// One instruction on one backend.
inline void run(Backend& b, const OpDef& op, const Params& params, std::vector<Tensor> in,
                std::vector<Tensor> out) {
    Instr instr;
    instr.op = &op;
    instr.params = params;
    BoundInstr bound;
    bound.instr = &instr;
    bound.in = std::move(in);
    bound.out = std::move(out);
    run(b, {bound}, nullptr);
}

}  // namespace nibble
