// CPUID and XGETBV on x86, the auxiliary vector on 64-bit Arm; elsewhere only the baseline is known.
// Leaf and bit numbers: Intel SDM volume 2A, CPUID; Linux, arm64 ELF hwcaps.
#include "ggml/cpu/features.h"

#include <array>
#include <cstdint>
#include <cstring>
#include <string_view>

#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#endif
#elif defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace nibble::cpu {
namespace {

#if defined(__x86_64__)
struct Regs {
    uint32_t a = 0, b = 0, c = 0, d = 0;
};

Regs cpuid(uint32_t leaf, uint32_t sub = 0) {
    Regs r;
    if (!__get_cpuid_count(leaf, sub, &r.a, &r.b, &r.c, &r.d)) return {};
    return r;
}

bool bit(uint32_t word, int n) { return (word >> n & 1) != 0; }

uint64_t enabled_state() {
    uint32_t lo = 0, hi = 0;
    asm volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return uint64_t{hi} << 32 | lo;
}

// Linux gives tile registers only to processes that ask; the answer holds for all threads.
// arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA): Linux, Documentation/x86/xstate.rst.
bool tiles_permitted() {
#if defined(__linux__)
    constexpr long request_permission = 0x1023, tile_data = 18;
    return ::syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
#else
    return false;
#endif
}

// AMD64 Architecture Programmer's Manual volume 3, CPUID functions 0 and 1.
bool made_by(std::string_view vendor) {
    const Regs zero = cpuid(0);
    std::array<char, 12> text{};
    std::memcpy(text.data(), &zero.b, 4);
    std::memcpy(text.data() + 4, &zero.d, 4);
    std::memcpy(text.data() + 8, &zero.c, 4);
    return std::string_view(text.data(), text.size()) == vendor;
}
bool amd_family(uint32_t wanted) {
    const Regs one = cpuid(1);
    const uint32_t base = one.a >> 8 & 0xf, extended = one.a >> 20 & 0xff;
    return made_by("AuthenticAMD") && (base == 0xf ? base + extended : base) == wanted;
}

std::string brand_string() {
    if (cpuid(0x80000000u).a < 0x80000004u) return {};
    std::array<char, 49> text{};
    for (uint32_t i = 0; i < 3; ++i) {
        const Regs r = cpuid(0x80000002u + i);
        std::memcpy(text.data() + 16 * i, &r, 16);
    }
    const std::string s(text.data());
    const size_t first = s.find_first_not_of(' ');
    return first == std::string::npos ? std::string() : s.substr(first, s.find_last_not_of(' ') - first + 1);
}

Features detect() {
    Features f;
    f.brand = brand_string();
    f.amd_zen5 = amd_family(0x1a);
    f.intel = made_by("GenuineIntel");
    const Regs one = cpuid(1), seven = cpuid(7), seven1 = cpuid(7, 1);
    const bool osxsave = bit(one.c, 27);
    const uint64_t state = osxsave ? enabled_state() : 0;
    const bool ymm = (state & 0x6) == 0x6, zmm = (state & 0xe6) == 0xe6;
    const bool tiles = (state & 0x60000) == 0x60000 && bit(seven.d, 24) && tiles_permitted();
    f.fma = ymm && bit(one.c, 12);
    f.f16c = ymm && bit(one.c, 29);
    f.avx2 = ymm && bit(one.c, 28) && bit(seven.b, 5);
    f.avx_vnni = ymm && bit(seven1.a, 4);
    f.avx512f = zmm && bit(seven.b, 16);
    f.avx512dq = zmm && bit(seven.b, 17);
    f.avx512bw = zmm && bit(seven.b, 30);
    f.avx512vl = zmm && bit(seven.b, 31);
    f.avx512vbmi = zmm && bit(seven.c, 1);
    f.avx512vnni = zmm && bit(seven.c, 11);
    f.avx512bf16 = zmm && bit(seven1.a, 5);
    f.amx_bf16 = tiles && bit(seven.d, 22);
    f.amx_int8 = tiles && bit(seven.d, 25);
    f.amx_tile = tiles;
    return f;
}
#elif defined(__aarch64__)
Features detect() {
    Features f;
    f.neon = true;  // the architecture has it
#if defined(__linux__)
    f.arm_dotprod = (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
    f.arm_i8mm = (getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0;
    f.arm_bf16 = (getauxval(AT_HWCAP2) & HWCAP2_BF16) != 0;
#endif
    return f;
}
#else
Features detect() { return {}; }
#endif

}  // namespace

const Features& features() {
    static const Features f = [] {
        Features found = detect();
#if defined(_SC_LEVEL3_CACHE_SIZE)
        if (const long bytes = ::sysconf(_SC_LEVEL3_CACHE_SIZE); bytes > 0) found.last_level = bytes;
#endif
        return found;
    }();
    return f;
}

}  // namespace nibble::cpu
