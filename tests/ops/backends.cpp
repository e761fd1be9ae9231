// Creates the backends under test.
// The CPU backend once per instruction set that this machine can run, with one thread and with several, with
// packed weights and without.
#include "tests/ops/backends.h"

#include <cstdlib>

#include <doctest/doctest.h>

#include "ggml/base/cat.h"
#include "ggml/cpu/cpu_backend.h"
#include "ggml/ops/reference_backend.h"

namespace nibble {
namespace {

// Nothing, with a message, where this machine lacks the instruction set.
std::shared_ptr<Backend> cpu_backend(const cpu::KernelTable& table, int threads, bool pack) {
    if (!table.available(cpu::features())) {
        MESSAGE("not covered on this machine: isa " << table.name);
        return nullptr;
    }
    auto backend = CpuBackend::create({threads, "", pack, &table});
    REQUIRE(backend);
    CHECK((*backend)->isa() == table.name);  // proof of which ran
    return std::move(*backend);
}

// All of them, or the one that NIBBLE_TEST_ISA names: under an emulator the whole sweep takes too long.
std::vector<const cpu::KernelTable*> test_tables() {
    const auto compiled = cpu::compiled_tables();
    std::vector<const cpu::KernelTable*> list(compiled.begin(), compiled.end());
#if defined(__x86_64__)
    list.push_back(&amx_emulated());
#endif
    if (const char* only = std::getenv("NIBBLE_TEST_ISA"))
        std::erase_if(list, [only](const cpu::KernelTable* table) { return table->name != only; });
    REQUIRE(!list.empty());
    return list;
}

}  // namespace

std::vector<TestBackend> test_backends() {
    std::vector<TestBackend> list{{"reference", std::make_shared<ReferenceBackend>()}};
    for (const cpu::KernelTable* table : test_tables())
        if (auto backend = cpu_backend(*table, 3, true))
            list.push_back(
                {cat("cpu ", table->name, ", 3 threads"), std::move(backend), table->bf16_products});
    return list;
}

std::vector<std::pair<TestBackend, TestBackend>> thread_pairs() {
    std::vector<std::pair<TestBackend, TestBackend>> list;
    for (const cpu::KernelTable* table : test_tables()) {
        auto one = cpu_backend(*table, 1, true), many = cpu_backend(*table, 4, false);
        if (one && many)
            list.push_back({{cat("cpu ", table->name, ", 1 thread, packed"), one},
                            {cat("cpu ", table->name, ", 4 threads, in place"), many}});
    }
    return list;
}

std::vector<std::pair<TestBackend, TestBackend>> tile_pairs() {
    std::vector<std::pair<TestBackend, TestBackend>> list;
#if defined(__x86_64__)
    const auto vectors = cpu::select_table("avx512bf16");
    if (!vectors) {
        MESSAGE("not covered on this machine: the tiles of AMX against AVX-512 BF16");
        return list;
    }
    const TestBackend expected{"avx512bf16", cpu_backend(**vectors, 2, true)};
    for (const cpu::KernelTable* table : test_tables())
        if (table->name.starts_with("amx"))
            if (auto backend = cpu_backend(*table, 2, true))
                list.push_back({expected, {std::string(table->name), std::move(backend)}});
#endif
    return list;
}

}  // namespace nibble
