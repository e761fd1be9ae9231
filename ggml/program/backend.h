// The Backend interface: memory on one device and the execution of bound instructions there.
// Backends are created in tools/ and passed down; nothing below names a concrete one.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ggml/base/result.h"
#include "ggml/program/op.h"

namespace nibble {

struct DeviceInfo {
    std::string name;         // "cpu", "cuda:0"
    std::string description;  // for people: processor and instruction set, or the card's name
    bool host_memory = true;  // its pointers can be dereferenced by the host
    size_t total_bytes = 0;
    size_t free_bytes = 0;    // when asked
    int32_t step_rows = 512;  // of a prompt, that keep it busy
};

// Memory on a device, freed when the last owner lets go. Aligned to at least 64 bytes.
struct Buffer {
    std::shared_ptr<std::byte> data;
    size_t size = 0;
};

// A weight on its device: the tensor as the kernels want it, and the memory it owns (empty when the tensor
// points into the mapped file).
struct PlacedWeight {
    Tensor tensor;
    Buffer storage;
};

// How a weight will be used; decides whether packing pays and into what.
enum class WeightUse : uint8_t {
    matmul,
    lookup,
    vector,
    apart,  // multiplied with in parts that no packed layout keeps apart: its rows must stay rows
};

// An instruction with addresses. Row counts that follow the batch are set before each step.
struct BoundInstr {
    const Instr* instr = nullptr;
    std::vector<Tensor> in, out;
    std::vector<RowDim> in_dims, out_dims;
    std::span<std::byte> scratch;

    OpArgs args() const { return {in, out, &instr->params}; }
};

// Sees every instruction as it runs: NaN check, profile, calibration. Activations and vectors are in host
// memory (copies, where the device has its own); matrices and caches of such a device have no address.
class Observer {
  public:
    virtual ~Observer() = default;
    virtual void before(const BoundInstr&) {}
    virtual void after(const BoundInstr&) {}
};

// Host memory in which copies from a device arrive without holding up what is run later.
class Mailbox {
  public:
    virtual ~Mailbox() = default;  // waits for what is under way
    // Copies what earlier runs leave there, though later ones may change it. One letter at a time: the last
    // one counts.
    virtual Result<void> send(const std::byte* device_src) = 0;
    // Waits for that and for nothing that came later; reports what went wrong before. Valid until the next
    // send().
    virtual Result<std::span<const std::byte>> receive() = 0;
};

class Backend {
  public:
    virtual ~Backend() = default;

    virtual DeviceInfo device() const = 0;
    // Bytes per second at which its memory can be read, measured now; 0: not known.
    virtual double read_bandwidth() { return 0; }
    virtual Result<Buffer> allocate(size_t bytes, std::string_view purpose) = 0;
    // Makes a weight available on the device. `host` must stay valid as long as the result.
    virtual Result<PlacedWeight> place(const Tensor& host, WeightUse use) = 0;
    // Bytes that place() will allocate for this weight; 0: it stays where it is. Uses for which it is packed
    // have it packed alike.
    virtual size_t packed_bytes(const Tensor&, WeightUse) const { return 0; }
    // How attention wants a cache of keys: rows, or Layout::key_tiles where the type and the page size allow
    // it.
    virtual Layout key_layout(Type, int64_t /*page_size*/) const { return Layout::rows; }
    // What runs later sees the bytes; `host_src` may change when this returns.
    virtual Result<void> upload(std::byte* device_dst, std::span<const std::byte> host_src) = 0;
    // Waits for what ran before, and reports what went wrong there.
    virtual Result<void> download(std::span<std::byte> host_dst, const std::byte* device_src) = 0;
    // For letters of so many bytes; null where run() does its work before it returns. The backend must
    // outlive it.
    virtual Result<std::unique_ptr<Mailbox>> mailbox(size_t /*bytes*/) { return std::unique_ptr<Mailbox>(); }

    // Whether there is a kernel for this instruction; if not, compile() records its expansion instead.
    // Operands carry types and the largest row counts; data pointers are only set for weights and caches.
    virtual bool supports(const OpDef& op, const OpArgs& shapes) const = 0;
    // Scratch the instruction needs at its largest size; it is planned into the arena.
    virtual size_t scratch_bytes(const OpDef& op, const OpArgs& shapes) const = 0;
    // Whether an instruction may be done together with the next one: then its operands are still there when
    // that runs.
    virtual bool joins_next(const Instr&) const { return false; }
    // Runs the instructions in order. Results in host memory may then be read; those in a device's own are
    // what download() will fetch.
    virtual Result<void> run(std::span<BoundInstr> instrs, Observer* observer) = 0;
};

}  // namespace nibble
