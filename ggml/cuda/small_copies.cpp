// SmallCopies: the page-locked memory is filled from its beginning after every wait.
// A step waits once, for its results, so its inputs hardly ever fill it.
#include "ggml/cuda/small_copies.h"

#include <cstring>

#include "ggml/base/checked.h"

namespace nibble::cuda {

Result<SmallCopies> SmallCopies::create() {
    SmallCopies copies;
    copies.memory_ = NIBBLE_TRY(allocate_pinned(capacity));
    return Result<SmallCopies>(std::move(copies));
}

Result<std::byte*> SmallCopies::room(Stream& stream, size_t bytes) {
    if (used_ + bytes > capacity) {
        NIBBLE_TRY(stream.synchronize());
        used_ = 0;
    }
    std::byte* const at = memory_.get() + used_;
    used_ += round_up(bytes, size_t{256});
    return at;
}

Result<void> SmallCopies::upload(Stream& stream, std::byte* dst, std::span<const std::byte> src) {
    if (src.empty()) return {};
    std::byte* const at = NIBBLE_TRY(room(stream, src.size()));
    std::memcpy(at, src.data(), src.size());
    stream.to_device(dst, {at, src.size()});
    return {};
}

Result<void> SmallCopies::download(Stream& stream, std::span<std::byte> dst, const std::byte* src) {
    std::byte* const at = NIBBLE_TRY(room(stream, dst.size()));
    stream.to_host({at, dst.size()}, src);
    const Result<void> done = stream.synchronize();
    used_ = 0;
    NIBBLE_TRY(done);
    if (!dst.empty()) std::memcpy(dst.data(), at, dst.size());
    return {};
}

}  // namespace nibble::cuda
