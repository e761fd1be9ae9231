// The backends that the op sweep covers: every ISA this machine can run, with several thread counts.
// The only place in tests/ops that names concrete backends.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ggml/program/backend.h"

namespace nibble {

struct TestBackend {
    std::string name;
    std::shared_ptr<Backend> backend;
};

std::vector<TestBackend> test_backends();
// The same ISA with one thread and with several.
std::vector<std::pair<TestBackend, TestBackend>> thread_pairs();

}  // namespace nibble
