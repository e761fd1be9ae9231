// CudaBackend: runs every op of the vocabulary on one NVIDIA GPU.
// Steps that come again are replayed as a CUDA graph; weights are re-ordered for tensor cores when placed.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ggml/base/thread_pool.h"
#include "ggml/cuda/runtime.h"
#include "ggml/cuda/small_copies.h"
#include "ggml/cuda/step_graphs.h"
#include "ggml/program/backend.h"

namespace nibble {

namespace cuda {
struct Exec;
}

struct CudaOptions {
    int device = 0;          // as the CUDA runtime counts
    int threads = 0;         // of the host, that pack weights; 0: one per usable core
    bool graphs = true;      // false: every launch by itself
    bool joined = true;      // false: every instruction by itself
    bool overlapped = true;  // false: every launch after the end of the one before
    // Rows of activations up to which weights are streamed, 32 rows at a time, if that fills the card better
    // than to multiply matrices.
    int64_t most_streamed = 128;
    // More rows than that on a card of generation 9.0, and with `gemv` those of a batch, more than 8: four
    // warps multiply together, weights rounded to f16. false: the bits of a row do not depend on how many
    // there are.
    bool warpgroups = true;
    // Up to eight rows: groups are summed before they are scaled, for one row in half the instructions. Their
    // bits are those of one row, not those of more. false: a row's bits do not depend on how many there are.
    bool gemv = true;
};

class CudaBackend final : public Backend {
  public:
    ~CudaBackend() override;
    // Cards that can be used; 0 without a driver or a card.
    static int devices();
    static std::string why_none();
    // Errors: a device that does not exist, is too old (compute capability below 7.5), or that this program
    // was not compiled for.
    static Result<std::unique_ptr<CudaBackend>> create(const CudaOptions& options = {});

    DeviceInfo device() const override;
    double read_bandwidth() override;
    Result<Buffer> allocate(size_t bytes, std::string_view purpose) override;
    // Copies the weight to the device, as tiles (ggml/cuda/tiles.h) unless it is a vector or f32. A matrix
    // that is multiplied with and looked up takes memory once.
    Result<PlacedWeight> place(const Tensor& host, WeightUse use) override;
    size_t packed_bytes(const Tensor& host, WeightUse use) const override;
    Result<void> upload(std::byte* device_dst, std::span<const std::byte> host_src) override;
    Result<void> download(std::span<std::byte> host_dst, const std::byte* device_src) override;
    Result<std::unique_ptr<Mailbox>> mailbox(size_t bytes) override;
    bool supports(const OpDef& op, const OpArgs& shapes) const override;
    size_t scratch_bytes(const OpDef& op, const OpArgs& shapes) const override;
    bool joins_next(const Instr& instr) const override;
    // Waits for nothing: download() does. An observer sees copies of activations and vectors in host memory;
    // weights and caches have no address.
    Result<void> run(std::span<BoundInstr> instrs, Observer* observer) override;

    const cuda::Card& card() const { return card_; }
    int64_t graph_launches() const { return graphs_ ? graphs_->replayed() : 0; }
    int64_t joined_instructions() const {
        return joined_instructions_;
    }  // that needed no launch of their own

  private:
    CudaBackend(const CudaOptions& options, cuda::Card card, cuda::Stream stream, cuda::Stream copies,
                cuda::SmallCopies small_copies)
        : options_(options),
          card_(std::move(card)),
          stream_(std::move(stream)),
          copies_(std::move(copies)),
          small_copies_(std::move(small_copies)),
          pool_(std::make_unique<ThreadPool>(options.threads)) {}

    Result<void> launch_all(std::span<BoundInstr> instrs);
    Result<void> run_unrecorded(std::span<BoundInstr> instrs);
    Result<void> check_weights(std::span<const BoundInstr> instrs) const;
    cuda::Exec exec(cuda::Stream* stream) const;
    void launch_one(const BoundInstr& instr);
    Result<void> observed(BoundInstr& instr, Observer& observer);
    Result<void> place_tiles(const Tensor& host, std::byte* to);

    CudaOptions options_;
    cuda::Card card_;
    cuda::Stream stream_, copies_;
    cuda::SmallCopies small_copies_;
    // What an Exec needs of the device.
    Result<void> prepare_device();

    bool warpgroups_ = false;
    std::string fault_;                      // of the card, for its description
    std::shared_ptr<int> counters_;          // of the device, see Exec
    std::shared_ptr<std::byte> staging_[2];  // of the host, page-locked: weights on their way
    size_t staging_each_ = 0;
    std::unique_ptr<ThreadPool> pool_;
    std::unique_ptr<cuda::StepGraphs> graphs_;  // null: steps are launched as they come
    int64_t joined_instructions_ = 0;
};

}  // namespace nibble
