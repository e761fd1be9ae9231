// attention: tasks are (sequence, tile of tokens, kv heads); long contexts of few tokens are cut into splits
// too. Splits lie at fixed positions and join in order either way, so the choice cannot be seen in the
// result.
#include <algorithm>

#include "ggml/base/checked.h"
#include "ggml/cpu/exec.h"

namespace nibble::cpu {
namespace {

// Tokens for which partial records are planned; larger batches have enough tiles for every thread.
constexpr int64_t split_batch = 16;

struct AttentionOperands {
    const AttentionParams& p;
    const Tensor &q, &k_cache, &v_cache, &seq_rows, &positions, &page_table, &sinks, &out;
};

AttentionOperands operands(const OpArgs& a) {
    return {a.params->as<AttentionParams>(),
            a.in[0],
            a.in[1],
            a.in[2],
            a.in[3],
            a.in[4],
            a.in[5],
            a.in[6],
            a.out[0]};
}

// Rows of a sequence, clipped to the batch.
struct Rows {
    int64_t first, count;
};
Rows rows_of(const AttentionOperands& o, int64_t sequence) {
    const int32_t* r = o.seq_rows.row<int32_t>(sequence);
    const int64_t first = std::clamp<int64_t>(r[0], 0, o.q.rows);
    return {first, std::clamp<int64_t>(r[1], 0, o.q.rows - first)};
}

// The context that a sequence's table can address, in splits.
int64_t table_splits(const AttentionOperands& o) {
    return Splits(o.p).of(o.page_table.cols * o.p.page_size - 1) + 1;
}

size_t record_bytes(const AttentionOperands& o, int64_t tokens) {
    return static_cast<size_t>(tokens * o.p.n_heads * table_splits(o) * partial_floats(o.p)) * sizeof(float);
}

struct Tile {
    int64_t sequence, first, count;
};

// Task number -> tile, by walking the sequences: there are few.
Tile tile_at(const AttentionOperands& o, int64_t tokens, int64_t index) {
    for (int64_t s = 0; s < o.seq_rows.rows; ++s) {
        const Rows r = rows_of(o, s);
        const int64_t tiles = ceil_div(r.count, tokens);
        if (index < tiles) {
            const int64_t at = index * tokens;
            return {s, r.first + at, std::min(tokens, r.count - at)};
        }
        index -= tiles;
    }
    return {};
}

AttentionBlock block_of(const AttentionOperands& o, const Tile& tile, int64_t kv_head) {
    AttentionBlock b;
    b.params = &o.p;
    b.k_cache = o.k_cache;
    b.v_cache = o.v_cache;
    b.pages = o.page_table.row<int32_t>(tile.sequence);
    b.n_pages = o.page_table.cols;
    b.q = o.q.row(tile.first);
    b.q_stride = o.q.stride / 4;
    b.out = o.out.row(tile.first);
    b.out_stride = o.out.stride / 4;
    b.sinks = o.sinks ? o.sinks.row(0) : nullptr;
    b.first_position = std::max(0, *o.positions.row<int32_t>(tile.first));
    b.n_tokens = tile.count;
    b.kv_head = static_cast<int32_t>(kv_head);
    const Splits splits(o.p);
    const int64_t last = b.first_position + tile.count - 1;
    const int64_t lowest = o.p.window > 0 ? std::max<int64_t>(0, b.first_position - o.p.window + 1) : 0;
    b.split_begin = splits.of(lowest);
    b.split_end = std::min(splits.of(last) + 1, table_splits(o));
    return b;
}

int64_t tiles_of(const AttentionOperands& o, int64_t tokens) {
    int64_t tiles = 0;
    for (int64_t s = 0; s < o.seq_rows.rows; ++s) tiles += ceil_div(rows_of(o, s).count, tokens);
    return tiles;
}

// So many tasks for every thread, if there are several.
int64_t tasks_wanted(const Exec& exec, int64_t each) {
    return exec.pool->size() == 1 ? 1 : each * exec.pool->size();
}

// Tokens of a tile, `most` at most: tall tiles convert keys and values less often, but every thread wants
// some of them.
int64_t tile_height(const Exec& exec, const AttentionOperands& o, int64_t most) {
    const int64_t group = o.p.n_heads / o.p.n_kv_heads, least = std::max<int64_t>(1, worth_a_tile / group);
    int64_t tokens = most;
    while (tokens > least && tiles_of(o, tokens) * o.p.n_kv_heads < tasks_wanted(exec, 8))
        tokens = std::max(tokens / 2, least);
    return tokens;
}

// How many kv heads a task takes: tiles of few tokens take as many as they have room for and leave every
// thread some tasks, because heads that follow each other lie so in memory, too. `rows`: the most tokens of a
// tile.
int64_t heads_per_task(const Exec& exec, const AttentionOperands& o, int64_t tile_tokens, int64_t rows,
                       int64_t tasks_per_head) {
    const int64_t heads = o.p.n_kv_heads, room = rows <= 1 ? heads : tile_tokens / rows;
    const int64_t parts = std::clamp<int64_t>(ceil_div(tasks_wanted(exec, 4), tasks_per_head), 1, heads);
    return std::clamp<int64_t>(room, 1, ceil_div(heads, parts));
}

// Tasks of (tile, kv heads, some splits), leaving partial records; then one task per (tile, kv head). The
// longest sequence has `splits` of them.
void run_split(const Exec& exec, const AttentionOperands& o, int64_t tile_tokens, int64_t tiles,
               int64_t task_heads, int64_t splits, std::byte* workers, size_t worker_bytes, float* records) {
    const int64_t heads = o.p.n_kv_heads, parts = ceil_div(heads, task_heads);
    const int64_t stride = o.p.n_heads * splits * partial_floats(o.p);
    const auto partial = [&](const Tile& tile, int64_t kv_head, int worker) {
        AttentionBlock b = block_of(o, tile, kv_head);
        b.partial = records + tile.first * stride;
        b.partial_stride = stride;
        b.scratch = workers + static_cast<size_t>(worker) * worker_bytes;
        return b;
    };
    // As many splits in a row as leave every thread some tasks: what is read next can be asked for ahead.
    const int64_t task_splits = std::max<int64_t>(1, tiles * parts * splits / (8 * exec.pool->size())),
                  runs = ceil_div(splits, task_splits);
    exec.pool->run(tiles * parts * runs, [&](int64_t task, int worker) {
        const int64_t head = task / runs % parts * task_heads, first = task % runs * task_splits;
        AttentionBlock b = partial(tile_at(o, tile_tokens, task / runs / parts), head, worker);
        b.kv_heads = static_cast<int32_t>(std::min(task_heads, heads - head));
        b.split_begin += first;
        if (b.split_begin >= b.split_end) return;
        b.partial += first * o.p.n_heads * partial_floats(o.p);
        b.split_end = std::min(b.split_end, b.split_begin + task_splits);
        b.out = nullptr;
        exec.kernels->attention.block(b);
    });
    exec.rows(tiles * heads, 1 << 12, [&](int64_t first, int64_t last, int worker) {
        for (int64_t i = first; i < last; ++i)
            exec.kernels->attention.merge(partial(tile_at(o, tile_tokens, i / heads), i % heads, worker));
    });
}

}  // namespace

void run_attention(const Exec& exec, const OpArgs& a, std::span<std::byte> scratch) {
    const AttentionOperands o = operands(a);
    const AttentionKernels& kernels = exec.kernels->attention;
    const int64_t tokens = tile_height(exec, o, kernels.tile_tokens(o.p)), heads = o.p.n_kv_heads,
                  tiles = tiles_of(o, tokens);
    const size_t worker_bytes = kernels.scratch_bytes(o.p, tokens);
    int64_t longest = 0, most_rows = 0;
    for (int64_t s = 0; s < o.seq_rows.rows; ++s) {
        const Rows r = rows_of(o, s);
        if (r.count == 0) continue;
        most_rows = std::max(most_rows, r.count);
        longest = std::max<int64_t>(longest, *o.positions.row<int32_t>(r.first + r.count - 1) + 1);
    }
    const size_t workers_bytes = worker_bytes * static_cast<size_t>(exec.pool->size());
    const int64_t splits = std::min(Splits(o.p).of(longest - 1) + 1, table_splits(o));
    if (o.q.rows <= split_batch && splits > 1 && tiles * heads < 8 * exec.pool->size() &&
        exec.pool->size() > 1) {
        const int64_t task_heads = heads_per_task(exec, o, tokens, most_rows, tiles * splits);
        return run_split(exec, o, tokens, tiles, task_heads, splits, scratch.data(), worker_bytes,
                         reinterpret_cast<float*>(scratch.data() + workers_bytes));
    }
    if (tiles == 0) return;
    const int64_t task_heads = heads_per_task(exec, o, tokens, most_rows, tiles),
                  parts = ceil_div(heads, task_heads);
    const auto task = [&](int64_t i, int worker) {
        const int64_t head = i % parts * task_heads;
        AttentionBlock b = block_of(o, tile_at(o, tokens, i / parts), head);
        b.kv_heads = static_cast<int32_t>(std::min(task_heads, heads - head));
        b.scratch = scratch.data() + static_cast<size_t>(worker) * worker_bytes;
        kernels.block(b);
    };
    constexpr int64_t worth = 1 << 15;  // below about as many operations one thread is faster
    if (o.q.rows * o.q.cols * longest < worth)
        for (int64_t i = 0; i < tiles * parts; ++i) task(i, 0);
    else
        exec.pool->run(tiles * parts, task);
}

size_t attention_scratch(const Exec& exec, const OpArgs& a) {
    const AttentionOperands o = operands(a);
    const AttentionKernels& kernels = exec.kernels->attention;
    const size_t workers =
        kernels.scratch_bytes(o.p, kernels.tile_tokens(o.p)) * static_cast<size_t>(exec.pool->size());
    return workers + (exec.pool->size() > 1 ? record_bytes(o, std::min(split_batch, o.q.rows)) : 0);
}

}  // namespace nibble::cpu
