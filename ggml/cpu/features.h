// What the processor and the operating system offer, found at run time.
// Only facts are here; which kernels need what is said by each instruction set's table (isa/*.cpp).
#pragma once

#include <cstdint>
#include <string>

namespace nibble::cpu {

struct Features {
    // A vector extension counts only if the operating system saves its registers (XGETBV).
    bool avx2 = false, fma = false, f16c = false;
    bool avx_vnni = false;
    bool avx512f = false, avx512bw = false, avx512vl = false, avx512dq = false;
    bool avx512vnni = false, avx512bf16 = false, avx512vbmi = false;
    bool amx_tile = false, amx_bf16 = false, amx_int8 = false;
    bool neon = false, arm_dotprod = false, arm_i8mm = false, arm_bf16 = false;
    bool amd_zen5 = false;  // family 1Ah
    bool intel = false;
    int64_t last_level = int64_t{16} << 20;  // bytes of its last cache; this, where it does not say
    std::string brand;                       // the processor's name for people; may be empty
};

// Detected once.
const Features& features();

}  // namespace nibble::cpu
