// The list of instruction sets: a new one is a file in isa/ and a line here.
// Order matters: the last table that the machine can run is the default.
#include "ggml/cpu/kernel_table.h"

#include <array>

#include "ggml/base/cat.h"

namespace nibble::cpu {

extern const KernelTable scalar_table;
#if defined(__x86_64__)
extern const KernelTable avx2_table;
extern const KernelTable avxvnni_table;
extern const KernelTable avx512_table;
extern const KernelTable avx512vnni_table;
extern const KernelTable avx512bf16_table;
extern const KernelTable amx_table;
#elif defined(__aarch64__)
extern const KernelTable neon_table;
extern const KernelTable neondot_table;
extern const KernelTable neoni8mm_table;
extern const KernelTable neonbf16_table;
#endif

std::span<const KernelTable* const> compiled_tables() {
    static constexpr const KernelTable* tables[] = {
        &scalar_table,
#if defined(__x86_64__)
        &avx2_table,
        &avxvnni_table,
        &avx512_table,
        &avx512vnni_table,
        &avx512bf16_table,
        &amx_table,
#elif defined(__aarch64__)
        &neon_table,
        &neondot_table,
        &neoni8mm_table,
        &neonbf16_table,
#endif
    };
    return tables;
}

Result<const KernelTable*> select_table(std::string_view name, const Features& machine) {
    const KernelTable* best = nullptr;
    std::string names;
    for (const KernelTable* t : compiled_tables()) {
        const bool runs = t->available(machine);
        if (t->name == name) {
            if (runs) return t;
            return Error{ErrorCode::unsupported, cat("--isa ", name),
                         cat("needs ", t->needs, ", which this processor does not have"), "use --isa auto"};
        }
        if (runs) best = t;
        if (runs) names += cat(names.empty() ? "" : ", ", t->name);
    }
    if (name.empty() || name == "auto") return best;  // scalar runs everywhere
    return Error{ErrorCode::invalid_argument, cat("--isa ", name),
                 "is not an instruction set of this program", cat("this machine can run ", names)};
}

// docs/kernels.md, "How far ahead", has the figures.
Streaming streaming(const KernelTable& kernels, const Features& machine) {
    Streaming s;
    if (kernels.pack.lanes == 8) s.code_rows = 1;  // AVX2 and AVX-VNNI: no processor looks as far
    if (kernels.pack.lanes == 16)                  // a Zen 4, which looks as far for one row and no more
        s = {.factor_rows = 2, .real_rows = 3, .one_real_group = true, .bytes = 16384, .by_levels = true};
    if (machine.amd_zen5) s = {.code_rows = 1, .real_rows = 1, .one_real_group = true, .bytes = 6144};
    if (machine.intel) s = {.code_rows = 1, .real_rows = 1, .code_streams = 4, .by_levels = true};
    return s;
}

}  // namespace nibble::cpu
