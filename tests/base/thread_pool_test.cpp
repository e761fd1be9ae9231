// ThreadPool: every task exactly once, results visible, sleeping and waking; the count of usable cores.
// Run under ThreadSanitizer in CI.
#include "ggml/base/thread_pool.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>
#include <vector>

#include <doctest/doctest.h>
#include <pthread.h>
#include <unistd.h>

#include "ggml/base/cat.h"
#include "ggml/base/cpu_count.h"

using namespace nibble;
namespace fs = std::filesystem;

TEST_CASE("every task runs once, on a valid worker, and its writes are visible afterwards") {
    for (const int threads : {1, 2, 3, 8}) {
        ThreadPool pool(threads);
        CHECK(pool.size() == threads);
        for (const int64_t n : {0, 1, 2, 3, 7, 64, 1000}) {
            std::vector<int> count(static_cast<size_t>(n)), worker(static_cast<size_t>(n), -1);
            pool.run(n, [&](int64_t task, int w) {
                ++count[static_cast<size_t>(task)];
                worker[static_cast<size_t>(task)] = w;
            });
            for (int64_t i = 0; i < n; ++i) {
                CHECK(count[static_cast<size_t>(i)] == 1);
                CHECK(worker[static_cast<size_t>(i)] >= 0);
                CHECK(worker[static_cast<size_t>(i)] < threads);
            }
        }
    }
}

TEST_CASE("stretches: every number once, also when one worker is late or does most of the work") {
    for (const int threads : {1, 2, 3, 8}) {
        ThreadPool pool(threads);
        for (const int64_t n : {0, 1, 2, 7, 64, 1000})
            for (const bool uneven : {false, true}) {
                std::vector<int> count(static_cast<size_t>(n));
                std::atomic<int> wrong{0};
                pool.run_stretches(n, [&](int64_t first, int64_t last, int worker) {
                    if (first < 0 || first >= last || last > n || worker < 0 || worker >= threads) ++wrong;
                    if (uneven && first == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
                    for (int64_t i = first; i < last; ++i) ++count[static_cast<size_t>(i)];
                });
                CHECK(wrong == 0);
                CHECK(std::ranges::count(count, 1) == n);
            }
    }
}

TEST_CASE("memory that workers ask for while they wait is not touched, and work goes on") {
    ThreadPool pool(2);
    const auto nowhere = [](uintptr_t page) {  // reading there would end the program
        return reinterpret_cast<const std::byte*>((page + 1) * 4096);
    };
    std::atomic<int64_t> total{0};
    for (size_t i = 0; i < 200; ++i)
        pool.run_stretches(64, [&](int64_t first, int64_t last, int worker) {
            pool.ask_while_idle(worker, {nowhere(i), i * 1000 + 1});
            total += last - first;
        });
    CHECK(total == 200 * 64);
}

TEST_CASE("memory nodes: workers stay on theirs, and a worker's stretch is always the same") {
    const std::vector<int> cpus = allowed_cpus();
    if (cpus.size() < 2) {
        MESSAGE("not covered: one CPU");
        return;
    }
    const std::vector<std::vector<int>> nodes{{cpus.front()}, {cpus.back()}};
    ThreadPool pool(4, nodes);
    CHECK(pool.shares() == 4);
    CHECK(ThreadPool(4, {cpus}).shares() == 1);
    std::atomic<int> wrong{0}, arrived{0};
    std::array<std::atomic<int64_t>, 4> begins{};
    // Nobody goes on before all have come, so that each begins with a stretch of its own.
    pool.run_stretches(400, [&](int64_t first, int64_t, int worker) {
        const auto w = static_cast<size_t>(worker);
        int64_t none = 0;
        if (!begins[w].compare_exchange_strong(none, first + 1)) return;
        ++arrived;
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
        while (arrived < 4 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
        if (worker > 0 && allowed_cpus() != nodes[w / 2]) ++wrong;
    });
    CHECK(arrived == 4);
    CHECK(wrong == 0);
    for (size_t w = 0; w < 4; ++w) CHECK(begins[w] == static_cast<int64_t>(w) * 100 + 1);
    CHECK(allowed_cpus() == cpus);
}

TEST_CASE("thousands of short runs back to back lose and repeat nothing") {
    for (const int threads : {2, 4}) {
        ThreadPool pool(threads);
        int64_t plain = 0;  // written by one task of each run: ordered by the runs alone
        std::atomic<int64_t> total{0};
        for (int i = 0; i < 5000; ++i)
            pool.run(1 + i % 5, [&](int64_t task, int) {
                if (task == 0) ++plain;
                total.fetch_add(task + 1, std::memory_order_relaxed);
            });
        CHECK(plain == 5000);
        CHECK(total == 1000 * (1 + 3 + 6 + 10 + 15));
    }
}

TEST_CASE("workers that went to sleep wake up, and a sleeping caller is woken") {
    ThreadPool pool(3);
    for (int i = 0; i < 20; ++i) {
        std::atomic<int> n{0};
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        pool.run(3, [&](int64_t task, int) {
            if (task == 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
            ++n;
        });
        CHECK(n == 3);
    }
}

TEST_CASE("more than one thread takes part when tasks are long") {
    ThreadPool pool(2);
    std::atomic<int> arrived{0};
    std::set<int> workers[2];
    pool.run(2, [&](int64_t task, int w) {
        workers[task].insert(w);
        ++arrived;
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
        while (arrived < 2 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    });
    CHECK(arrived == 2);
    CHECK(workers[0] != workers[1]);
}

TEST_CASE("a pool that is never used can be destroyed at once, and defaults are sane") {
    for (int i = 0; i < 20; ++i) ThreadPool pool(4);
    CHECK(ThreadPool::default_threads() >= 1);
    CHECK(ThreadPool(0).size() == ThreadPool::default_threads());
}

namespace {

// A made-up machine: files below a temporary folder.
class FakeRoot {
  public:
    FakeRoot() : path_(fs::temp_directory_path() / cat("nibble_cpu_count_", ::getpid())) {
        fs::remove_all(path_);
    }
    ~FakeRoot() {
        std::error_code ignored;
        fs::remove_all(path_, ignored);
    }
    void put(const std::string& file, const std::string& text) const {
        fs::create_directories((path_ / file).parent_path());
        std::ofstream(path_ / file) << text;
    }
    const fs::path& path() const { return path_; }

  private:
    fs::path path_;
};

}  // namespace

TEST_CASE("workers leave signals to the thread that made them, except their own faults") {
    const auto blocks = [](int signal) {
        sigset_t now;
        ::pthread_sigmask(SIG_BLOCK, nullptr, &now);
        return ::sigismember(&now, signal) == 1;
    };
    ThreadPool pool(3);
    std::atomic<int> workers = 0, wrong = 0;
    for (int i = 0; i < 2000 && workers == 0; ++i)
        pool.run(16, [&](int64_t, int worker) {
            std::this_thread::sleep_for(std::chrono::microseconds(50));
            if (worker == 0) return;
            ++workers;
            if (!blocks(SIGTERM) || !blocks(SIGINT) || !blocks(SIGHUP) || blocks(SIGSEGV)) ++wrong;
        });
    CHECK(workers > 0);
    CHECK(wrong == 0);
    CHECK(!blocks(SIGTERM));
}

TEST_CASE("hyperthreads of one core count once; unknown topology counts CPUs") {
    FakeRoot root;
    for (int c = 0; c < 4; ++c)
        root.put(cat("sys/devices/system/cpu/cpu", c, "/topology/thread_siblings_list"),
                 cat(c % 2, ",", c % 2 + 2, "\n"));
    CHECK(physical_cores({0, 1, 2, 3}, root.path()) == 2);
    CHECK(physical_cores({1, 3}, root.path()) == 1);
    CHECK(physical_cores({1, 3, 9}, root.path()) == 2);
    CHECK(physical_cores({}, root.path()) == 0);
}

TEST_CASE("CPUs by memory node: those allowed, in the nodes' order; one list where the system cannot tell") {
    using Nodes = std::vector<std::vector<int>>;
    FakeRoot root;
    CHECK(memory_nodes({0, 1}, root.path()) == Nodes{{0, 1}});
    const auto node = [&](int n, const std::string& cpus) {
        root.put(cat("sys/devices/system/node/node", n, "/cpulist"), cpus);
    };
    node(10, "4-5,12-13\n");
    node(2, "0-3,8\n");
    node(3, "\n");  // memory alone
    root.put("sys/devices/system/node/online", "2-3,10\n");
    CHECK(memory_nodes({0, 1, 2, 3, 4, 5, 8, 12, 13}, root.path()) == Nodes{{0, 1, 2, 3, 8}, {4, 5, 12, 13}});
    CHECK(memory_nodes({1, 3, 13}, root.path()) == Nodes{{1, 3}, {13}});
    CHECK(memory_nodes({1, 3}, root.path()) == Nodes{{1, 3}});
    CHECK(memory_nodes({1, 4, 99}, root.path()) == Nodes{{1, 4, 99}});  // 99 is on no node
    node(10, "4-99999999999999999999,5\n");
    CHECK(memory_nodes({1, 4}, root.path()) == Nodes{{1, 4}});
    CHECK(memory_nodes({}, root.path()) == Nodes{{}});
}

TEST_CASE("the tightest cgroup quota wins, in v1 and v2") {
    {
        FakeRoot root;
        CHECK(cpu_quota(root.path()) == 0);
        root.put("proc/self/cgroup", "0::/outer/inner\n");
        CHECK(cpu_quota(root.path()) == 0);
        root.put("sys/fs/cgroup/outer/inner/cpu.max", "max 100000\n");
        CHECK(cpu_quota(root.path()) == 0);
        root.put("sys/fs/cgroup/outer/cpu.max", "150000 100000\n");
        CHECK(cpu_quota(root.path()) == 1.5);
        root.put("sys/fs/cgroup/outer/inner/cpu.max", "300000 100000\n");
        CHECK(cpu_quota(root.path()) == 1.5);
    }
    {
        FakeRoot root;
        root.put("proc/self/cgroup", "4:memory:/a\n3:cpu,cpuacct:/box\nnonsense\n");
        root.put("sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us", "250000\n");
        root.put("sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_period_us", "100000\n");
        CHECK(cpu_quota(root.path()) == 2.5);
        root.put("sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us", "-1\n");
        CHECK(cpu_quota(root.path()) == 0);
        root.put("sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us", "99999999999999999999\n");
        CHECK(cpu_quota(root.path()) == 0);
    }
}
