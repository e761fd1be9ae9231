// Program (compiled: devices, arena offsets, footprint) and Runner (a program with memory, ready to step).
// compile() places instructions, expands unsupported ops, inserts transfers and plans the arenas.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ggml/program/backend.h"

namespace nibble {

// Device index per layer; layer -1 (embedding) lives on `first`, layers past the end (output) on `last`.
struct Placement {
    std::vector<int32_t> layers;
    int32_t first = 0;
    int32_t last = 0;
    int32_t device(int32_t layer) const;
};

// The instruction that compile() inserts where a value crosses devices; the Runner performs it.
const OpDef& transfer_op();

// Bytes of one device, exact, before anything is allocated.
struct DeviceFootprint {
    size_t weights = 0;  // as placed
    size_t packed = 0;   // the part of them in memory of its own: in another layout than the file's
    size_t cache = 0;
    size_t arena = 0;  // activations and scratch
    size_t inputs = 0;
    size_t total() const { return weights + cache + arena + inputs; }
};

struct Program {
    std::vector<Value> values;
    std::vector<Instr> instrs;
    std::vector<size_t> arena_bytes;  // per device
    size_t input_bytes = 0;           // one block, replicated on each device
    std::vector<size_t> scratch;      // per instruction
    std::vector<int64_t> scratch_at;  // offset in the arena of the instruction's device
    BatchShape limits;

    std::vector<DeviceFootprint> footprint() const;
};

// Of programs over the same weights, which count once; at least one.
std::vector<DeviceFootprint> footprint(std::span<const Program* const> programs);

Result<Program> compile(Builder&& builder, const Placement& placement, std::span<Backend* const> backends);

class Runner {
  public:
    // Allocates arenas and inputs. The backends, weights and caches must outlive the runner.
    static Result<Runner> create(Program program, std::span<Backend* const> backends);

    // The host memory of an input, `rows x cols` of T as recorded; fill it before run().
    template <class T = int32_t>
    std::span<T> input(std::string_view name) {
        const auto b = input_bytes(name);
        return {reinterpret_cast<T*>(b.data()), b.size() / sizeof(T)};
    }

    Result<void> run(const StepShape& shape, Observer* observer = nullptr);

    bool has_output(std::string_view name) const;
    // The f32 rows of an output after run(); valid until the next run(); the caller may write to them. Where
    // a device has memory of its own each output has its copy, which is made anew by every call.
    Result<std::span<float>> output(std::string_view name);

    const Program& program() const { return *program_; }
    size_t allocated_bytes(size_t device) const;  // really taken from the backend, without weights and cache

  private:
    struct Segment {
        int32_t device;
        size_t first, count;  // bound instructions; a transfer is a segment of its own
    };
    Result<void> transfer(BoundInstr& instr, int32_t device);
    std::span<std::byte> input_bytes(std::string_view name);
    size_t used(const StepShape& shape) const;  // bytes of the inputs
    Result<void> bind();
    Tensor resolve(Ref ref, int32_t device) const;

    std::unique_ptr<Program> program_;  // stable address: bound instructions point into it
    std::vector<Backend*> backends_;
    std::vector<bool> host_memory_;  // of each backend: asking one takes longer than a small step
    std::vector<Buffer> arenas_, inputs_;
    Buffer host_inputs_;
    std::vector<BoundInstr> bound_;
    std::vector<Segment> segments_;
    std::vector<std::byte> staging_;  // of transfers
    std::map<const Value*, std::vector<std::byte>> copies_;
    StepShape last_;
};

}  // namespace nibble
