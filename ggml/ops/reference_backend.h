// A backend that runs every op's reference implementation: the definition all other backends are held to.
// Slow and exact; used by tests and to find out which op of a backend is wrong.
#pragma once

#include "ggml/program/backend.h"

namespace nibble {

class ReferenceBackend : public Backend {
  public:
    DeviceInfo device() const override;
    Result<Buffer> allocate(size_t bytes, std::string_view purpose) override;
    Result<PlacedWeight> place(const Tensor& host, WeightUse) override { return PlacedWeight{host, {}}; }
    Result<void> upload(std::byte* dst, std::span<const std::byte> src) override;
    Result<void> download(std::span<std::byte> dst, const std::byte* src) override;
    bool supports(const OpDef& op, const OpArgs&) const override { return op.reference != nullptr; }
    size_t scratch_bytes(const OpDef&, const OpArgs&) const override { return 0; }
    Result<void> run(std::span<BoundInstr> instrs, Observer* observer) override;
};

}  // namespace nibble
