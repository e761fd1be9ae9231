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
};

std::vector<TestBackend> test_backends();
// Two that must agree to the last bit: AMX, emulated and real, and the vectors that it stands in for.
std::vector<std::pair<TestBackend, TestBackend>> tile_pairs();
// The same ISA with one thread and with several.
std::vector<std::pair<TestBackend, TestBackend>> thread_pairs();

}  // namespace nibble
