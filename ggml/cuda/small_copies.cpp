// SmallCopies: one half of the page-locked memory is filled while copies through the other are under way.
// They have hardly ever to be waited for: a step's inputs take a small part of a half.
#include "ggml/cuda/small_copies.h"

#include <algorithm>
#include <cstring>

#include "ggml/base/checked.h"

namespace nibble::cuda {

Result<SmallCopies> SmallCopies::create(int device) {
    SmallCopies copies(NIBBLE_TRY(Mark::create(device)), NIBBLE_TRY(Mark::create(device)));
    copies.memory_ = NIBBLE_TRY(allocate_pinned(device, 2 * half_bytes));
    return Result<SmallCopies>(std::move(copies));
}

Result<std::byte*> SmallCopies::room(Stream& stream, size_t bytes) {
    if (used_ + bytes > half_bytes) {
        stream.put(left_[half_]);
        half_ ^= 1;
        NIBBLE_TRY(stream.wait(left_[half_]));
        used_ = 0;
    }
    std::byte* const at = memory_.get() + static_cast<size_t>(half_) * half_bytes + used_;
    used_ += round_up(bytes, size_t{256});
    return at;
}

Result<void> SmallCopies::upload(Stream& stream, std::byte* dst, std::span<const std::byte> src) {
    for (size_t done = 0; done < src.size();) {
        const auto part = src.subspan(done, std::min(src.size() - done, half_bytes));
        std::byte* const at = NIBBLE_TRY(room(stream, part.size()));
        std::memcpy(at, part.data(), part.size());
        stream.to_device(dst + done, {at, part.size()});
        done += part.size();
    }
    return {};
}

Result<void> SmallCopies::download(Stream& stream, std::span<std::byte> dst, const std::byte* src) {
    std::byte* const at = NIBBLE_TRY(room(stream, dst.size()));
    stream.to_host({at, dst.size()}, src);
    NIBBLE_TRY(stream.synchronize());
    used_ = 0;
    if (!dst.empty()) std::memcpy(dst.data(), at, dst.size());
    return {};
}

}  // namespace nibble::cuda
