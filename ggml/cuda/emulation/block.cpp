// Fibers, one stack per thread of a block, kept for the next launch.
// The sanitizer is told of every switch, so that it finds errors inside kernels.
#include "ggml/cuda/emulation/block.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "ggml/cuda/emulation/stack_switch.h"

#if defined(__SANITIZE_ADDRESS__)
#define NIBBLE_ASAN_FIBERS 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define NIBBLE_ASAN_FIBERS 1
#endif
#endif
#ifdef NIBBLE_ASAN_FIBERS
#include <sanitizer/common_interface_defs.h>
#endif

#if defined(__x86_64__)
asm(R"(
.text
.globl nibble_switch_stack
.type nibble_switch_stack, @function
nibble_switch_stack:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size nibble_switch_stack, . - nibble_switch_stack
)");
#endif

namespace nibble::cuda::emulation {
namespace {

constexpr size_t stack_bytes = size_t{256} << 10;

enum class State : uint8_t { ready, at_warp, at_block, ended };

struct Copy {
    void* to;
    const void* from;
};

struct Fiber {
    StackSwitch context;
    std::unique_ptr<std::byte[]> stack;
    State state = State::ready;
    void* fake_stack = nullptr;
    std::vector<Copy> open;                // since the last commit
    std::deque<std::vector<Copy>> groups;  // committed, oldest first
};

// One per host thread that emulates.
struct Machine {
    Place place;
    std::vector<std::unique_ptr<Fiber>> fibers;
    std::vector<Slot> slots[2];  // exchanges alternate, so that a fast lane does not overwrite
    std::vector<uint8_t> turn;   // of each thread
    StackSwitch scheduler;
    void* scheduler_fake = nullptr;
    const void* scheduler_stack = nullptr;
    size_t scheduler_size = 0;
    const std::function<void()>* kernel = nullptr;
    bool backwards = false;
};

Machine& machine() {
    thread_local Machine m;
    return m;
}

Fiber& running() {
    Machine& m = machine();
    return *m.fibers[static_cast<size_t>(m.place.thread)];
}

void before_switch([[maybe_unused]] void** fake, [[maybe_unused]] const void* stack,
                   [[maybe_unused]] size_t size) {
#ifdef NIBBLE_ASAN_FIBERS
    __sanitizer_start_switch_fiber(fake, stack, size);
#endif
}

void after_switch([[maybe_unused]] void* fake, [[maybe_unused]] const void** from,
                  [[maybe_unused]] size_t* size) {
#ifdef NIBBLE_ASAN_FIBERS
    __sanitizer_finish_switch_fiber(fake, from, size);
#endif
}

void to_scheduler(State state) {
    Machine& m = machine();
    Fiber& f = running();
    f.state = state;
    before_switch(state == State::ended ? nullptr : &f.fake_stack, m.scheduler_stack, m.scheduler_size);
    StackSwitch::change(f.context, m.scheduler);
    after_switch(f.fake_stack, &m.scheduler_stack, &m.scheduler_size);
}

void fiber_main() {
    Machine& m = machine();
    after_switch(nullptr, &m.scheduler_stack, &m.scheduler_size);
    (*m.kernel)();
    Fiber& f = running();
    if (!f.open.empty() || !f.groups.empty()) fail("a thread ended with copies under way");
    to_scheduler(State::ended);
}

void prepare(Fiber& f) {
    if (!f.stack) f.stack = std::make_unique<std::byte[]>(stack_bytes);
    f.context.begin(f.stack.get(), stack_bytes, fiber_main);
    f.state = State::ready;
}

void resume(int thread) {
    Machine& m = machine();
    m.place.thread = thread;
    Fiber& f = *m.fibers[static_cast<size_t>(thread)];
    before_switch(&m.scheduler_fake, f.stack.get(), stack_bytes);
    StackSwitch::change(m.scheduler, f.context);
    after_switch(m.scheduler_fake, nullptr, nullptr);
}

// Runs a warp until its lanes wait for the block or have ended.
void run_warp(int first) {
    Machine& m = machine();
    const auto state = [&](int i) -> State& { return m.fibers[static_cast<size_t>(first + i)]->state; };
    for (;;) {
        for (int i = 0; i < 32; ++i) {
            const int l = m.backwards ? 31 - i : i;
            if (state(l) == State::ready) resume(first + l);
        }
        m.backwards = !m.backwards;
        int waiting = 0;
        for (int i = 0; i < 32; ++i) waiting += state(i) == State::at_warp;
        if (waiting == 0) return;
        if (waiting != 32) fail("a warp collective is not reached by all lanes");
        for (int i = 0; i < 32; ++i) state(i) = State::ready;
    }
}

void run_block() {
    Machine& m = machine();
    const int threads = m.place.dims->threads, warps = threads / 32;
    for (;;) {
        const bool backwards = m.backwards;
        for (int i = 0; i < warps; ++i) run_warp(32 * (backwards ? warps - 1 - i : i));
        int waiting = 0, ended = 0;
        for (int i = 0; i < threads; ++i) {
            waiting += m.fibers[static_cast<size_t>(i)]->state == State::at_block;
            ended += m.fibers[static_cast<size_t>(i)]->state == State::ended;
        }
        if (ended == threads) return;
        if (waiting != threads) fail("a barrier is not reached by all threads of the block");
        for (int i = 0; i < threads; ++i) m.fibers[static_cast<size_t>(i)]->state = State::ready;
    }
}

}  // namespace

const Place& current() { return machine().place; }

Slot* exchange(const void* mine, size_t bytes) {
    Machine& m = machine();
    const auto thread = static_cast<size_t>(m.place.thread);
    auto& slots = m.slots[m.turn[thread] ^= 1];
    std::memcpy(slots[thread].bytes, mine, bytes);
    wait_for_warp();
    return slots.data() + thread / 32 * 32;
}

void wait_for_warp() { to_scheduler(State::at_warp); }
void wait_for_block() { to_scheduler(State::at_block); }

void queue_copy(void* shared, const void* global) {
    if (reinterpret_cast<uintptr_t>(shared) % 16 || reinterpret_cast<uintptr_t>(global) % 16)
        fail("an asynchronous copy is not aligned to 16 bytes");
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
            if (c.from)
                std::memcpy(c.to, c.from, 16);
            else
                std::memset(c.to, 0, 16);
        }
}

void fail(const char* what) {
    const Place& p = current();
    std::fprintf(stderr, "emulated kernel, block %lld,%d,%d, thread %d: %s\n", static_cast<long long>(p.x),
                 p.y, p.z, p.thread, what);
    std::abort();
}

void run_grid(const Dims& dims, const std::function<void()>& kernel) {
    Machine& m = machine();
    m.place.dims = &dims;
    if (dims.threads % 32 != 0 || dims.threads <= 0 || dims.threads > 1024)
        fail("a block has a multiple of 32 threads, at most 1024");
    const auto threads = static_cast<size_t>(dims.threads);
    while (m.fibers.size() < threads) m.fibers.push_back(std::make_unique<Fiber>());
    for (auto& s : m.slots) s.resize(std::max(s.size(), threads));
    m.turn.resize(std::max(m.turn.size(), threads));
    m.kernel = &kernel;
    for (m.place.z = 0; m.place.z < dims.z; ++m.place.z)
        for (m.place.y = 0; m.place.y < dims.y; ++m.place.y)
            for (m.place.x = 0; m.place.x < dims.x; ++m.place.x) {
                // Of its own, so that the sanitizer sees a step beyond; bytes that make NaNs of any type.
                const std::unique_ptr<std::byte[]> shared(new std::byte[dims.shared]);
                if (dims.shared) std::memset(shared.get(), 0xff, dims.shared);
                m.place.shared = shared.get();
                std::fill(m.turn.begin(), m.turn.end(), uint8_t{0});
                for (size_t i = 0; i < threads; ++i) prepare(*m.fibers[i]);
                run_block();
            }
}

}  // namespace nibble::cuda::emulation
