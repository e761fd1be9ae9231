// shortlist: the largest values of each row in order, without sorting the row, and the weight of all.
// First the largest value of every run of columns, over the whole GPU. As many runs as values are wanted
// reach the threshold that they give, so no value below it can be among them; blocks that each find it for
// themselves collect the few that are not below, each from its part of the row, while others weigh the row.
// Those few are then ranked by counting, so that their order depends on values and columns alone. A step
// waits for one row here, so what counts is how often one thing waits for another, and that no block has much
// to do.
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
constexpr int precision = 20;  // leading bits of the threshold: fewer would collect more values
constexpr int most_keys = 2 * fewest_runs / list_threads;  // of a thread
constexpr int loads_at_once = 8;
constexpr int64_t most_wanted = fewest_runs / 2;
constexpr int32_t most_parts = 32;  // of a row, a block each
constexpr int32_t rank_threads = 128;

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

// The key of a run's largest value: a NaN is larger than any number.
__device__ uint32_t run_key(float most) { return most != most ? ~0u : order_key(most); }

// The larger one; a NaN is larger than any number.
__device__ float larger(float a, float b) { return b > a || b != b ? b : a; }
__device__ int smaller(int a, int b) { return b < a ? b : a; }

// What the launches leave each other.
struct Lists {
    uint64_t* all_found;  // most_found of each row: key, then the complement of the column
    float* all_maxima;    // n_runs of each row
    int* all_counts;      // of what is found; more than most_found where there is no list
    int n_runs, run_bits;

    __device__ uint64_t* found(int64_t r) const { return all_found + r * most_found; }
    __device__ float* maxima(int64_t r) const { return all_maxima + r * n_runs; }
    __device__ int* count(int64_t r) const { return all_counts + r; }
};

size_t lists_bytes(int64_t rows, int64_t n_runs) {
    return static_cast<size_t>(rows) *
           (most_found * sizeof(uint64_t) + static_cast<size_t>(n_runs) * sizeof(float) + sizeof(int));
}

Lists lists_in(std::byte* memory, int64_t rows, int64_t n_runs, int64_t run) {
    Lists l;
    l.all_found = reinterpret_cast<uint64_t*>(memory);
    l.all_maxima = reinterpret_cast<float*>(l.all_found + rows * most_found);
    l.all_counts = reinterpret_cast<int*>(l.all_maxima + rows * n_runs);
    l.n_runs = static_cast<int>(n_runs);
    l.run_bits = std::countr_zero(static_cast<uint64_t>(run));
    return l;
}

// A warp takes one run, or as many as it has lanes for. Begins the count of what is found.
__global__ void run_maxima_kernel(View x, Lists l) {
    constexpr int at_once = 4;
    const int64_t r = block_x();
    const int run = 1 << l.run_bits, lanes = run < 32 ? run : 32, span = run < 32 ? 32 : run;
    const int first = (block_y() * (block_threads() / 32) + warp_index()) * span + lane();
    wait_for_previous();
    if (block_y() == 0 && thread_index() == 0) *l.count(r) = 0;
    float most = -INFINITY;
    for (int i = 0; i < span; i += 32 * at_once) {
        float v[at_once];
#pragma unroll
        for (int k = 0; k < at_once; ++k) {
            const int c = first + i + 32 * k;
            v[k] = i + 32 * k < span && c < x.cols ? x.row(r)[c] : -INFINITY;
        }
#pragma unroll
        for (int k = 0; k < at_once; ++k) most = larger(most, v[k]);
    }
    for (int m = lanes / 2; m > 0; m /= 2) most = larger(most, shuffle_xor(most, m));
    if (lane() % lanes == 0 && first < x.cols) l.maxima(r)[first >> l.run_bits] = most;
}

// The thread's share of the runs' keys; 0 for runs that there are not.
__device__ void read_keys(const float* maxima, int n_runs, uint32_t (&keys)[most_keys]) {
    float most[most_keys];
#pragma unroll
    for (int k = 0; k < most_keys; ++k)
        most[k] = maxima[smaller(thread_index() + k * list_threads, n_runs - 1)];
#pragma unroll
    for (int k = 0; k < most_keys; ++k)
        keys[k] = thread_index() + k * list_threads < n_runs ? run_key(most[k]) : 0;
}

// The thread's share of the columns from `first` on. Loads are on their way together: none is under a
// condition, which it would be waited for.
__device__ void read_values(const View& x, int64_t r, int first, float (&values)[loads_at_once]) {
#pragma unroll
    for (int k = 0; k < loads_at_once; ++k)
        values[k] = x.row(r)[smaller(first + thread_index() + k * list_threads, x.cols - 1)];
}

// The largest threshold of `precision` bits that at least `wanted` keys of the block reach; 0 if there are
// not so many. Two bits at a time: how many keys reach each of three trials, a byte each for a warp.
// `counts`: of warps, twice as many: one half is written while the other is read.
__device__ uint32_t reached_by(int* counts, const uint32_t (&keys)[most_keys], int wanted) {
    static_assert(32 * most_keys < 256 && list_warps <= 32);
    uint32_t threshold = 0;
    int half = 0;
    for (int shift = 30; shift > 30 - precision; shift -= 2) {
        int mine = 0;
        for (const uint32_t key : keys)
            for (uint32_t d = 1; d < 4; ++d) mine += (key >= (threshold | d << shift)) << (8 * (d - 1));
        mine = warp_sum(mine);
        if (lane() == 0) counts[half + warp_index()] = mine;
        sync_block();
        const int of_warp = lane() < list_warps ? counts[half + lane()] : 0;
        const int first_and_third = warp_sum(of_warp & 0x00ff00ff), second = warp_sum(of_warp >> 8 & 0xff);
        const uint32_t digit = first_and_third >> 16 >= wanted        ? 3
                               : second >= wanted                     ? 2
                               : (first_and_third & 0xffff) >= wanted ? 1
                                                                      : 0;
        threshold |= digit << shift;
        half = list_warps - half;
    }
    return threshold;
}

// Collects the values of part `part` of the row that reach the threshold, in any order.
__device__ void collect_part(const View& x, const Lists& l, int wanted, int part, int parts) {
    const int64_t r = block_x();
    const int each = (x.cols + parts - 1) / parts, first = part * each, last = smaller(first + each, x.cols);
    float values[loads_at_once];
    uint32_t keys[most_keys];
    read_values(x, r, first, values);
    read_keys(l.maxima(r), l.n_runs, keys);
    uint32_t threshold = reached_by(reinterpret_cast<int*>(shared_memory()), keys, wanted);
    if (part == 0)
        for (const uint32_t key : keys)
            if (key >= order_key(INFINITY)) atomic_add(l.count(r), most_found + 1);
    const uint32_t finite = order_key(-INFINITY) + 1;
    if (threshold < finite) threshold = finite;
    for (int from = first; from < last; from += loads_at_once * list_threads) {
        if (from > first) read_values(x, r, from, values);
        const auto column = [&](int k) { return from + thread_index() + k * list_threads; };
        const auto reaches = [&](int k) { return order_key(values[k]) >= threshold && column(k) < last; };
        int n = 0;
#pragma unroll
        for (int k = 0; k < loads_at_once; ++k) n += reaches(k);
        if (n == 0) continue;
        int at = atomic_add(l.count(r), n);
#pragma unroll
        for (int k = 0; k < loads_at_once; ++k)
            if (reaches(k) && at < most_found)
                l.found(r)[at++] =
                    static_cast<uint64_t>(order_key(values[k])) << 32 | ~static_cast<uint32_t>(column(k));
    }
}

__device__ uint64_t warp_sum_words(uint64_t v) {
    for (int m = 16; m > 0; m /= 2) {
        const uint32_t low = shuffle_xor(static_cast<uint32_t>(v), m);
        v += static_cast<uint64_t>(shuffle_xor(static_cast<uint32_t>(v >> 32), m)) << 32 | low;
    }
    return v;
}

// The weight of one of shortlist_pieces of the columns; `to`: its three floats.
__device__ void weigh_piece(const View& x, const View& weighed, const Lists& l, int piece, float* to) {
    const int64_t r = block_x();
    const int each = (x.cols + shortlist_pieces - 1) / shortlist_pieces, first = piece * each;
    float values[loads_at_once];
    uint32_t keys[most_keys];
    const int32_t* const how = weighed.row<int32_t>(r);
    const double temperature = shortlist_temperature(how);
    const int last = smaller(smaller(first + each, x.cols), how[2]);
    read_values(x, r, first, values);
    read_keys(l.maxima(r), l.n_runs, keys);
    if (!(temperature > 0)) {
        if (thread_index() == 0) split_weight(0, to);
        return;
    }
    auto* const sums = reinterpret_cast<uint64_t*>(shared_memory());
    auto* const most_keys_of = reinterpret_cast<uint32_t*>(sums + list_warps);
    uint32_t most = 0;
    for (const uint32_t key : keys) most = key > most ? key : most;
    most = warp_max(most);
    if (lane() == 0) most_keys_of[warp_index()] = most;
    sync_block();
    most = warp_max(most_keys_of[lane() % list_warps]);
    uint64_t sum = 0;
    if (most < order_key(INFINITY)) {
        const float best = value_of(most);
        for (int from = first; from < last; from += loads_at_once * list_threads) {
            if (from > first) read_values(x, r, from, values);
                // Two at a time, by one piece of code: that of all would take longer to come than to run.
#pragma unroll 1
            for (int k = 0; k < loads_at_once; k += 2) {
#pragma unroll
                for (int j = 0; j < 2; ++j)
                    if (from + thread_index() + (k + j) * list_threads < last)
                        sum += exp_weight_at(values[j], best, temperature);
#pragma unroll
                for (int j = 2; j < loads_at_once; ++j) values[j - 2] = values[j];
            }
        }
    }
    sum = warp_sum_words(sum);
    if (lane() == 0) sums[warp_index()] = sum;
    sync_block();
    if (thread_index() != 0) return;
    for (int w = 1; w < list_warps; ++w) sum += sums[w];
    split_weight(sum, to);
}

constexpr size_t list_shared = list_warps * (sizeof(uint64_t) + sizeof(uint32_t));
static_assert(list_shared >= 2 * list_warps * sizeof(int));

// Block x: a row; y: `parts` collect, the others weigh a piece each.
__global__ void __launch_bounds__(list_threads)
    collect_kernel(View x, View weighed, Lists l, View out, int count, int parts) {
    wait_for_previous();
    if (block_y() < parts) return collect_part(x, l, count, block_y(), parts);
    const int piece = block_y() - parts;
    weigh_piece(x, weighed, l, piece, out.row(block_x()) + 2 * count + 3 * piece);
}

// Block x: a row; y: a share of what was found. A warp ranks one value at a time.
__global__ void __launch_bounds__(rank_threads) rank_kernel(Lists l, View out, int count, int shares) {
    constexpr int warps = rank_threads / 32, at_once = 4;
    auto* const found = reinterpret_cast<uint64_t*>(shared_memory());
    const int64_t r = block_x();
    wait_for_previous();
    // Before it is known how many they are; what lies behind them is not used.
    uint64_t early[at_once];
#pragma unroll
    for (int k = 0; k < at_once; ++k) early[k] = l.found(r)[thread_index() + k * rank_threads];
    const int all = *l.count(r);
    const bool none = all > most_found;
    const int n = none ? 0 : all;
#pragma unroll
    for (int k = 0; k < at_once; ++k)
        if (thread_index() + k * rank_threads < n) found[thread_index() + k * rank_threads] = early[k];
    for (int i = thread_index() + at_once * rank_threads; i < n; i += rank_threads) found[i] = l.found(r)[i];
    sync_block();
    float* const values = out.row(r);
    float* const columns = values + count;
    for (int i = block_y() * warps + warp_index(); i < n; i += shares * warps) {
        const uint64_t mine = found[i];
        int before = 0;
        for (int j = lane(); j < n; j += 32) before += found[j] > mine;
        const int rank = warp_sum(before);
        if (lane() != 0 || rank >= count) continue;
        values[rank] = value_of(static_cast<uint32_t>(mine >> 32));
        columns[rank] = static_cast<float>(~static_cast<uint32_t>(mine));
    }
    if (block_y() != 0) return;
    for (int i = n + thread_index(); i < count; i += rank_threads) {
        values[i] = none ? bits_float(0x7fc00000u) : 0;
        columns[i] = -1;
    }
}

int64_t runs_of(int64_t cols) { return blocks_for(cols, run_columns(cols)); }

}  // namespace

bool shortlist_supported(const OpArgs& a) { return a.params->as<ShortlistParams>().count <= most_wanted; }

size_t shortlist_scratch(const Exec&, const OpArgs& a) {
    return lists_bytes(a.in[0].rows, runs_of(a.in[0].cols));
}

void run_shortlist(const Exec& e, const OpArgs& a, std::span<std::byte> scratch) {
    const Tensor &x = a.in[0], &out = a.out[0];
    if (x.rows == 0) return;
    const int32_t count = a.params->as<ShortlistParams>().count;
    const int64_t run = run_columns(x.cols);
    const Lists l = lists_in(scratch.data(), x.rows, runs_of(x.cols), run);
    constexpr int threads = 256;
    const int64_t warps = blocks_for(x.cols, run < 32 ? 32 : run);
    const Dims over_runs{x.rows, static_cast<int32_t>(blocks_for(warps, threads / 32)), 1, threads};
    launch(run_maxima_kernel, over_runs, *e.stream, x, l);
    // Rows that are many keep the GPU busy in fewer parts, each of which has the threshold to find.
    const auto parts = static_cast<int32_t>(std::max<int64_t>(most_parts / x.rows, 1));
    const Dims over_parts{x.rows, parts + shortlist_pieces, 1, list_threads, list_shared};
    launch(collect_kernel, over_parts, *e.stream, x, a.in[1], l, out, count, parts);
    const Dims over_shares{x.rows, parts, 1, rank_threads, most_found * sizeof(uint64_t)};
    launch(rank_kernel, over_shares, *e.stream, l, out, count, parts);
}

}  // namespace nibble::cuda
