// Plain reading with all threads, timed.
// The buffer is written first, so that every page exists.
#include "ggml/cpu/bandwidth.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>
#include <vector>

#include <sys/mman.h>

namespace nibble::cpu {

double read_bandwidth(ThreadPool& pool) {
    constexpr size_t bytes = size_t{512} << 20, piece = size_t{4} << 20, passes = 6;
    void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return 0;
#if defined(MADV_HUGEPAGE)
    (void)::madvise(memory, bytes, MADV_HUGEPAGE);
#endif
    auto* const data = static_cast<std::byte*>(memory);
    constexpr auto pieces = static_cast<int64_t>(bytes / piece);
    // Where memory is near to some, who reads a piece has written it, as with weights. Else neighbours go to
    // several at once: stretches apart by a power of two are slower to read.
    const auto each_piece = [&](const auto& fn) {
        if (pool.shares() == 1) return pool.run(pieces, [&](int64_t i, int) { fn(i); });
        pool.run_stretches(pieces, [&](int64_t first, int64_t last, int) {
            for (int64_t i = first; i < last; ++i) fn(i);
        });
    };
    each_piece([&](int64_t i) { std::memset(data + static_cast<size_t>(i) * piece, 1, piece); });
    std::vector<uint64_t> sums(static_cast<size_t>(pieces));
    double best = 0;
    for (size_t pass = 0; pass < passes; ++pass) {
        const std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
        each_piece([&](int64_t i) {
            const auto* p = reinterpret_cast<const uint64_t*>(data + static_cast<size_t>(i) * piece);
            uint64_t s[16] = {};
            for (size_t j = 0; j < piece / 8; j += 16) {
                __builtin_prefetch(p + j + 256);
                __builtin_prefetch(p + j + 264);
                for (size_t l = 0; l < 16; ++l) s[l] += p[j + l];
            }
            sums[static_cast<size_t>(i)] = std::accumulate(s, s + 16, uint64_t{0});
        });
        const double seconds =
            std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        // The sums are compared so that the reads cannot be left out.
        if (sums.front() == sums.back()) best = std::max(best, static_cast<double>(bytes) / seconds);
    }
    ::munmap(memory, bytes);
    return best;
}

}  // namespace nibble::cpu
