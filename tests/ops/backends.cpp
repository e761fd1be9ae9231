// Creates the backends under test.
// The CPU backend once per instruction set that this machine can run, with one thread and with several, with
// packed weights and without.
#include "tests/ops/backends.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include <doctest/doctest.h>

#include "ggml/base/cat.h"
#include "ggml/cpu/cpu_backend.h"
#include "ggml/ops/reference_backend.h"
#include "tests/isa/emulated.h"

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
    std::vector<const cpu::KernelTable*> list;
    for (const auto tables : {cpu::compiled_tables(), emulated_tables()})
        list.insert(list.end(), tables.begin(), tables.end());
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
            list.push_back({cat("cpu ", table->name, ", 3 threads"), std::move(backend),
                            table->attention.bf16_products});
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
    const auto tables = test_tables();
    for (const std::string_view kind : {"", "-emulated"}) {
        const auto backend = [&](std::string_view name) {
            const auto table = std::ranges::find(tables, cat(name, kind), &cpu::KernelTable::name);
            return table == tables.end() ? nullptr : cpu_backend(**table, 2, true);
        };
        const auto vectors = backend("avx512bf16"), tiles = backend("amx");
        if (vectors && tiles) list.push_back({{cat("avx512bf16", kind), vectors}, {cat("amx", kind), tiles}});
    }
    return list;
}

}  // namespace nibble
