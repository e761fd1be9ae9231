// SmallCopies: a step's inputs and results on their way between host and device.
// Through page-locked memory of their own, so that sending does not wait for the device.
#pragma once

#include <memory>
#include <span>

#include "ggml/base/result.h"
#include "ggml/cuda/runtime.h"

namespace nibble::cuda {

class SmallCopies {
  public:
    static Result<SmallCopies> create(int device);

    // In the order of the stream; `src` may change when this returns. More than a half holds goes a half at a
    // time, and more than both waits for its own beginning.
    Result<void> upload(Stream& stream, std::byte* dst, std::span<const std::byte> src);
    // What a download can bring.
    static bool takes(size_t bytes) { return bytes <= half_bytes; }
    // Waits for everything before it, and returns the first error since the last wait.
    Result<void> download(Stream& stream, std::span<std::byte> dst, const std::byte* src);

  private:
    static constexpr size_t half_bytes = size_t{2} << 20;
    SmallCopies(Mark first, Mark second) : left_{std::move(first), std::move(second)} {}
    Result<std::byte*> room(Stream& stream, size_t bytes);
    std::shared_ptr<std::byte> memory_;  // two halves, filled in turn
    Mark left_[2];                       // put where copies began to go through the other half
    int half_ = 0;
    size_t used_ = 0;  // of it, by copies that may still be under way
};

}  // namespace nibble::cuda
