// Weights on the CUDA backend: what is placed is what lies at an address now, not what lay there before.
// Checkpoints are rearranged on the host, one tensor after the other in the same memory.
#include <vector>

#include <doctest/doctest.h>

#include "ggml/base/checked.h"
#include "tests/cuda/mirror.h"

using namespace nibble;

TEST_CASE("tensors placed from the same memory, one after the other, stay apart") {
    const auto backend = test_card();
    if (!backend) return;
    const TypeInfo& type = info(Type::q8_0);
    constexpr int64_t rows = 16, cols = 64;
    const auto stride = static_cast<int64_t>(*row_bytes(Type::q8_0, cols));
    std::vector<std::byte> memory(static_cast<size_t>(rows * stride));
    const Tensor host{memory.data(), rows, cols, stride, Type::q8_0, Layout::rows};
    std::vector<PlacedWeight> placed;
    std::vector<std::vector<std::byte>> bytes;
    for (const float value : {1.0f, 2.0f}) {
        const std::vector<float> row(cols, value);
        for (int64_t r = 0; r < rows; ++r) type.encode(row.data(), host.row<std::byte>(r), cols);
        auto p = backend->place(host, WeightUse::matmul);
        REQUIRE(p);
        bytes.emplace_back(p->storage.size);
        REQUIRE(backend->download(bytes.back(), p->storage.data.get()));
        placed.push_back(std::move(*p));
    }
    CHECK(bytes[0] != bytes[1]);
    CHECK(placed[0].storage.data != placed[1].storage.data);
}
