// Kernels compiled for NEON, the vector unit of every 64-bit Arm processor.
// No target region: NEON is part of the baseline of AArch64.
#if defined(__aarch64__)

#include "ggml/cpu/isa/headers.h"

namespace nibble::cpu::neon {

// The order matters: the vocabulary, then the kernels written in it.
// clang-format off
#include "ggml/cpu/simd/neon.inl"
#include "ggml/cpu/simd/neon_dot.inl"
#include "ggml/cpu/kernels/all.inl"
// clang-format on

}  // namespace nibble::cpu::neon

namespace nibble::cpu {

extern const KernelTable neon_table;
constinit const KernelTable neon_table{.name = "neon",
                                       .needs = "NEON",
                                       .available = [](const Features& f) { return f.neon; },
                                       .rows = neon::row_kernels,
                                       .pack = neon::pack_kernels,
                                       .matmul = neon::matmul_kernels,
                                       .attention = neon::attention_kernels,
                                       .state = neon::state_kernels};

}  // namespace nibble::cpu

#endif
