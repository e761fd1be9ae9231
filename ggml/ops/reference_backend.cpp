// ReferenceBackend: host memory and a loop over the reference implementations.
// Slow on purpose: nothing here may differ from the definition of an op.
#include "ggml/ops/reference_backend.h"

#include <cstring>
#include <new>

#include "ggml/base/cat.h"

namespace nibble {

DeviceInfo ReferenceBackend::device() const { return {"reference", "reference implementations", true, 0, 0}; }

Result<Buffer> ReferenceBackend::allocate(size_t bytes, std::string_view purpose) {
    constexpr std::align_val_t alignment{64};
    void* p = ::operator new(bytes, alignment, std::nothrow);
    if (!p)
        return Error{ErrorCode::out_of_memory, std::string(purpose),
                     cat(bytes, " bytes could not be allocated"), ""};
    return Buffer{
        {static_cast<std::byte*>(p), [](std::byte* b) { ::operator delete (b, std::align_val_t{64}); }},
        bytes};
}

Result<void> ReferenceBackend::upload(std::byte* dst, std::span<const std::byte> src) {
    if (!src.empty()) std::memcpy(dst, src.data(), src.size());
    return {};
}

Result<void> ReferenceBackend::download(std::span<std::byte> dst, const std::byte* src) {
    if (!dst.empty()) std::memcpy(dst.data(), src, dst.size());
    return {};
}

Result<void> ReferenceBackend::run(std::span<BoundInstr> instrs, Observer* observer) {
    for (const BoundInstr& b : instrs) {
        if (observer) observer->before(b);
        b.instr->op->reference(b.args());
        if (observer) observer->after(b);
    }
    return {};
}

}  // namespace nibble
