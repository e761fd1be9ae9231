// exact_cpu(): the widest CPU kernels that multiply weights of 16 bits by activations as they are.
// For tests against references that do not round.
#pragma once

#include <memory>

#include <doctest/doctest.h>

#include "ggml/cpu/cpu_backend.h"

namespace nibble {

// Whether the machine's best kernels round what they multiply weights of this type by.
inline bool rounds_activations(Type type) {
    return (*cpu::select_table("auto"))->matmul.operand(info(type), 1, cpu::bf16_step) != cpu::Operand::f32;
}

inline std::unique_ptr<CpuBackend> exact_cpu(int threads = 0) {
    CpuOptions options;
    options.threads = threads;
    for (const cpu::KernelTable* table : cpu::compiled_tables())
        if (table->available(cpu::features()) &&
            table->matmul.operand(info(Type::bf16), 1, cpu::bf16_step) == cpu::Operand::f32)
            options.kernels = table;
    auto backend = CpuBackend::create(options);
    REQUIRE(backend);
    return std::move(*backend);
}

}  // namespace nibble
