// SmallMachine: the CPU's kernels where no more memory is said to be free than a test wants.
// Weights are packed as they are there.
#pragma once

#include "tests/loaded_engine.h"

namespace nibble {

struct SmallMachine : OverCpu {
    size_t free_bytes;
    explicit SmallMachine(size_t free) : free_bytes(free) {}
    DeviceInfo device() const override {
        DeviceInfo info = real->device();
        info.free_bytes = free_bytes;
        return info;
    }
    Result<PlacedWeight> place(const Tensor& host, WeightUse use) override { return real->place(host, use); }
    size_t packed_bytes(const Tensor& host, WeightUse use) const override {
        return real->packed_bytes(host, use);
    }
};

}  // namespace nibble
