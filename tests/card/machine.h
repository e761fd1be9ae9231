// Kernels as the card in software holds them, and the state of a block that runs one.
// A register is 32 cells of 64 bits, one per lane, whose low bytes hold values of any width; a predicate is a
// mask in the first cell.
#pragma once

#include <array>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "tests/card/memory.h"

namespace nibble::card {

using Lanes = uint32_t;  // one bit per lane of a warp
inline constexpr Lanes all_lanes = ~Lanes{0};
inline constexpr int warp_size = 32;
inline constexpr int no_slot = INT32_MIN;

// Registers that a launch sets: the first slots of every kernel, in this order.
inline constexpr std::array special_registers{"%tid.x",   "%ntid.x",   "%laneid",   "%ctaid.x", "%ctaid.y",
                                              "%ctaid.z", "%nctaid.x", "%nctaid.y", "%nctaid.z"};

struct Machine;
struct Instruction;
using Handler = void (*)(Machine&, const Instruction&, Lanes);

// What the scheduler of warps must know of an instruction.
enum class Flow : uint8_t {
    next,
    branch,
    exit,
    whole_warp,  // all lanes must be there
    barrier,     // all threads of the block must come
};

struct Instruction {
    Handler run = nullptr;
    Flow flow = Flow::next;
    int guard = no_slot;  // a predicate
    bool guard_negated = false;
    bool early = false;            // an access that may come before the launches before have ended
    int elements = 1;              // of a vector access
    std::array<int, 4> out{};      // slots: registers, or ~n for constant n
    std::array<int, 12> in{};      // addresses first
    std::array<int64_t, 4> add{};  // to addresses; or a number of the instruction
    int target = -1;               // of a branch
    std::vector<int> sums;         // registers of a warpgroup's product
    int line = 0;
    std::string text;
};

struct Parameter {
    std::string name;
    size_t offset, bytes;
};

struct Kernel {
    std::string name;
    std::vector<Parameter> parameters;
    size_t parameter_bytes = 0, local_bytes = 0, static_shared = 0;
    int n_registers = 0;
    int most_threads = 1024;          // of a block, where the kernel says it
    std::vector<uint64_t> constants;  // 32 cells each
    std::vector<Instruction> code;
};

// The kernels of a module's PTX. Throws Fault with the line of what is not understood.
std::vector<Kernel> parse_module(std::string_view ptx);

struct Launch {
    const Kernel* kernel = nullptr;
    std::array<uint32_t, 3> grid{1, 1, 1};
    uint32_t threads = 32;
    size_t dynamic_shared = 0;
    bool overlaps = false;  // with the launch before: until it waits, it may read constants
    std::vector<std::byte> parameters;
};

// Runs all blocks, one after the other, in an order of its own. Throws Fault.
void run(const Launch& launch);

// A copy into shared memory that no one has waited for: it has not happened yet.
struct PendingCopy {
    int lane, group;
    uint32_t to, bytes;
    uint64_t from;
};

// A barrier in shared memory. Copies that it counts happen when someone asks whether its turn is over.
struct CopyBarrier {
    struct Copy {
        uint32_t to, bytes;
        uint64_t from;
    };
    uint32_t arrivals = 0, missing = 0;
    uint64_t expected = 0, asked_for = 0;  // bytes of the turn
    uint32_t turn = 0;
    std::vector<Copy> copies;
};

// A warp's product that it has not waited for: what it reads must stay as it was.
struct PendingProduct {
    const Instruction* instruction;
    int group;
    std::vector<std::byte> read;
    uint64_t descriptor;  // of the matrix in shared memory
};

// Lanes that are at the same instruction.
struct Path {
    size_t at;
    Lanes lanes;
    bool waits;  // for the other lanes
};

struct Warp {
    std::vector<uint64_t> registers;
    std::vector<std::byte> local;  // of one lane after the other
    std::vector<Path> paths;
    std::vector<PendingCopy> copies;
    std::array<int, warp_size> groups{};  // of copies that a lane has closed
    std::vector<PendingProduct> products;
    int product_groups = 0;        // that the warp has closed
    bool registers_ready = false;  // for products: wgmma.fence
    Lanes all = 0, alive = 0, carry = 0;
    Lanes waited = 0;       // for the launches before
    Lanes unpublished = 0;  // that have not shown their copies to the tensor cores
    bool at_barrier = false, ended = false;
    bool yields = false;  // to the others: it asks for something again and again
};

struct Machine {
    const Kernel* kernel = nullptr;
    Warp* warp = nullptr;
    std::span<std::byte> shared;
    std::span<const std::byte> parameters;
    const Instruction* now = nullptr;
    Bounds recent;          // the allocation last used
    bool published = true;  // all that was copied to shared memory before the last barrier
    std::map<uint32_t, CopyBarrier> copy_barriers;  // by address
    uint64_t copy_events = 0;                       // of all of them

    uint64_t* cells(int slot) {
        return slot >= 0
                   ? warp->registers.data() + static_cast<size_t>(slot) * warp_size
                   : const_cast<uint64_t*>(kernel->constants.data()) + static_cast<size_t>(~slot) * warp_size;
    }
    Lanes& predicate(int slot) { return *reinterpret_cast<Lanes*>(cells(slot)); }

    // A place in device, shared or local memory, at least as aligned as it is large.
    std::byte* global(uint64_t address, size_t bytes, int lane);
    std::byte* in_shared(uint64_t address, size_t bytes);
    std::byte* in_local(uint64_t address, size_t bytes, int lane);
};

template <class T>
T value(const uint64_t* cells, int lane) {
    T v;
    std::memcpy(&v, cells + lane, sizeof v);
    return v;
}
// Integers fill the cell, so that a register may be wider than what is put there.
template <class T>
void set_value(uint64_t* cells, int lane, T v) {
    if constexpr (std::is_integral_v<T>)
        cells[lane] = static_cast<uint64_t>(v);
    else
        std::memcpy(cells + lane, &v, sizeof v);
}
template <class F>
void each_lane(Lanes on, F f) {
    for (int lane = 0; lane < warp_size; ++lane)
        if (on >> lane & 1) f(lane);
}

// Addresses of shared and local memory among those of device memory.
inline constexpr uint64_t shared_window = uint64_t{1} << 56, local_window = uint64_t{2} << 56;

// Instructions by name without what does not change their effect here ("add.rn.f32", "shfl.bfly.b32").
// A name that is not there is null.
Handler elementwise_handler(const std::string& name);   // lane by lane from registers to registers
Handler access_handler(const std::string& name);        // ld, st, atom, cp.async, ldmatrix
Handler warp_handler(const std::string& name);          // shfl, vote, mma
Handler warpgroup_handler(const std::string& name);     // wgmma, fence.proxy
Handler copy_barrier_handler(const std::string& name);  // mbarrier, cp.async.bulk

}  // namespace nibble::card
