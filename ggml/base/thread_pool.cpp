// Workers share one word that holds the number of tasks left; taking a task is one compare-and-swap.
// Idle workers spin for a bounded time, then sleep; the caller wakes them only when some do sleep.
#include "ggml/base/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <thread>
#include <vector>

#include <pthread.h>
#if defined(__linux__)
#include <sched.h>
#endif

#include "ggml/base/cpu_count.h"

namespace nibble {
namespace {

inline void cpu_relax() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield" ::: "memory");
#endif
}

// Long enough to bridge the caller's serial work between two instructions of a program, short enough that an
// idle pool costs nothing that can be felt.
constexpr std::chrono::microseconds spin_time{50};

// Memory that one worker asks for while it waits, a line at a time.
struct alignas(64) Wanted {
    std::span<const std::byte> memory;

    void ask_or_relax() {
        if (memory.empty()) return cpu_relax();
        __builtin_prefetch(memory.data(), 0, 2);
        memory = memory.subspan(std::min<size_t>(64, memory.size()));
    }
};

// Waits until ready() or until the spin time is over; says whether ready() held.
template <class Ready>
bool spin_until(bool may_spin, Wanted& wanted, Ready ready) {
    if (ready()) return true;
    if (!may_spin) return false;
    const auto end = std::chrono::steady_clock::now() + spin_time;
    do {
        for (int i = 0; i < 32; ++i) {
            if (ready()) return true;
            wanted.ask_or_relax();
        }
    } while (std::chrono::steady_clock::now() < end);
    return false;
}

// Threads that start while this lives leave signals to the others: one that a worker takes would not wake a
// caller that waits for input. Faults of a thread itself stay its own.
class WithoutSignals {
  public:
    WithoutSignals() {
        sigset_t held;
        ::sigfillset(&held);
        for (const int s : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS}) ::sigdelset(&held, s);
        ::pthread_sigmask(SIG_BLOCK, &held, &before_);
    }
    ~WithoutSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    WithoutSignals(const WithoutSignals&) = delete;
    WithoutSignals& operator=(const WithoutSignals&) = delete;

  private:
    sigset_t before_{};
};

// The list that thread i of n belongs to, in proportion to their lengths.
const std::vector<int>& node_of(const std::vector<std::vector<int>>& nodes, int i, int n) {
    size_t cpus = 0, before = 0;
    for (const std::vector<int>& node : nodes) cpus += node.size();
    for (const std::vector<int>& node : nodes) {
        before += node.size();
        if (static_cast<size_t>(i) * cpus < before * static_cast<size_t>(n)) return node;
    }
    return nodes.back();
}

// The calling thread runs on these CPUs from now on, if the system allows it.
void stay_on([[maybe_unused]] const std::vector<int>& cpus) {
#if defined(__linux__)
    const auto most = static_cast<size_t>(*std::max_element(cpus.begin(), cpus.end())) + 1;
    const size_t bytes = CPU_ALLOC_SIZE(most);
    cpu_set_t* set = CPU_ALLOC(most);
    if (!set) return;
    CPU_ZERO_S(bytes, set);
    for (const int c : cpus) CPU_SET_S(static_cast<size_t>(c), bytes, set);
    (void)::sched_setaffinity(0, bytes, set);
    CPU_FREE(set);
#endif
}

constexpr uint64_t count_bits = 40;
constexpr uint64_t count_mask = (uint64_t{1} << count_bits) - 1;

// What is left of one worker's stretch of a run: its owner takes from the front, the others from the back.
class alignas(64) Stretch {
  public:
    struct Piece {
        int64_t first, last;
    };
    void set(int64_t first, int64_t last) { ends_.store(joined(first, last), std::memory_order_relaxed); }
    int64_t left() const {
        const Piece p = split(ends_.load(std::memory_order_relaxed));
        return p.last - p.first;
    }
    // A quarter of what is left, so that the last pieces are small; nothing where nothing is.
    Piece take(bool front) {
        uint64_t seen = ends_.load(std::memory_order_relaxed);
        for (;;) {
            const Piece p = split(seen);
            const int64_t n = std::min(p.last - p.first, std::max<int64_t>(1, (p.last - p.first) / 4));
            const int64_t cut = front ? p.first + n : p.last - n;
            const uint64_t rest = front ? joined(cut, p.last) : joined(p.first, cut);
            if (ends_.compare_exchange_weak(seen, rest, std::memory_order_relaxed))
                return front ? Piece{p.first, cut} : Piece{cut, p.last};
        }
    }

  private:
    static uint64_t joined(int64_t first, int64_t last) {
        return static_cast<uint64_t>(first) << 32 | static_cast<uint64_t>(last);
    }
    static Piece split(uint64_t ends) {
        return {static_cast<int64_t>(ends >> 32), static_cast<int64_t>(ends & 0xffffffff)};
    }
    std::atomic<uint64_t> ends_{0};
};

}  // namespace

struct ThreadPool::State {
    // Low 40 bits: tasks not yet taken; above: number of the run, so that a word never repeats by accident.
    alignas(64) std::atomic<uint64_t> word{0};
    alignas(64) std::atomic<int64_t> unfinished{0};
    std::atomic<uint32_t> caller_sleeps{0};  // 1 while the caller waits for `unfinished` to become 0
    alignas(64) std::atomic<int> sleepers{0};
    std::atomic<uint32_t> epoch{0};  // what sleeping workers wait on
    std::atomic<bool> stop{false};
    // The run in progress. Only who holds a task of it may read these: the run cannot end before that task.
    const FunctionRef<void(int64_t, int)>* fn = nullptr;
    int64_t n_tasks = 0;
    uint64_t run_number = 0;
    bool may_spin = true;
    std::vector<Stretch> stretches;  // one for each worker
    std::vector<Wanted> wanted;      // likewise
    std::vector<std::thread> workers;

    bool has_work() const { return (word.load(std::memory_order_acquire) & count_mask) != 0; }

    // Takes tasks until none is left, then reports all of them at once.
    void work(int worker) {
        int64_t done = 0;
        uint64_t w = word.load(std::memory_order_acquire);
        while ((w & count_mask) != 0) {
            if (!word.compare_exchange_weak(w, w - 1, std::memory_order_acq_rel, std::memory_order_acquire))
                continue;
            (*fn)(n_tasks - static_cast<int64_t>(w & count_mask), worker);
            ++done;
            w = word.load(std::memory_order_acquire);
        }
        if (done > 0 && unfinished.fetch_sub(done) == done && caller_sleeps.exchange(0) != 0)
            caller_sleeps.notify_one();
    }

    // The worker goes through its own stretch and helps with the others.
    void go_through(FunctionRef<void(int64_t, int64_t, int)> piece, int worker) {
        for (;;) {
            Stretch::Piece p = stretches[static_cast<size_t>(worker)].take(true);
            if (p.first == p.last) {
                const auto fullest =
                    std::max_element(stretches.begin(), stretches.end(),
                                     [](const Stretch& a, const Stretch& b) { return a.left() < b.left(); });
                if (fullest->left() == 0) return;
                p = fullest->take(false);
            }
            if (p.first < p.last) piece(p.first, p.last, worker);
        }
    }

    void worker_loop(int worker) {
        while (!stop.load(std::memory_order_acquire)) {
            Wanted& mine = wanted[static_cast<size_t>(worker)];
            if (spin_until(may_spin, mine,
                           [this] { return has_work() || stop.load(std::memory_order_relaxed); })) {
                work(worker);
                continue;
            }
            const uint32_t seen = epoch.load();
            sleepers.fetch_add(1);
            // Either this sees the work, or the caller, who published it first, sees the sleeper.
            if (word.load() % (count_mask + 1) == 0 && !stop.load()) epoch.wait(seen);
            sleepers.fetch_sub(1);
        }
    }

    void wake(bool all) {
        if (sleepers.load() == 0) return;
        epoch.fetch_add(1);
        if (all)
            epoch.notify_all();
        else
            epoch.notify_one();
    }

    void wait_for_finish() {
        const auto finished = [this] { return unfinished.load(std::memory_order_acquire) == 0; };
        while (!spin_until(may_spin, wanted[0], finished)) {
            caller_sleeps.store(1);
            if (unfinished.load() != 0) caller_sleeps.wait(1);
        }
        caller_sleeps.store(0);
        // The caller goes on, so it asks for no more lines than may be on their way at once.
        for (int i = 0; i < 32 && !wanted[0].memory.empty(); ++i) wanted[0].ask_or_relax();
    }
};

ThreadPool::ThreadPool(int n_threads, std::vector<std::vector<int>> nodes)
    : n_threads_(n_threads > 0 ? n_threads : default_threads()), state_(std::make_unique<State>()) {
    // With more threads than CPUs a spinning thread only keeps another one from its work.
    const std::vector<int> cpus = allowed_cpus();
    if (nodes.empty()) nodes = memory_nodes(cpus);
    shares_ = nodes.size() > 1 ? n_threads_ : 1;
    state_->may_spin = cpus.empty() || n_threads_ <= static_cast<int>(cpus.size());
    state_->stretches = std::vector<Stretch>(static_cast<size_t>(n_threads_));
    state_->wanted = std::vector<Wanted>(static_cast<size_t>(n_threads_));
    const WithoutSignals inherited;
    for (int i = 1; i < n_threads_; ++i) {
        const std::vector<int> near = shares_ > 1 ? node_of(nodes, i, n_threads_) : std::vector<int>();
        state_->workers.emplace_back([s = state_.get(), i, near] {
            if (!near.empty()) stay_on(near);
            s->worker_loop(i);
        });
    }
}

ThreadPool::~ThreadPool() {
    state_->stop.store(true);
    state_->epoch.fetch_add(1);
    state_->epoch.notify_all();
    for (std::thread& t : state_->workers) t.join();
}

void ThreadPool::run(int64_t n_tasks, FunctionRef<void(int64_t task, int worker)> fn) {
    if (n_threads_ == 1 || n_tasks <= 1) {
        for (int64_t i = 0; i < n_tasks; ++i) fn(i, 0);
        return;
    }
    State& s = *state_;
    s.fn = &fn;
    s.n_tasks = n_tasks;
    s.unfinished.store(n_tasks);
    s.word.store(++s.run_number << count_bits | static_cast<uint64_t>(n_tasks));
    s.wake(n_tasks > 2);
    s.work(0);
    s.wait_for_finish();
}

void ThreadPool::run_stretches(int64_t n, FunctionRef<void(int64_t first, int64_t last, int worker)> fn) {
    if (n_threads_ == 1 || n <= 1) {
        if (n > 0) fn(0, n, 0);
        return;
    }
    State& s = *state_;
    for (int64_t i = 0; i < n_threads_; ++i)
        s.stretches[static_cast<size_t>(i)].set(n * i / n_threads_, n * (i + 1) / n_threads_);
    run(n_threads_, [&](int64_t, int worker) { s.go_through(fn, worker); });
}

void ThreadPool::ask_while_idle(int worker, std::span<const std::byte> memory) {
    state_->wanted[static_cast<size_t>(worker)].memory = memory;
}

int ThreadPool::default_threads() {
    const std::vector<int> cpus = allowed_cpus();
    int n = physical_cores(cpus);
    if (n == 0) n = static_cast<int>(std::thread::hardware_concurrency());
    const double quota = cpu_quota();
    // A fraction of a CPU would be spent waiting for the next period: round down.
    if (quota > 0) n = std::min(n, static_cast<int>(std::floor(quota)));
    return std::max(n, 1);
}

}  // namespace nibble
