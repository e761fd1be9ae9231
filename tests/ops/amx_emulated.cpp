// The kernels of isa/amx.cpp with the instructions of AMX in plain C++, for the sweep on processors without
// it. Needs AVX-512 VNNI and BF16 for the rest, as the original does.
#if defined(__x86_64__)

#include <cmath>
#include <cstdlib>
#include <limits>

#include "ggml/cpu/isa/headers.h"
#include "ggml/types/float16.h"
#include "tests/ops/backends.h"

#if defined(__clang__)
#pragma clang attribute push(                                                                          \
    __attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512bf16"))), \
    apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512bf16")
#endif

namespace nibble::cpu::amx_emulated {

// The order matters: the vocabulary, then the kernels written in it, then those that need tiles.
// clang-format off
#include "ggml/cpu/simd/avx512.inl"
#include "ggml/cpu/simd/vnni512_dot.inl"
#include "ggml/cpu/simd/avx512bf16_pairs.inl"
#include "tests/ops/amx_ops_emulated.inl"
#include "ggml/cpu/simd/amx.inl"
#include "ggml/cpu/kernels/all.inl"
#include "ggml/cpu/kernels/attention_pairs.inl"
#include "ggml/cpu/kernels/matmul_pairs.inl"
#include "ggml/cpu/kernels/tiles_bf16.inl"
#include "ggml/cpu/kernels/tiles.inl"
// clang-format on

}  // namespace nibble::cpu::amx_emulated

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

namespace nibble {

const cpu::KernelTable& amx_emulated() {
    static constexpr cpu::KernelTable table = cpu::amx_emulated::make_tiled_table(
        "amx-emulated", "AVX-512 F, BW, VL, DQ, VNNI or BF16", [](const cpu::Features& f) {
            return f.avx2 && f.fma && f.f16c && f.avx512f && f.avx512bw && f.avx512vl && f.avx512dq &&
                   f.avx512vnni && f.avx512bf16;
        });
    return table;
}

}  // namespace nibble

#endif
