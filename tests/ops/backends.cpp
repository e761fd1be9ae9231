// Creates the backends under test.
// Until an accelerated backend exists this is the reference itself.
#include "tests/ops/backends.h"

#include "ggml/ops/reference_backend.h"

namespace nibble {

std::vector<TestBackend> test_backends() { return {{"reference", std::make_shared<ReferenceBackend>()}}; }

std::vector<std::pair<TestBackend, TestBackend>> thread_pairs() { return {}; }

}  // namespace nibble
