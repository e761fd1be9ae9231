// The kernels of isa/avx512*.cpp and isa/amx.cpp on AVX2: their vocabularies with the instructions in
// software, so that every processor with AVX2 tests them.
#pragma once

#include <span>

#include "ggml/cpu/kernel_table.h"

namespace nibble {

// As `cpu::compiled_tables()`; names end in "-emulated". None on Arm, and none with sanitizers.
std::span<const cpu::KernelTable* const> emulated_tables();

namespace cpu::emulated::avx512 {
extern const RowKernels row_kernels;
extern const PackKernels pack_kernels;
extern const MatmulKernels matmul_kernels;
extern const AttentionKernels attention_kernels;
extern const StateKernels state_kernels;
}  // namespace cpu::emulated::avx512
namespace cpu::emulated::avx512vnni {
extern const PackKernels pack_kernels;
extern const MatmulKernels matmul_kernels;
}  // namespace cpu::emulated::avx512vnni
namespace cpu::emulated::avx512bf16 {
extern const MatmulKernels matmul_kernels;
extern const AttentionKernels attention_kernels;
}  // namespace cpu::emulated::avx512bf16

}  // namespace nibble
