// MirrorBackend: runs instructions whose operands are in host memory on a device that has its own.
// Operands are copied there before each instruction and back after it; placed weights are there already.
#pragma once

#include <set>
#include <vector>

#include "ggml/cuda/cuda_backend.h"
#include "ggml/cuda/exec.h"
#include "ggml/ops/ops.h"

namespace nibble {

class MirrorBackend final : public Backend {
  public:
    explicit MirrorBackend(std::unique_ptr<CudaBackend> inner) : inner_(std::move(inner)) {}

    DeviceInfo device() const override { return inner_->device(); }
    Result<Buffer> allocate(size_t bytes, std::string_view purpose) override {
        return inner_->allocate(bytes, purpose);
    }
    Result<PlacedWeight> place(const Tensor& host, WeightUse use) override {
        auto placed = inner_->place(host, use);
        if (placed) placed_.insert(placed->tensor.data);
        return placed;
    }
    Result<void> upload(std::byte* dst, std::span<const std::byte> src) override {
        return inner_->upload(dst, src);
    }
    Result<void> download(std::span<std::byte> dst, const std::byte* src) override {
        return inner_->download(dst, src);
    }
    bool supports(const OpDef& op, const OpArgs& a) const override { return inner_->supports(op, a); }
    size_t scratch_bytes(const OpDef& op, const OpArgs& a) const override {
        return inner_->scratch_bytes(op, a);
    }

    Result<void> run(std::span<BoundInstr> instrs, Observer*) override {
        for (const BoundInstr& b : instrs) NIBBLE_TRY(run_one(b));
        return {};
    }

  private:
    struct Copy {
        std::byte* host;
        Buffer device;
    };

    Result<void> run_one(BoundInstr b) {
        std::vector<Copy> copies;
        for (std::vector<Tensor>* list : {&b.in, &b.out})
            for (Tensor& t : *list) {
                if (!t.data || placed_.contains(t.data)) continue;
                const size_t bytes = cuda::extent_bytes(t);
                const Copy c{t.data, NIBBLE_TRY(inner_->allocate(bytes, "operand"))};
                NIBBLE_TRY(inner_->upload(c.device.data.get(), {t.data, bytes}));
                t.data = c.device.data.get();
                copies.push_back(c);
            }
        const Buffer scratch = NIBBLE_TRY(inner_->allocate(b.scratch.size(), "scratch"));
        b.scratch = {scratch.data.get(), b.scratch.size()};
        NIBBLE_TRY(inner_->run({&b, 1}, nullptr));
        for (const Copy& c : copies)
            NIBBLE_TRY(inner_->download({c.host, c.device.size}, c.device.data.get()));
        return {};
    }

    std::unique_ptr<CudaBackend> inner_;
    std::set<const std::byte*> placed_;
};

// The card under test; null, with a message, where there is none. Mirrored: for operands in host memory.
std::unique_ptr<CudaBackend> test_card(const CudaOptions& options = {});
std::unique_ptr<MirrorBackend> mirrored_card(const CudaOptions& options = {});

// The nmse of a case's results from the reference's; both must run, and nothing around them be written.
double error_of(const OpCase& c, Backend& backend, uint32_t seed);
// That it is within the case's tolerance.
void check_case(const OpCase& c, Backend& backend, uint32_t seed);

// Types that weights have as tiles and that the tests can make.
std::vector<Type> types_in_tiles();
// Weights of these types side by side, of `rows` rows, each `more` rows larger than the one before, with a
// bias and a residual. Weights and activations are rounded to f16.
OpCase product_case(const std::vector<Type>& types, int64_t x_rows, int64_t rows, int64_t cols,
                    int64_t more = 0);
// Results of such weights, without bias and residual. The operands of a product of more rows of x begin with
// the same: they are drawn after the weights.
std::vector<float> results_of_rows(const std::vector<Type>& types, int64_t x_rows, int64_t rows, int64_t cols,
                                   Backend& backend, uint32_t seed);

}  // namespace nibble
