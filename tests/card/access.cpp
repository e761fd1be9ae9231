// Instructions that read or write memory: PTX ISA 9.0, sections 9.7.9 and 9.7.13 to 9.7.15.
// Every access is checked: inside an allocation, and aligned to its size. Asynchronous copies happen as late
// as they may: when they are waited for.
#include <unordered_map>

#include "ggml/base/cat.h"
#include "tests/card/machine.h"

namespace nibble::card {
namespace {

void require_alignment(uint64_t address, size_t bytes) {
    if (address % bytes) throw Fault(cat("an access of ", bytes, " bytes that is not aligned"));
}

enum class Space { global, shared, local, parameter, generic };

// An address may be without a register.
uint64_t address_of(Machine& m, const Instruction& i, int operand, int lane) {
    const int slot = i.in[static_cast<size_t>(operand)];
    const uint64_t base = slot == no_slot ? 0 : m.cells(slot)[lane];
    return base + static_cast<uint64_t>(i.add[static_cast<size_t>(operand)]);
}

template <Space space>
std::byte* place(Machine& m, uint64_t address, size_t bytes, int lane) {
    if constexpr (space == Space::global) return m.global(address, bytes, lane);
    if constexpr (space == Space::shared) return m.in_shared(address & 0xffffffff, bytes);
    if constexpr (space == Space::local) return m.in_local(address & 0xffffffff, bytes, lane);
    if constexpr (space == Space::parameter) {
        if (address + bytes > m.parameters.size()) throw Fault("outside of the kernel's parameters");
        return const_cast<std::byte*>(m.parameters.data()) + address;
    }
    if (address >> 56 == shared_window >> 56) return m.in_shared(address - shared_window, bytes);
    if (address >> 56 == local_window >> 56) return m.in_local(address - local_window, bytes, lane);
    return m.global(address, bytes, lane);
}

template <Space space, class T>
void load(Machine& m, const Instruction& i, Lanes on) {
    const auto n = static_cast<size_t>(i.elements);
    each_lane(on, [&](int lane) {
        const std::byte* const p = place<space>(m, address_of(m, i, 0, lane), n * sizeof(T), lane);
        for (size_t e = 0; e < n; ++e) {
            T v;
            std::memcpy(&v, p + e * sizeof(T), sizeof v);
            if (i.out[e] != no_slot) set_value<T>(m.cells(i.out[e]), lane, v);
        }
    });
}

template <Space space, class T>
void store(Machine& m, const Instruction& i, Lanes on) {
    const auto n = static_cast<size_t>(i.elements);
    each_lane(on, [&](int lane) {
        std::byte* const p = place<space>(m, address_of(m, i, 0, lane), n * sizeof(T), lane);
        for (size_t e = 0; e < n; ++e) {
            const T v = value<T>(m.cells(i.in[1 + e]), lane);
            std::memcpy(p + e * sizeof(T), &v, sizeof v);
        }
    });
}

template <Space space, class T>
void atomic_add(Machine& m, const Instruction& i, Lanes on) {
    each_lane(on, [&](int lane) {
        std::byte* const p = place<space>(m, address_of(m, i, 0, lane), sizeof(T), lane);
        T old;
        std::memcpy(&old, p, sizeof old);
        const T sum = old + value<T>(m.cells(i.in[1]), lane);
        std::memcpy(p, &sum, sizeof sum);
        if (i.out[0] != no_slot) set_value<T>(m.cells(i.out[0]), lane, old);
    });
}

constexpr size_t copy_bytes = 16;

void copy_async(Machine& m, const Instruction& i, Lanes on) {
    each_lane(on, [&](int lane) {
        const uint64_t to = address_of(m, i, 0, lane) & 0xffffffff, from = address_of(m, i, 1, lane);
        const auto bytes =
            i.in[2] == no_slot ? static_cast<uint32_t>(copy_bytes) : value<uint32_t>(m.cells(i.in[2]), lane);
        if (bytes > copy_bytes) throw Fault("a copy of more bytes than its size");
        (void)m.in_shared(to, copy_bytes);
        require_alignment(from, copy_bytes);
        if (bytes) (void)m.global(from, copy_bytes, lane);
        m.warp->copies.push_back(
            {lane, m.warp->groups[static_cast<size_t>(lane)], static_cast<uint32_t>(to), bytes, from});
    });
}

void close_group(Machine& m, const Instruction&, Lanes on) {
    each_lane(on, [&](int lane) { ++m.warp->groups[static_cast<size_t>(lane)]; });
}

// Completes all but the latest add[0] groups of each lane.
void wait_for_groups(Machine& m, const Instruction& i, Lanes on) {
    std::erase_if(m.warp->copies, [&](const PendingCopy& c) {
        const bool due = on >> c.lane & 1 && c.group < m.warp->groups[static_cast<size_t>(c.lane)] - i.add[0];
        if (due) {
            std::byte* const to = m.in_shared(c.to, copy_bytes);
            std::memset(to, 0, copy_bytes);
            if (c.bytes) std::memcpy(to, reinterpret_cast<const void*>(c.from), c.bytes);
            m.warp->unpublished |= Lanes{1} << c.lane;
        }
        return due;
    });
}

// Four matrices of 8 x 8 16-bit elements, whose rows lanes 8n to 8n + 7 point to: lane l gets the elements
// 2 (l % 4) and the next of row l / 4, or transposed, of column l / 4.
template <bool transposed>
void load_matrices(Machine& m, const Instruction& i, Lanes on) {
    uint16_t rows[4][8][8];
    each_lane(on, [&](int lane) {
        std::memcpy(rows[lane / 8][lane % 8], m.in_shared(address_of(m, i, 0, lane) & 0xffffffff, 16), 16);
    });
    for (size_t n = 0; n < 4; ++n) {
        uint64_t* const out = m.cells(i.out[n]);
        each_lane(on, [&](int lane) {
            const int a = lane / 4, b = lane % 4 * 2;
            const uint32_t lo = transposed ? rows[n][b][a] : rows[n][a][b],
                           hi = transposed ? rows[n][b + 1][a] : rows[n][a][b + 1];
            set_value<uint32_t>(out, lane, lo | hi << 16);
        });
    }
}

void wait_for_launches(Machine& m, const Instruction&, Lanes on) { m.warp->waited |= on; }

using Table = std::unordered_map<std::string, Handler>;

template <Space space>
void add_space(Table& t, const std::string& name) {
    const auto add = [&]<class T>(std::initializer_list<const char*> types) {
        for (const char* type : types) {
            t[cat("ld", name, ".", type)] = load<space, T>;
            if (space != Space::parameter) t[cat("st", name, ".", type)] = store<space, T>;
        }
    };
    add.template operator()<uint8_t>({"u8", "b8"});
    add.template operator()<int8_t>({"s8"});
    add.template operator()<uint16_t>({"u16", "b16"});
    add.template operator()<int16_t>({"s16"});
    add.template operator()<uint32_t>({"u32", "b32", "f32"});
    add.template operator()<int32_t>({"s32"});
    add.template operator()<uint64_t>({"u64", "b64", "s64", "f64"});
    if (space == Space::parameter || space == Space::local) return;
    for (const char* op : {"atom", "red"}) {
        t[cat(op, name, ".add.u32")] = t[cat(op, ".add", name, ".u32")] = atomic_add<space, uint32_t>;
        t[cat(op, name, ".add.s32")] = t[cat(op, ".add", name, ".s32")] = atomic_add<space, uint32_t>;
        t[cat(op, name, ".add.u64")] = t[cat(op, ".add", name, ".u64")] = atomic_add<space, uint64_t>;
        t[cat(op, name, ".add.f32")] = t[cat(op, ".add", name, ".f32")] = atomic_add<space, float>;
    }
}

}  // namespace

std::byte* Machine::global(uint64_t address, size_t bytes, int lane) {
    require_alignment(address, bytes);
    if (!now->early && !(warp->waited >> lane & 1))
        throw Fault("an access before the launches before have ended");
    if (!recent.holds(address, bytes)) recent = bounds_of(address, bytes);
    return reinterpret_cast<std::byte*>(address);
}

std::byte* Machine::in_shared(uint64_t address, size_t bytes) {
    require_alignment(address, bytes);
    if (address + bytes > shared.size())
        throw Fault(cat(bytes, " bytes at ", address, " of ", shared.size(), " of shared memory"));
    return shared.data() + address;
}

std::byte* Machine::in_local(uint64_t address, size_t bytes, int lane) {
    require_alignment(address, bytes);
    if (address + bytes > kernel->local_bytes)
        throw Fault(cat(bytes, " bytes at ", address, " of ", kernel->local_bytes, " of local memory"));
    return warp->local.data() + static_cast<size_t>(lane) * kernel->local_bytes + address;
}

Handler access_handler(const std::string& name) {
    static const Table* const table = [] {
        auto* t = new Table;
        add_space<Space::global>(*t, ".global");
        add_space<Space::global>(*t, ".const");
        add_space<Space::shared>(*t, ".shared");
        add_space<Space::local>(*t, ".local");
        add_space<Space::parameter>(*t, ".param");
        add_space<Space::generic>(*t, "");
        (*t)["griddepcontrol.wait"] = wait_for_launches;
        (*t)["cp.async.shared.global"] = copy_async;
        (*t)["cp.async.commit_group"] = close_group;
        (*t)["cp.async.wait_group"] = wait_for_groups;
        (*t)["ldmatrix.m8n8.x4.shared.b16"] = load_matrices<false>;
        (*t)["ldmatrix.m8n8.x4.trans.shared.b16"] = load_matrices<true>;
        return t;
    }();
    const auto it = table->find(name);
    return it == table->end() ? nullptr : it->second;
}

}  // namespace nibble::card
