// Fibers, one stack per thread of a block, kept for the next launch.
// The sanitizers are told of every switch, so that they find errors and races inside kernels.
#include "ggml/cuda/emulation/block.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <new>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ggml/base/address_sanitizer.h"
#include "ggml/cuda/emulation/races.h"
#include "ggml/cuda/emulation/stack_switch.h"
#include "ggml/cuda/emulation/warpgroup.h"

namespace nibble::cuda::emulation {

constinit thread_local Place place;

namespace {

constexpr size_t stack_bytes = size_t{320} << 10;  // with what new_fiber() leaves unused
constexpr int max_warps = 32;

enum class State : uint8_t { ready, at_warp, at_block, at_copies, ended };

struct Copy {
    void* to;
    const void* from;
};

struct BulkCopy {
    std::byte* to;
    const std::byte* from;
    int bytes;
};

constexpr size_t most_copy_barriers = 1024;  // of a block

// Threads wait there for arrivals and for copies, which are made when somebody asks for them.
struct CopyBarrier {
    int arrivals = 0, missing = 0;        // of a turn, and still in this one
    int64_t expected = 0, asked_for = 0;  // bytes of this turn
    uint32_t turn = 0;
    std::vector<BulkCopy> copies;
    char order = 0;
};

struct Fiber {
    StackSwitch context;
    std::unique_ptr<std::byte[]> stack;
    void* fake_stack = nullptr;
    Strand strand;
    std::vector<Copy> open;                // since the last commit
    std::deque<std::vector<Copy>> groups;  // committed, oldest first
    bool unpublished = false;              // something that was copied
    bool unannounced = false;              // a barrier for copies
    WarpgroupProducts products;
    // Two of each kind of rendezvous take turns, so that a fast thread is not at the next while a slow one
    // still leaves the last.
    uint8_t exchange = 0, warp_barrier = 0, block_barrier = 0;
    bool waited = false;   // for the launches before
    bool follows = false;  // is in order with what they did
    bool fenced = false;
    void* counter = nullptr;  // added to since the last fence
};

// Where strands are brought into an order; only addresses count.
struct Barrier {
    char of_turn[2];
};

constexpr std::align_val_t shared_alignment{1024};
struct FreeShared {
    void operator()(std::byte* p) const { ::operator delete(p, shared_alignment); }
};

// The threads that run one block after another, as a multiprocessor would.
struct Team {
    std::vector<std::unique_ptr<Fiber>> fibers;
    State states[32 * max_warps] = {};  // of them: side by side, for they are looked at after every switch
    std::unique_ptr<std::byte, FreeShared> shared;
    bool published = true;  // all that was copied before the last barrier
    Barrier block_barrier, warp_barrier[max_warps];
    std::unordered_map<uint32_t, CopyBarrier> copy_barriers;  // by address
    int64_t copy_events = 0;                                  // of all of them
};

// One per host thread that emulates.
struct Machine {
    // Blocks are in no order, and a launch may begin before the last one has ended. With two teams that take
    // turns, and two others for the next launch, races between neighbours of either kind are found as well.
    Team teams[watching_races ? 4 : 1];
    Team* team = teams;
    bool odd = false;  // the launch; two turns as for a rendezvous
    char ended[2];
    std::vector<Slot> slots[2] = {std::vector<Slot>(32 * max_warps), std::vector<Slot>(32 * max_warps)};
    StackSwitch scheduler;
    void* scheduler_fake = nullptr;
    const void* scheduler_stack = nullptr;
    size_t scheduler_size = 0;
    bool scheduled = false;  // it and no other thread is what the running one was switched to from
    void* scheduler_strand = nullptr;
    const std::function<void()>* kernel = nullptr;
    // For the host those that it has not waited for are still running.
    std::vector<std::shared_ptr<const std::function<void()>>> launches;
    bool backwards = false;              // in which order lanes run
    int first_lane = 0, lanes_seen = 0;  // of the warp that runs, in this turn
    char launched;
};

Machine& machine() {
    thread_local Machine m;
    return m;
}

Fiber& fiber(int thread) { return *machine().team->fibers[static_cast<size_t>(thread)]; }
Fiber& running() { return fiber(place.thread); }

void before_switch([[maybe_unused]] void** fake, [[maybe_unused]] const void* stack,
                   [[maybe_unused]] size_t size) {
#ifdef NIBBLE_ASAN
    __sanitizer_start_switch_fiber(fake, stack, size);
#endif
}

void after_switch([[maybe_unused]] void* fake, [[maybe_unused]] const void** from,
                  [[maybe_unused]] size_t* size) {
#ifdef NIBBLE_ASAN
    __sanitizer_finish_switch_fiber(fake, from, size);
#endif
}

// The next lane of the running warp that can go on in this turn, which is the running one from now on.
Fiber* next_lane() {
    Machine& m = machine();
    while (m.lanes_seen < 32) {
        const int i = m.lanes_seen++, thread = m.first_lane + (m.backwards ? 31 - i : i);
        if (m.team->states[thread] != State::ready) continue;
        place.thread = thread;
        return &running();
    }
    return nullptr;
}

// Leaves one stack, whose owner keeps its fake stack in `fake`, for a thread's.
void enter(Fiber& f, StackSwitch& from, void** fake) {
    before_switch(fake, f.stack.get(), stack_bytes);
    f.strand.enter();
    StackSwitch::change(from, f.context);
}

// Where a thread goes on, for the first time or once more.
void go_on(void* fake) {
    Machine& m = machine();
    const void* stack = nullptr;
    size_t size = 0;
    after_switch(fake, &stack, &size);
    if (std::exchange(m.scheduled, false)) m.scheduler_stack = stack, m.scheduler_size = size;
}

// Leaves the running thread, for the next of its warp where there is one.
void pause(State state) {
    Machine& m = machine();
    Fiber& f = running();
    m.team->states[place.thread] = state;
    if (Fiber* const next = next_lane()) {
        enter(*next, f.context, &f.fake_stack);
    } else {
        before_switch(&f.fake_stack, m.scheduler_stack, m.scheduler_size);
        Strand::enter(m.scheduler_strand);
        StackSwitch::change(f.context, m.scheduler);
    }
    go_on(f.fake_stack);
}

// Waits with others, and brings an order into what all have done before and what they do then.
void meet(Barrier& barrier, uint8_t& turn, State state) {
    char* const at = &barrier.of_turn[turn ^= 1];
    release(at);
    pause(state);
    acquire(at);
}

// What the launches before this one did, in order with what the thread does next.
void follow_previous(Fiber& f) {
    if (!std::exchange(f.follows, true)) acquire(&machine().ended[!machine().odd]);
}

// One thread of block after block.
void fiber_main() {
    Machine& m = machine();
    go_on(nullptr);
    for (;;) {
        (*m.kernel)();
        const Fiber& f = running();
        if (!f.open.empty() || !f.groups.empty()) fail("a thread ended with copies under way");
        if (!f.products.idle()) fail("a thread ended with products under way");
        if (!f.waited) fail("a thread ended without wait_for_previous()");
        pause(State::ended);
    }
}

// Stacks lie in memory alike, and what their threads used last would want the same few places of the caches:
// they begin at different distances from their ends.
constexpr size_t stack_step = 13 * 64, stack_steps = 64;

std::unique_ptr<Fiber> new_fiber(size_t thread) {
    auto f = std::make_unique<Fiber>();
    f->stack = std::make_unique_for_overwrite<std::byte[]>(stack_bytes);
    f->context.begin(f->stack.get(), stack_bytes - thread % stack_steps * stack_step, fiber_main);
    return f;
}

void prepare(Fiber& f) {
    f.exchange = f.warp_barrier = f.block_barrier = 0;
    f.waited = f.fenced = f.unpublished = f.unannounced = false;
    f.counter = nullptr;
}

void resume(Fiber& f) {
    Machine& m = machine();
    m.scheduled = true;
    enter(f, m.scheduler, &m.scheduler_fake);
    after_switch(m.scheduler_fake, nullptr, nullptr);
}

// Runs a warp until its lanes wait for the block or have ended, or one of them for copies once more.
void run_warp(int first) {
    Machine& m = machine();
    const std::span<State, 32> states(m.team->states + first, 32);
    m.first_lane = first;
    std::replace(states.begin(), states.end(), State::at_copies, State::ready);
    for (;;) {
        m.lanes_seen = 0;
        while (Fiber* const f = next_lane()) resume(*f);
        m.backwards = !m.backwards;
        const auto waiting = std::count(states.begin(), states.end(), State::at_warp);
        const auto for_copies = std::count(states.begin(), states.end(), State::at_copies);
        if (waiting == 0 || for_copies != 0) return;
        if (waiting != 32) fail("a warp collective is not reached by all lanes");
        std::fill(states.begin(), states.end(), State::ready);
    }
}

// Memory of its own for every block, so that the sanitizers see a step beyond, or a use of the last one's.
std::byte* new_shared(Team& team, size_t bytes) {
    const Unwatched filling;
    team.shared.reset();
    team.shared.reset(static_cast<std::byte*>(::operator new(bytes, shared_alignment)));
    team.published = true;
    team.copy_barriers.clear();
    team.copy_barriers.reserve(
        most_copy_barriers);                      // so that threads which add some free nothing of each other
    std::memset(team.shared.get(), 0xff, bytes);  // NaNs of any type
    return team.shared.get();
}

// Does something in the name of each thread of the teams.
template <class Do>
void as_each(std::span<Team> teams, size_t threads, Do act) {
    for (Team& t : teams)
        for (size_t i = 0; i < threads; ++i) {
            t.fibers[i]->strand.enter();
            act(*t.fibers[i]);
        }
    Strand::enter(machine().scheduler_strand);
}

void run_block() {
    Machine& m = machine();
    const int threads = place.dims.threads, warps = threads / 32;
    const std::span states(m.team->states, static_cast<size_t>(threads));
    for (;;) {
        const int64_t events = m.team->copy_events;
        const bool backwards = m.backwards;
        for (int i = 0; i < warps; ++i) run_warp(32 * (backwards ? warps - 1 - i : i));
        const auto waiting = std::count(states.begin(), states.end(), State::at_block);
        const auto for_copies = std::count(states.begin(), states.end(), State::at_copies);
        const auto ended = std::count(states.begin(), states.end(), State::ended);
        if (for_copies != 0) {
            if (m.team->copy_events == events) fail("threads wait for what does not come");
            continue;
        }
        if (ended == threads) {
            for (const auto& [at, barrier] : m.team->copy_barriers)
                if (!barrier.copies.empty()) fail("a block ended with copies under way");
            return;
        }
        if (waiting != threads) fail("a barrier is not reached by all threads of the block");
        std::fill(states.begin(), states.end(), State::ready);
        m.team->published = true;
        for (int i = 0; i < threads; ++i) m.team->published &= !fiber(i).unpublished;
    }
}

}  // namespace

const Slot* exchange(const Slot& mine) {
    Machine& m = machine();
    const auto thread = static_cast<size_t>(place.thread);
    auto& slots = m.slots[running().exchange ^= 1];
    slots[thread] = mine;
    pause(State::at_warp);  // which brings no order into what lanes have written elsewhere
    return slots.data() + thread / 32 * 32;
}

void wait_for_previous() {
    if (std::exchange(running().waited, true)) fail("wait_for_previous() is called again");
    follow_previous(running());
}

void wait_for_warp() {
    Fiber& f = running();
    meet(machine().team->warp_barrier[place.thread / 32], f.warp_barrier, State::at_warp);
}
void wait_for_block() {
    Fiber& f = running();
    if (f.unannounced) fail("a barrier for copies that was not published");
    meet(machine().team->block_barrier, f.block_barrier, State::at_block);
}

int atomic_add_release(int* p, int v) {
    release(p);
    return atomic_add(p, v);
}

int atomic_add_acquire_release(int* p, int v) {
    const int old = atomic_add_release(p, v);
    acquire(p);
    return old;
}

int atomic_add(int* p, int v) {
    Fiber& f = running();
    if (f.fenced) release(p);
    f.counter = p;
    const int old = *p;
    *p += v;
    return old;
}

void fence() {
    Fiber& f = running();
    f.fenced = true;
    if (f.counter) acquire(f.counter);
}

void queue_copy(void* shared, const void* global) {
    if (reinterpret_cast<uintptr_t>(shared) % 16 || reinterpret_cast<uintptr_t>(global) % 16)
        fail("an asynchronous copy is not aligned to 16 bytes");
    note_write16(shared);  // from now on at any time
    running().open.push_back({shared, global});
}

void commit_copies() {
    Fiber& f = running();
    f.groups.push_back(std::exchange(f.open, {}));
}

void finish_copies(int under_way) {
    Fiber& f = running();
    for (; f.groups.size() > static_cast<size_t>(under_way); f.groups.pop_front())
        for (const Copy& c : f.groups.front()) {
            if (c.from) note_read16(c.from);
            note_write16(c.to);
            f.unpublished = true;
            if (c.from)
                std::memcpy(c.to, c.from, 16);
            else
                std::memset(c.to, 0, 16);
        }
}

namespace {

CopyBarrier& copy_barrier(uint32_t at) {
    const auto it = machine().team->copy_barriers.find(at);
    if (it == machine().team->copy_barriers.end()) fail("there is no barrier for copies");
    return it->second;
}

// Ends the turn if nothing is missing.
void end_turn(CopyBarrier& b) {
    if (b.missing != 0 || b.asked_for != b.expected) return;
    acquire(&b.order);
    for (const BulkCopy& c : b.copies) {
        for (int i = 0; i < c.bytes; i += 16) note_read16(c.from + i), note_write16(c.to + i);
        std::memcpy(c.to, c.from, static_cast<size_t>(c.bytes));
    }
    release(&b.order);
    b.copies.clear();
    b.missing = b.arrivals;
    b.expected = b.asked_for = 0;
    ++b.turn;
    ++machine().team->copy_events;
}

}  // namespace

void begin_barrier(uint32_t at, int arrivals) {
    if (at % 8 != 0) fail("a barrier for copies is not aligned to 8 bytes");
    if (machine().team->copy_barriers.size() == most_copy_barriers)
        fail("a block has too many barriers for copies");
    CopyBarrier& b = machine().team->copy_barriers[at];
    b.arrivals = b.missing = arrivals;
    running().unannounced = true;
}

void publish_barriers() { running().unannounced = false; }

void arrive(uint32_t at, int bytes) {
    CopyBarrier& b = copy_barrier(at);
    if (b.missing == 0) fail("more arrivals than a barrier for copies has");
    release(&b.order);
    --b.missing;
    b.expected += bytes;
    ++machine().team->copy_events;
    if (b.expected == 0) end_turn(b);
}

void queue_bulk(uint32_t to, const void* global, int bytes, uint32_t at, bool constant) {
    const auto* const from = static_cast<const std::byte*>(global);
    if (to % 16 != 0 || reinterpret_cast<uintptr_t>(from) % 16 != 0 || bytes % 16 != 0)
        fail("a copy in one piece is not aligned to 16 bytes");
    if (!constant && !running().waited) fail("a copy in one piece before wait_for_previous()");
    CopyBarrier& b = copy_barrier(at);
    std::byte* const shared = place.shared + to;
    for (int i = 0; i < bytes; i += 16) note_write16(shared + i);  // from now on at any time
    release(&b.order);
    b.copies.push_back({shared, from, bytes});
    b.asked_for += bytes;
    ++machine().team->copy_events;
}

void wait_for_turn(uint32_t at, uint32_t turn) {
    CopyBarrier& b = copy_barrier(at);
    for (;;) {
        if (b.expected != 0) end_turn(b);
        if ((b.turn & 1) != turn) break;
        pause(State::at_copies);
    }
    acquire(&b.order);
}

void publish_shared() { running().unpublished = false; }
bool shared_is_published() { return machine().team->published; }
WarpgroupProducts& products() { return running().products; }

void fail(const char* what) {
    std::fprintf(stderr, "emulated kernel, block %lld,%d,%d, thread %d: %s\n",
                 static_cast<long long>(place.x), place.y, place.z, place.thread, what);
    std::abort();
}

void run_grid(const Dims& dims, std::shared_ptr<const std::function<void()>> kernel, bool overlaps) {
    Machine& m = machine();
    place.dims = dims;
    if (dims.threads % 32 != 0 || dims.threads <= 0 || dims.threads > 32 * max_warps)
        fail("a block has a multiple of 32 threads, at most 1024");
    const auto threads = static_cast<size_t>(dims.threads);
    m.odd = !m.odd;
    const std::span<Team> teams =
        watching_races ? std::span<Team>(m.teams).subspan(m.odd ? 2 : 0, 2) : std::span<Team>(m.teams);
    for (Team& t : teams)
        while (t.fibers.size() < threads) t.fibers.push_back(new_fiber(t.fibers.size()));
    m.kernel = kernel.get();
    m.scheduler_strand = Strand::current();
    release(&m.launched);
    if (watching_races)
        as_each(teams, threads, [&](Fiber& f) {
            acquire(&m.launched);
            f.follows = false;
            if (!overlaps) follow_previous(f);
        });
    for (place.z = 0; place.z < dims.z; ++place.z)
        for (place.y = 0; place.y < dims.y; ++place.y)
            for (place.x = 0; place.x < dims.x; ++place.x) {
                m.team = m.team == &teams.front() ? &teams.back() : &teams.front();
                place.shared = new_shared(*m.team, dims.shared);
                std::fill_n(m.team->states, threads, State::ready);
                for (size_t i = 0; i < threads; ++i) prepare(*m.team->fibers[i]);
                run_block();
            }
    // The host goes on as if nothing of the launch had happened yet.
    if (!watching_races) return;
    as_each(teams, threads, [&](Fiber&) { release(&m.ended[m.odd]); });
    m.launches.push_back(std::move(kernel));
}

void wait_for_launches() {
    Machine& m = machine();
    for (char& end : m.ended) acquire(&end);
    m.launches.clear();
}

}  // namespace nibble::cuda::emulation
