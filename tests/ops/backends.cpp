// Creates the backends under test.
// The CPU backend once per instruction set that this machine can run, with one thread and with several, with
// packed weights and without.
#include "tests/ops/backends.h"

#include <algorithm>
#include <cstdlib>

#include <doctest/doctest.h>

#include "ggml/base/cat.h"
#include "ggml/base/cpu_count.h"
#include "ggml/cpu/cpu_backend.h"
#include "ggml/ops/reference_backend.h"
#include "tests/isa/emulated.h"

namespace nibble {
namespace {

// Nothing, with a message, where this machine lacks the instruction set.
std::shared_ptr<Backend> cpu_backend(const cpu::KernelTable& table, int threads, bool pack,
                                     bool deterministic = true, bool two_nodes = false) {
    if (!table.available(cpu::features())) {
        MESSAGE("not covered on this machine: isa " << table.name);
        return nullptr;
    }
    CpuOptions options{threads, "", pack, &table, deterministic};
    if (two_nodes) options.nodes = {allowed_cpus(), allowed_cpus()};
    auto backend = CpuBackend::create(options);
    REQUIRE(backend);
    CHECK((*backend)->isa() == table.name);  // proof of which ran
    return std::move(*backend);
}

std::vector<const cpu::KernelTable*> all_tables() {
    std::vector<const cpu::KernelTable*> list;
    for (const auto tables : {cpu::compiled_tables(), emulated_tables()})
        list.insert(list.end(), tables.begin(), tables.end());
    return list;
}

// All of them, or the one that NIBBLE_TEST_ISA names: under an emulator the whole sweep takes too long.
std::vector<const cpu::KernelTable*> test_tables() {
    std::vector<const cpu::KernelTable*> list = all_tables();
    if (const char* only = std::getenv("NIBBLE_TEST_ISA"))
        std::erase_if(list, [only](const cpu::KernelTable* table) { return table->name != only; });
    REQUIRE(!list.empty());
    return list;
}

// Whether codes have another operand in products of many rows than in those of one.
bool has_two_arithmetics(const cpu::KernelTable& table) {
    const auto operand = [&](int64_t rows) { return table.matmul.operand(info(Type::q4_0), rows, 256); };
    return operand(cpu::few_rows + 1) != operand(1);
}

}  // namespace

std::vector<TestBackend> test_backends() {
    std::vector<TestBackend> list{{"reference", std::make_shared<ReferenceBackend>()}};
    for (const cpu::KernelTable* table : test_tables())
        for (const bool deterministic : {true, false}) {
            if (!deterministic && !has_two_arithmetics(*table)) continue;
            if (auto backend = cpu_backend(*table, 3, true, deterministic))
                list.push_back(
                    {cat("cpu ", table->name, ", 3 threads", deterministic ? "" : ", many rows in bf16"),
                     std::move(backend), table->attention.bf16_products, deterministic});
        }
    return list;
}

std::vector<std::pair<TestBackend, TestBackend>> thread_pairs() {
    std::vector<std::pair<TestBackend, TestBackend>> list;
    for (const cpu::KernelTable* table : test_tables()) {
        auto one = cpu_backend(*table, 1, true, false), many = cpu_backend(*table, 4, false, false, true);
        if (one && many)
            list.push_back({{cat("cpu ", table->name, ", 1 thread, packed"), one},
                            {cat("cpu ", table->name, ", 4 threads on two memory nodes, in place"), many}});
    }
    return list;
}

std::vector<std::pair<TestBackend, TestBackend>> tile_pairs(bool deterministic) {
    std::vector<std::pair<TestBackend, TestBackend>> list;
    const auto all = all_tables();
    for (const cpu::KernelTable* tiles : test_tables()) {
        if (!tiles->name.starts_with("amx")) continue;
        const std::string stands_in_for = cat("avx512bf16", tiles->name.substr(3));
        const auto vectors = std::ranges::find(all, stands_in_for, &cpu::KernelTable::name);
        REQUIRE(vectors != all.end());
        auto expected = cpu_backend(**vectors, 2, true), actual = cpu_backend(*tiles, 2, true, deterministic);
        if (expected && actual)
            list.push_back(
                {{stands_in_for, std::move(expected)}, {std::string(tiles->name), std::move(actual)}});
    }
    return list;
}

}  // namespace nibble
