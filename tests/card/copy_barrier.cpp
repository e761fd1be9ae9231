// Barriers that count copies in one piece: PTX ISA 9.0, sections 9.7.13.15 (mbarrier) and 9.7.9.25.4.1
// (cp.async.bulk). Such copies happen as late as they may: when a warp asks whether the turn is over.
#include <unordered_map>

#include "ggml/base/cat.h"
#include "tests/card/machine.h"

namespace nibble::card {
namespace {

constexpr size_t barrier_bytes = 8;

uint64_t global_address_of(Machine& m, const Instruction& i, size_t operand, int lane) {
    const int slot = i.in[operand];
    const uint64_t base = slot == no_slot ? 0 : m.cells(slot)[lane];
    return base + static_cast<uint64_t>(i.add[operand]);
}
uint32_t address_of(Machine& m, const Instruction& i, size_t operand, int lane) {
    return static_cast<uint32_t>(global_address_of(m, i, operand, lane));
}

CopyBarrier& barrier_at(Machine& m, uint32_t at) {
    const auto it = m.copy_barriers.find(at);
    if (it == m.copy_barriers.end()) throw Fault(cat("there is no barrier at ", at, " of shared memory"));
    return it->second;
}

void begin(Machine& m, const Instruction& i, Lanes on) {
    each_lane(on, [&](int lane) {
        const uint32_t at = address_of(m, i, 0, lane), n = value<uint32_t>(m.cells(i.in[1]), lane);
        (void)m.in_shared(at, barrier_bytes);
        m.copy_barriers[at] = {n, n, 0, 0, 0, {}};
    });
}

void end_turn(Machine& m, CopyBarrier& b) {
    if (b.missing != 0 || b.asked_for != b.expected) return;
    for (const CopyBarrier::Copy& c : b.copies)
        std::memcpy(m.shared.data() + c.to, reinterpret_cast<const void*>(c.from), c.bytes);
    b.copies.clear();
    b.missing = b.arrivals;
    b.expected = b.asked_for = 0;
    ++b.turn;
    ++m.copy_events;
}

template <bool expects>
void arrive(Machine& m, const Instruction& i, Lanes on) {
    each_lane(on, [&](int lane) {
        CopyBarrier& b = barrier_at(m, address_of(m, i, 0, lane));
        if (b.missing == 0) throw Fault("more arrivals than a barrier has");
        --b.missing;
        if (expects) b.expected += value<uint32_t>(m.cells(i.in[1]), lane);
        ++m.copy_events;
        if (b.expected == 0) end_turn(m, b);
    });
}

void copy(Machine& m, const Instruction& i, Lanes on) {
    each_lane(on, [&](int lane) {
        const uint32_t to = address_of(m, i, 0, lane), bytes = value<uint32_t>(m.cells(i.in[2]), lane);
        const uint64_t from = global_address_of(m, i, 1, lane);
        if (to % 16 || from % 16 || bytes % 16) throw Fault("a copy in one piece that is not aligned to 16");
        for (uint32_t n = 0; n < bytes; n += 16) {
            (void)m.in_shared(to + n, 16);
            (void)m.global(from + n, 16, lane);
        }
        CopyBarrier& b = barrier_at(m, address_of(m, i, 3, lane));
        b.copies.push_back({to, bytes, from});
        b.asked_for += bytes;
        ++m.copy_events;
    });
}

// Whether the turn is over; a warp that asks in vain lets the others go on.
void ask(Machine& m, const Instruction& i, Lanes on) {
    Lanes over = 0;
    each_lane(on, [&](int lane) {
        CopyBarrier& b = barrier_at(m, address_of(m, i, 0, lane));
        if (b.expected != 0) end_turn(m, b);
        if ((b.turn & 1) != value<uint32_t>(m.cells(i.in[1]), lane)) over |= Lanes{1} << lane;
    });
    Lanes& out = m.predicate(i.out[0]);
    out = (out & ~on) | over;
    m.warp->yields = over != on;
}

}  // namespace

Handler copy_barrier_handler(const std::string& name) {
    static const auto* const table = new std::unordered_map<std::string, Handler>{
        {"mbarrier.init.b64", begin},
        {"mbarrier.arrive.b64", arrive<false>},
        {"mbarrier.arrive.expect_tx.b64", arrive<true>},
        {"mbarrier.try_wait.parity.b64", ask},
        {"cp.async.bulk.global", copy},
    };
    const auto it = table->find(name);
    return it == table->end() ? nullptr : it->second;
}

}  // namespace nibble::card
