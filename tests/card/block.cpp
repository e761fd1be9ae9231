// Runs the blocks of a launch: warps of a block in turns, from barrier to barrier.
// Lanes that have parted go on with those at the lowest instruction, so that they meet again where the
// branches do. Warps and blocks come in an order that changes, for none is promised.
#include <algorithm>
#include <random>

#include "ggml/base/cat.h"
#include "tests/card/machine.h"

namespace nibble::card {
namespace {

void meet(std::vector<Path>& paths) {
    for (size_t a = 0; a < paths.size(); ++a)
        for (size_t b = paths.size(); --b > a;)
            if (paths[a].at == paths[b].at) {
                paths[a].lanes |= paths[b].lanes;
                paths[a].waits = false;
                paths.erase(paths.begin() + static_cast<std::ptrdiff_t>(b));
            }
}

// The path to go on with is taken out of the list.
Path next_path(Machine& m) {
    std::vector<Path>& paths = m.warp->paths;
    const auto order = [](const Path& a, const Path& b) {
        return std::pair(a.waits, a.at) < std::pair(b.waits, b.at);
    };
    for (Path& p : paths) p.waits = p.waits && p.lanes != m.warp->alive;
    const auto it = std::ranges::min_element(paths, order);
    const Path path = *it;
    if (path.waits) {
        m.now = &m.kernel->code[path.at];
        throw Fault("lanes have parted where all of the warp must be");
    }
    paths.erase(it);
    return path;
}

// One instruction; false where the path ends or must be looked at anew.
bool step(Machine& m, Path& path, bool alone) {
    Warp& w = *m.warp;
    const Instruction& i = m.kernel->code[path.at];
    m.now = &i;
    Lanes on = path.lanes;
    if (i.guard != no_slot) on &= i.guard_negated ? ~m.predicate(i.guard) : m.predicate(i.guard);
    switch (i.flow) {
        case Flow::next:
            if (on) i.run(m, i, on);
            ++path.at;
            return true;
        case Flow::branch: {
            const auto target = static_cast<size_t>(i.target);
            if (on && on != path.lanes) w.paths.push_back({target, on, false});
            if (on != path.lanes)
                path = {path.at + 1, path.lanes & ~on, false};
            else
                path.at = target;
            if (!on || (alone && w.paths.empty())) return true;
            break;
        }
        case Flow::exit:
            w.alive &= ~on;
            path = {path.at + 1, path.lanes & ~on, false};
            if (!path.lanes) return false;
            return true;
        case Flow::whole_warp:
        case Flow::barrier:
            if (on != path.lanes) throw Fault("an instruction of the whole warp for some lanes");
            if (i.flow == Flow::whole_warp && w.alive != w.all)
                throw Fault("an instruction of the whole warp after some lanes have ended");
            path.waits = on != w.alive;
            if (!path.waits) {
                ++path.at;
                if (i.flow == Flow::whole_warp) {
                    i.run(m, i, on);
                    return true;
                }
                w.at_barrier = true;
            }
            break;
    }
    w.paths.push_back(path);
    return false;
}

// Until the warp ends, waits for the others of its block, or lets them go on.
void run_warp(Machine& m) {
    Warp& w = *m.warp;
    w.yields = false;
    while (!w.at_barrier && !w.yields) {
        meet(w.paths);
        if (w.paths.empty()) {
            if (!w.products.empty()) throw Fault("a warp ended with products under way");
            w.ended = true;
            return;
        }
        Path path = next_path(m);
        size_t meeting = SIZE_MAX;  // where others wait or will go on
        for (const Path& p : w.paths)
            if (p.at > path.at) meeting = std::min(meeting, p.at);
        const bool alone = w.paths.empty();
        while (step(m, path, alone))
            if (path.at >= meeting || w.yields) {
                w.paths.push_back(path);
                break;
            }
    }
}

void begin(Warp& w, const Launch& l, uint32_t first_thread) {
    const Kernel& k = *l.kernel;
    w.registers.resize(std::max(w.registers.size(), static_cast<size_t>(k.n_registers) * warp_size));
    w.local.assign(k.local_bytes * warp_size, std::byte{0xff});
    const uint32_t here = std::min<uint32_t>(warp_size, l.threads - first_thread);
    w.all = w.alive = here == warp_size ? all_lanes : (Lanes{1} << here) - 1;
    w.paths.assign(1, {0, w.all, false});
    w.copies.clear();
    w.groups = {};
    w.products.clear();
    w.product_groups = 0;
    w.registers_ready = false;
    w.unpublished = 0;
    w.carry = 0;
    w.waited = l.overlaps ? 0 : all_lanes;
    w.at_barrier = w.ended = w.yields = false;
}

void set_special(Machine& m, const Launch& l, const std::array<uint32_t, 3>& block, uint32_t first_thread) {
    int slot = 0;  // in the order of special_registers
    const auto set = [&](uint32_t first, uint32_t step) {
        uint64_t* const cells = m.cells(slot++);
        for (uint32_t lane = 0; lane < warp_size; ++lane) cells[lane] = first + lane * step;
    };
    set(first_thread, 1);
    set(l.threads, 0);
    set(0, 1);
    for (const uint32_t b : block) set(b, 0);
    for (const uint32_t n : l.grid) set(n, 0);
}

// Barriers are met when every warp that has not ended is at one.
void run_block(Machine& m, std::span<Warp> warps, std::mt19937& order_of) {
    std::vector<Warp*> order;
    for (Warp& w : warps) order.push_back(&w);
    while (true) {
        const uint64_t events = m.copy_events;
        std::ranges::shuffle(order, order_of);
        for (Warp* w : order) {
            m.warp = w;
            if (!w->ended) run_warp(m);
        }
        if (std::ranges::any_of(warps, &Warp::yields)) {
            if (m.copy_events == events) throw Fault("a barrier is waited for whose turn does not end");
            continue;
        }
        if (std::ranges::all_of(warps, &Warp::ended)) {
            for (const auto& [at, barrier] : m.copy_barriers)
                if (!barrier.copies.empty()) throw Fault("a block ended with copies under way");
            return;
        }
        m.published = true;
        for (Warp& w : warps) {
            w.at_barrier = false;
            m.published &= w.unpublished == 0;
        }
    }
}

}  // namespace

void run(const Launch& l) {
    thread_local std::vector<Warp> pool;  // keeps its memory
    std::mt19937 order_of(1);
    const Kernel& k = *l.kernel;
    const size_t n_warps = (l.threads + warp_size - 1) / warp_size;
    if (pool.size() < n_warps) pool.resize(n_warps);
    const std::span<Warp> warps(pool.data(), n_warps);
    std::vector<std::max_align_t> shared((k.static_shared + l.dynamic_shared) / sizeof(std::max_align_t) + 1);
    Machine m;
    m.kernel = &k;
    m.shared = {reinterpret_cast<std::byte*>(shared.data()), k.static_shared + l.dynamic_shared};
    m.parameters = l.parameters;
    const uint64_t blocks = uint64_t{l.grid[0]} * l.grid[1] * l.grid[2];
    const uint64_t stride = blocks % 7 ? 7 : blocks % 11 ? 11 : 1;
    std::array<uint32_t, 3> block{};
    try {
        for (uint64_t n = 0; n < blocks; ++n) {
            const uint64_t b = n * stride % blocks;
            block = {static_cast<uint32_t>(b % l.grid[0]), static_cast<uint32_t>(b / l.grid[0] % l.grid[1]),
                     static_cast<uint32_t>(b / l.grid[0] / l.grid[1])};
            std::ranges::fill(m.shared, std::byte{0xff});
            m.published = true;
            m.copy_barriers.clear();
            for (size_t w = 0; w < n_warps; ++w) {
                const auto first = static_cast<uint32_t>(w * warp_size);
                begin(warps[w], l, first);
                m.warp = &warps[w];
                set_special(m, l, block, first);
            }
            run_block(m, warps, order_of);
        }
    } catch (const Fault& f) {
        throw Fault(cat(f.what(), "\n  in block (", block[0], ", ", block[1], ", ", block[2], ") of ", k.name,
                        m.now ? cat("\n  line ", m.now->line, ": ", m.now->text) : std::string()));
    }
}

}  // namespace nibble::card
