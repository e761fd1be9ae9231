// shortlist: the largest values of each row in order, without sorting the row, and the weight of all.
// First the largest value of every run of columns, over the whole GPU. Then one block per row: as many runs
// as values are wanted reach the threshold it finds, so no value below it can be among them; the few that are
// not below are collected and ranked by counting. Their order depends on values and columns alone. A step
// waits for this one block, so what counts in it is how often one thing waits for another.
#include <bit>

#include "ggml/base/exp_weight.h"
#include "ggml/cuda/exec.h"
#include "ggml/cuda/view.h"

namespace nibble::cuda {
namespace {

constexpr int most_found = 2048;  // values that are ranked; there are hardly more than are wanted
constexpr int64_t fewest_runs = 1024;
constexpr int32_t list_threads = 512;
constexpr int list_warps = list_threads / 32;
constexpr int precision = 24;  // leading bits of the threshold: fewer would collect more values
constexpr int most_keys = 2 * fewest_runs / list_threads;  // of a thread
constexpr int loads_at_once = 8;
constexpr int64_t most_wanted = fewest_runs / 2;

// Columns of a run: a power of two that leaves at least fewest_runs and less than twice as many, or 1.
int64_t run_columns(int64_t cols) {
    int64_t run = 1;
    while (cols / (2 * run) >= fewest_runs) run *= 2;
    return run;
}

// Grows with the value; equal for both zeros.
__device__ uint32_t order_key(float v) {
    const uint32_t b = float_bits(v + 0.0f);
    return b >> 31 ? ~b : b | 0x80000000u;
}
__device__ float value_of(uint32_t key) { return bits_float(key >> 31 ? key & 0x7fffffffu : ~key); }

// The larger one; a NaN is larger than any number.
__device__ float larger(float a, float b) { return b > a || b != b ? b : a; }

// A warp takes one run, or as many as it has lanes for.
__global__ void run_maxima_kernel(View x, float* maxima, int run, int n_runs) {
    wait_for_previous();
    const int lanes = run < 32 ? run : 32, span = run < 32 ? 32 : run;
    const int first = (block_y() * (block_threads() / 32) + warp_index()) * span + lane();
    float most = -INFINITY;
    for (int i = 0; i < span; i += 32)
        if (first + i < x.cols) most = larger(most, x.row(block_x())[first + i]);
    for (int m = lanes / 2; m > 0; m /= 2) most = larger(most, shuffle_xor(most, m));
    if (lane() % lanes == 0 && first < x.cols) maxima[block_x() * n_runs + first / run] = most;
}

struct Lists {
    uint64_t* found;  // most_found of them: key, then the complement of the column
    int* runs;        // those that reach the threshold
    float* partial;   // of block sums
    int* counts;      // of warps, twice as many: one half is written while the other is read
    int* n_found;
};

__host__ __device__ constexpr size_t lists_bytes(int64_t n_runs) {
    return most_found * sizeof(uint64_t) + static_cast<size_t>(n_runs) * sizeof(int) +
           list_warps * (sizeof(float) + 2 * sizeof(int)) + sizeof(int);
}

__device__ Lists lists_in(std::byte* memory, int n_runs) {
    Lists l;
    l.found = reinterpret_cast<uint64_t*>(memory);
    l.runs = reinterpret_cast<int*>(l.found + most_found);
    l.partial = reinterpret_cast<float*>(l.runs + n_runs);
    l.counts = reinterpret_cast<int*>(l.partial + list_warps);
    l.n_found = reinterpret_cast<int*>(l.counts + 2 * list_warps);
    return l;
}

// The largest threshold of `precision` bits that at least `count` keys of the block reach; 0 if there are not
// so many. Two bits at a time: how many keys reach each of three trials, a byte each.
__device__ uint32_t reached_by(const Lists& l, const uint32_t (&keys)[most_keys], int count) {
    static_assert(32 * most_keys < 256);
    uint32_t threshold = 0;
    int* counts = l.counts;
    for (int shift = 30; shift > 30 - precision; shift -= 2) {
        int mine = 0;
        for (const uint32_t key : keys)
            for (uint32_t d = 1; d < 4; ++d) mine += (key >= (threshold | d << shift)) << (8 * (d - 1));
        for (int m = 16; m > 0; m /= 2) mine += shuffle_xor(mine, m);
        if (lane() == 0) counts[warp_index()] = mine;
        sync_block();
        int first_and_third = 0, second = 0;
        for (int w = 0; w < list_warps; ++w) {
            first_and_third += counts[w] & 0x00ff00ff;
            second += counts[w] >> 8 & 0xff;
        }
        const auto enough = [count](int n) { return n >= count; };
        const uint32_t digit = enough(first_and_third >> 16)      ? 3
                               : enough(second)                   ? 2
                               : enough(first_and_third & 0xffff) ? 1
                                                                  : 0;
        threshold |= digit << shift;
        counts = counts == l.counts ? l.counts + list_warps : l.counts;
    }
    return threshold;
}

// Lists the runs that reach the threshold; how many.
__device__ int list_runs(const Lists& l, const uint32_t (&keys)[most_keys], uint32_t threshold) {
    int mine = 0;
    for (const uint32_t key : keys) mine += key >= threshold;
    int all;
    int at = block_sum_up_to(mine, all, l.counts) - mine;
    for (int k = 0; k < most_keys; ++k)
        if (keys[k] >= threshold) l.runs[at++] = thread_index() + k * list_threads;
    sync_block();
    return all;
}

__device__ int smaller(int a, int b) { return b < a ? b : a; }

// Collects the values of `n` listed runs that reach the threshold, in any order. Loads are on their way many
// at once: none is under a condition, which it would be waited for.
__device__ void collect_values(const View& x, const Lists& l, int n, int run_bits, uint32_t threshold) {
    const float* const row = x.row(block_x());
    const int n_values = n << run_bits, in_run = (1 << run_bits) - 1;
    for (int first = thread_index(); first < n_values; first += loads_at_once * list_threads) {
        float value[loads_at_once];
        int column[loads_at_once];
#pragma unroll
        for (int k = 0; k < loads_at_once; ++k) {
            const int i = smaller(first + k * list_threads, n_values - 1);
            column[k] = (l.runs[i >> run_bits] << run_bits) + (i & in_run);
            value[k] = row[smaller(column[k], x.cols - 1)];
        }
#pragma unroll
        for (int k = 0; k < loads_at_once; ++k) {
            const uint32_t key = order_key(value[k]);
            const bool inside = first + k * list_threads < n_values && column[k] < x.cols;
            if (key < threshold || !inside) continue;
            const int at = atomic_add(l.n_found, 1);
            if (at < most_found)
                l.found[at] = static_cast<uint64_t>(key) << 32 | ~static_cast<uint32_t>(column[k]);
        }
    }
    sync_block();
}

// The weight of one part of the columns; `to`: its three floats.
__device__ void weigh_piece(const View& x, const View& weighed, const float* maxima, int n_runs, int piece,
                            const Lists& l, float* to) {
    const int64_t r = block_x();
    const int32_t* const how = weighed.row<int32_t>(r);
    const double temperature = shortlist_temperature(how);
    if (!(temperature > 0)) {
        if (thread_index() == 0) split_weight(0, to);
        return;
    }
    float best = -INFINITY, bad = 0;
    for (int i = thread_index(); i < n_runs; i += block_threads()) {
        const float most = maxima[r * n_runs + i];
        if (most != most || most == INFINITY) bad = 1;
        best = most > best ? most : best;
    }
    best = block_max(best, l.partial);
    bad = block_max(bad, l.partial);
    const int counted = how[2], each = (x.cols + shortlist_pieces - 1) / shortlist_pieces;
    int last = (piece + 1) * each;
    if (last > x.cols) last = x.cols;
    if (last > counted) last = counted;
    uint64_t sum = 0;
    if (bad == 0)
        for (int c = piece * each + thread_index(); c < last; c += block_threads())
            sum += exp_weight_at(x.row(r)[c], best, temperature);
    l.found[thread_index()] = sum;
    for (int n = block_threads() / 2; n > 0; n /= 2) {
        sync_block();
        if (thread_index() < n) l.found[thread_index()] += l.found[thread_index() + n];
    }
    if (thread_index() == 0) split_weight(l.found[0], to);
}

// Block x: a row; y: 0 lists, the others weigh a part of the columns each.
__global__ void shortlist_kernel(View x, View weighed, const float* maxima, int run_bits, int n_runs,
                                 View out, int count) {
    wait_for_previous();
    const Lists l = lists_in(shared_memory(), n_runs);
    const int64_t r = block_x();
    if (const int piece = block_y() - 1; piece >= 0)
        return weigh_piece(x, weighed, maxima, n_runs, piece, l, out.row(r) + 2 * count + 3 * piece);
    if (thread_index() == 0) *l.n_found = 0;
    float bad = 0;
    uint32_t keys[most_keys];
    for (int k = 0; k < most_keys; ++k) {
        const int i = thread_index() + k * list_threads;
        const float most = i < n_runs ? maxima[r * n_runs + i] : -INFINITY;
        if (most != most || most == INFINITY) bad = 1;
        keys[k] = i < n_runs ? order_key(most) : 0;
    }
    bad = block_max(bad, l.partial);
    uint32_t threshold = reached_by(l, keys, count);
    const uint32_t finite = order_key(-INFINITY) + 1;
    if (threshold < finite) threshold = finite;
    collect_values(x, l, list_runs(l, keys, threshold), run_bits, threshold);

    const bool none = bad > 0 || *l.n_found > most_found;
    const int n = none ? 0 : *l.n_found;
    float* const values = out.row(r);
    float* const columns = values + count;
    for (int i = thread_index(); i < n; i += block_threads()) {
        const uint64_t mine = l.found[i];
        int rank = 0;
        for (int j = 0; j < n; ++j) rank += l.found[j] > mine;
        if (rank >= count) continue;
        values[rank] = value_of(static_cast<uint32_t>(mine >> 32));
        columns[rank] = static_cast<float>(~static_cast<uint32_t>(mine));
    }
    for (int i = n + thread_index(); i < count; i += block_threads()) {
        values[i] = none ? bits_float(0x7fc00000u) : 0;
        columns[i] = -1;
    }
}

int64_t runs_of(int64_t cols) { return blocks_for(cols, run_columns(cols)); }

}  // namespace

bool shortlist_supported(const OpArgs& a) { return a.params->as<ShortlistParams>().count <= most_wanted; }

size_t shortlist_scratch(const Exec&, const OpArgs& a) {
    return static_cast<size_t>(a.in[0].rows * runs_of(a.in[0].cols)) * sizeof(float);
}

void run_shortlist(const Exec& e, const OpArgs& a, std::span<std::byte> scratch) {
    const Tensor &x = a.in[0], &out = a.out[0];
    const int64_t run = run_columns(x.cols), n_runs = runs_of(x.cols);
    auto* const maxima = reinterpret_cast<float*>(scratch.data());
    constexpr int threads = 256;
    const int64_t warps = blocks_for(x.cols, run < 32 ? 32 : run);
    const Dims over_runs{x.rows, static_cast<int32_t>(blocks_for(warps, threads / 32)), 1, threads};
    launch(run_maxima_kernel, over_runs, *e.stream, x, maxima, static_cast<int>(run),
           static_cast<int>(n_runs));
    const Dims lists{x.rows, 1 + shortlist_pieces, 1, list_threads, lists_bytes(n_runs)};
    launch(shortlist_kernel, lists, *e.stream, x, a.in[1], static_cast<const float*>(maxima),
           std::countr_zero(static_cast<uint64_t>(run)), static_cast<int>(n_runs), out,
           a.params->as<ShortlistParams>().count);
}

}  // namespace nibble::cuda
