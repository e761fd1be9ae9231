// CpuBackend: runs every op of the vocabulary on the processor, with the best instruction set it has.
// Matrices are packed for the instruction set when placed; results do not depend on the number of threads.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "ggml/cpu/bandwidth.h"
#include "ggml/cpu/exec.h"
#include "ggml/program/backend.h"
#include "ggml/program/key_tiles.h"

namespace nibble {

struct CpuOptions {
    int threads = 0;   // 0: one per usable core (ThreadPool::default_threads)
    std::string isa;   // a name of cpu::compiled_tables(); "" or "auto": the best this machine runs
    bool pack = true;  // false: weights stay where they are (in the mapped file), which is slower
    const cpu::KernelTable* kernels = nullptr;  // these instead of those that `isa` names
    // A row has the same bits in every product. False: in those of more than few_rows (kernel_table.h) it may
    // have others, where an instruction set has a faster arithmetic for them.
    bool deterministic = true;
    std::optional<cpu::Streaming> streaming = std::nullopt;  // instead of what suits this processor
    std::vector<std::vector<int>> nodes = {};                // see ThreadPool
    std::function<bool()> stop = {};  // asked before every instruction: true ends the run, code cancelled
};

class CpuBackend final : public Backend {
  public:
    // Errors: an unknown instruction set or one this machine lacks, a negative or absurd number of threads.
    static Result<std::unique_ptr<CpuBackend>> create(const CpuOptions& options = {});

    DeviceInfo device() const override;
    double read_bandwidth() override { return cpu::read_bandwidth(*pool_); }
    // Memory is not cleared. Large buffers ask for 2 MiB pages.
    Result<Buffer> allocate(size_t bytes, std::string_view purpose) override;
    Result<PlacedWeight> place(const Tensor& host, WeightUse use) override;
    size_t packed_bytes(const Tensor& host, WeightUse use) const override;
    Layout key_layout(Type type, int64_t page_size) const override {
        return fits_key_tiles(type, page_size) ? Layout::key_tiles : Layout::rows;
    }
    Result<void> upload(std::byte* device_dst, std::span<const std::byte> host_src) override;
    Result<void> download(std::span<std::byte> host_dst, const std::byte* device_src) override;
    bool supports(const OpDef& op, const OpArgs& shapes) const override;
    size_t scratch_bytes(const OpDef& op, const OpArgs& shapes) const override;
    bool joins_next(const Instr& instr) const override;
    Result<void> run(std::span<BoundInstr> instrs, Observer* observer) override;

    std::string_view isa() const { return kernels_->name; }
    int threads() const { return pool_->size(); }

  private:
    CpuBackend(const cpu::KernelTable* kernels, std::unique_ptr<ThreadPool> pool, const CpuOptions& options)
        : kernels_(kernels),
          streaming_(options.streaming.value_or(cpu::streaming(*kernels))),
          pool_(std::move(pool)),
          pack_(options.pack),
          deterministic_(options.deterministic),
          stop_(options.stop) {}
    Result<Buffer> allocate_packed(size_t bytes);
    cpu::Exec exec() const {
        return {kernels_, pool_.get(), streaming_, cpu::features().last_level / 2, deterministic_};
    }

    const cpu::KernelTable* kernels_;
    cpu::Streaming streaming_;
    std::unique_ptr<ThreadPool> pool_;
    bool pack_, deterministic_;
    std::function<bool()> stop_;
    Buffer slab_;  // that packed weights share, one behind the other, and how much of it is taken
    size_t slab_taken_ = 0;
};

}  // namespace nibble
