// The backends that the op sweep covers: every ISA this machine can run or emulate, with several thread
// counts. The only place in tests/ops that names concrete backends.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ggml/cpu/kernel_table.h"
#include "ggml/program/backend.h"

namespace nibble {

struct TestBackend {
    std::string name;
    std::shared_ptr<Backend> backend;
    bool bf16_products = false;  // see AttentionKernels
    bool deterministic = true;   // see CpuOptions
};

std::vector<TestBackend> test_backends();
// AMX, emulated and real, behind the vectors that it stands in for: to the last bit where codes meet int8,
// and with `deterministic` false nearly so where many rows are in bf16.
std::vector<std::pair<TestBackend, TestBackend>> tile_pairs(bool deterministic);
// The same ISA with one thread and with several.
std::vector<std::pair<TestBackend, TestBackend>> thread_pairs();

}  // namespace nibble
