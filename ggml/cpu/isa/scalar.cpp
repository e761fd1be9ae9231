// Kernels compiled for the baseline of the architecture.
// No target region: this is what every processor of the architecture can run.
#include "ggml/cpu/isa/headers.h"

namespace nibble::cpu::scalar {

// The order matters: the vocabulary, then the kernels written in it.
// clang-format off
#include "ggml/cpu/simd/scalar.inl"
#include "ggml/cpu/kernels/all.inl"
// clang-format on

}  // namespace nibble::cpu::scalar

namespace nibble::cpu {

extern const KernelTable scalar_table;
constinit const KernelTable scalar_table{.name = "scalar",
                                         .needs = "nothing",
                                         .available = [](const Features&) { return true; },
                                         .rows = scalar::row_kernels,
                                         .pack = scalar::pack_kernels,
                                         .matmul = scalar::matmul_kernels,
                                         .attention = scalar::attention_kernels,
                                         .state = scalar::state_kernels};

}  // namespace nibble::cpu
