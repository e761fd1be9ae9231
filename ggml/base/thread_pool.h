// A pool of persistent workers that run numbered tasks; the caller takes part.
// No thread is created per call; waiting spins for a bounded time, then sleeps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace nibble {

// A non-owning reference to a callable, so that a parallel call allocates nothing.
template <class Signature>
class FunctionRef;
template <class R, class... Args>
class FunctionRef<R(Args...)> {
  public:
    template <class F>
    FunctionRef(const F& f)  // NOLINT: implicit on purpose
        : object_(&f),
          call_([](const void* o, Args... args) -> R { return (*static_cast<const F*>(o))(args...); }) {}
    R operator()(Args... args) const { return call_(object_, args...); }

  private:
    const void* object_;
    R (*call_)(const void*, Args...);
};

class ThreadPool {
  public:
    // `n_threads` >= 1 includes the calling thread; 0 chooses from the machine (see default_threads()).
    // `nodes` are the CPUs of each memory node, the machine's (cpu_count.h) if there are none. If there are
    // several, workers stay on those of one, neighbours on the same; the calling thread stays where it is.
    explicit ThreadPool(int n_threads, std::vector<std::vector<int>> nodes = {});
    ~ThreadPool();
    ThreadPool(const ThreadPool&) = delete;
    ThreadPool& operator=(const ThreadPool&) = delete;

    int size() const { return n_threads_; }

    // Runs fn(task, worker) for every task in [0, n_tasks); workers take tasks in order as they become free,
    // 0 <= worker < size(). Returns when all are done, with their writes visible. One caller at a time;
    // not re-entrant.
    void run(int64_t n_tasks, FunctionRef<void(int64_t task, int worker)> fn);

    // Runs fn(first, last, worker) over pieces of [0, n), n < 2^32: worker w goes through stretch w of
    // size(), from n * w / size() on, from front to back, in pieces that become smaller, and then helps the
    // one that has most left, from the back. For work that streams by: neighbours are one worker's, always
    // the same one's, and all end together. Otherwise as run().
    void run_stretches(int64_t n, FunctionRef<void(int64_t first, int64_t last, int worker)> fn);

    // Whenever it waits from now on, the worker, from one of whose tasks this is called, asks for some more
    // of this memory, which it will read next. A hint: by then the memory may be gone.
    void ask_while_idle(int worker, std::span<const std::byte> memory);

    // Into so many shares, one behind the other, whatever is streamed should be cut, each for its worker:
    // memory is then near to who touched it first. 1: all memory is as near, size() where it is not.
    int shares() const { return shares_; }

    // Physical cores this process may use: affinity mask and container CPU quota respected.
    static int default_threads();

  private:
    struct State;
    int n_threads_, shares_ = 1;
    std::unique_ptr<State> state_;
};

}  // namespace nibble
