// What the backend needs of a GPU's runtime: devices, memory, streams and graphs, with Results.
// Defined twice: over the CUDA runtime (runtime_cuda.cu) and over host memory (emulation/runtime.cpp).
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ggml/base/cat.h"
#include "ggml/base/result.h"
#include "ggml/cuda/dims.h"

namespace nibble::cuda {

struct Card {
    std::string name;
    int major = 0, minor = 0;  // compute capability
    int multiprocessors = 0;
    size_t shared_per_block = 0;  // the most a kernel may ask for
    size_t l2_bytes = 0;
    size_t total_bytes = 0;
    size_t free_bytes = 0;  // when asked
};

// 0 where there is no driver or no device; why_no_device() says which.
int device_count();
std::string why_no_device();
Result<Card> card(int device);
size_t free_bytes(int device);
// An error where none of what the kernels were compiled to runs on the card.
Result<void> check_kernels(int device, const Card& card);
// Whether the kernels were compiled for products of warpgroups (device.h).
bool warpgroups_built();

// Memory of the device, freed with the last owner; 256-byte aligned.
Result<std::shared_ptr<std::byte>> allocate(int device, size_t bytes, std::string_view purpose);
// Page-locked host memory, which copies to the device read without a detour. The device's: a thread that has
// none yet would get the first one's context.
Result<std::shared_ptr<std::byte>> allocate_pinned(int device, size_t bytes);

// A point in the work of a stream, which can be waited for alone.
class Mark {
  public:
    static Result<Mark> create(int device);

  private:
    friend class Stream;
    std::shared_ptr<void> state_;
};

// Work in order on one device. Not thread-safe.
class Stream {
  public:
    // `overlapped`: where the card can (9.0 and later, a driver for CUDA 12.3), launches begin before the one
    // before has ended, up to their wait_for_previous().
    static Result<Stream> create(int device, bool overlapped = true);
    Stream(Stream&&) noexcept;
    Stream& operator=(Stream&&) noexcept;
    ~Stream();

    // Asynchronous; host memory must stay as it is until synchronize().
    void to_device(std::byte* dst, std::span<const std::byte> src);
    void to_host(std::span<std::byte> dst, const std::byte* src);
    void fill(std::byte* dst, uint8_t value, size_t bytes);
    // Waits, and returns the first error since the last call.
    Result<void> synchronize();
    // Puts the mark behind the work so far; and waits for that work, as synchronize() does for all. A mark
    // that was never put is waited for at once.
    void put(Mark& mark);
    Result<void> wait(const Mark& mark);

    // Between the two, work is recorded instead of done; false: it would be done.
    bool begin_capture();
    Result<class Graph> end_capture();

    void* handle() const { return handle_; }
    bool overlaps() const { return overlaps_; }
    // What is being launched, for messages; until the next call, which may be with nothing.
    void at(std::string_view place) { place_ = place; }
    void forget_error() { error_.clear(); }
    void failed(std::string_view what) {
        if (error_.empty()) error_ = place_.empty() ? std::string(what) : cat(place_, ": ", what);
    }
    // Before a launch: makes the device the calling thread's, and grants the kernel its shared memory.
    bool enter(const void* kernel, size_t shared_bytes);
    // The emulation's way in: runs one launch, or records it.
    void emulate(const Dims& dims, std::function<void()> kernel);

  private:
    Stream() = default;
    int device_ = 0;
    int most_shared_ = 0;  // bytes a block can have
    void* handle_ = nullptr;
    bool overlaps_ = false;
    std::string_view place_;
    std::string error_;
    Result<void> outcome();
    struct Recording;
    std::shared_ptr<Recording> recording_;  // of the emulation
    friend class Graph;
    friend class Mark;
};

// Recorded work, replayed with one call.
class Graph {
  public:
    void launch(Stream& stream) const;

  private:
    friend class Stream;
    std::shared_ptr<void> state_;
};

}  // namespace nibble::cuda
