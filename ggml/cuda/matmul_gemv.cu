// The product of one row with weights of any formats in one launch, as fast as memory is: decoding.
// Its sums are formed group by group and scaled in f32, so they are not the bits of matmul.cu.
#include <algorithm>
#include <limits>

#include "ggml/base/checked.h"
#include "ggml/cuda/product.h"
#include "ggml/cuda/tile_codes.h"

namespace nibble::cuda {
namespace {

#include "ggml/cuda/gated.inl"
#include "ggml/cuda/matmul.inl"
#include "ggml/cuda/matmul_blocks.inl"
#include "ggml/cuda/matmul_gemv.inl"
#include "ggml/cuda/matmul_row.inl"

struct GemvArgs : RowBlockArgs {
    UnitArgs ends_in;         // of two weights
    Activations<1> prepared;  // the row, if it is ready
};

struct RowMoments {
    float squares = 0, most = 0;
    __device__ void add(const Words4& x, const Words4& weight) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const float v = bits_float(x.w[i]);
            squares = fused(v, v, squares);
            most = fmaxf(most, fabsf(v * bits_float(weight.w[i])));
        }
    }
};

// Fours of x that a thread holds: of a block that multiplies, and of one that does nothing but this.
constexpr int held_fours = 4, held_alone = 8, alone_threads = 1024;
constexpr int64_t held_columns = int64_t{4} * held_fours * row_block_threads,
                  most_columns = int64_t{4} * held_alone * alone_threads;

// Makes the row ready: normed if it is to be, as Activations<1>; the whole block. Returns what takes the sums
// back. `partial`: two floats per warp.
template <int threads, int n>
__device__ float prepare_gemv(const View& x, const RowNorm& norm, const Activations<1>& to, float* partial) {
    const int fours = x.cols / 4;
    const float* const row = x.row(0);
    const float* const weight = norm.on && norm.weight ? norm.weight.row(0) : nullptr;
    const auto number = [&](int j) { return thread_index() + j * threads; };
    const auto first = [&](int j) { return number(j) < fours ? 4 * number(j) : 0; };
    constexpr uint32_t one = 0x3f800000;
    Words4 held[n], weights[n];
#pragma unroll
    for (int j = 0; j < n; ++j)
        weights[j] = weight ? load16(weight + first(j)) : Words4{{one, one, one, one}};
    wait_for_previous();
#pragma unroll
    for (int j = 0; j < n; ++j) held[j] = four_words(row, first(j));
    RowMoments moments;
#pragma unroll
    for (int j = 0; j < n; ++j)
        if (number(j) < fours) moments.add(held[j], weights[j]);

    moments.squares = warp_sum(moments.squares), moments.most = warp_max(moments.most);
    if (lane() == 0)
        partial[2 * warp_index()] = moments.squares, partial[2 * warp_index() + 1] = moments.most;
    sync_block();
    float squares = 0, most = 0;
    for (int w = 0; w < threads / 32; ++w) squares += partial[2 * w], most = fmaxf(most, partial[2 * w + 1]);
    const float factor = norm.on ? 1 / sqrtf(squares / static_cast<float>(x.cols) + norm.eps) : 1;
    const float scale = range_factor(most * factor);

    const auto column = to.column(0);
    const bool kept = norm.on && norm.out && block_x() == 0;
#pragma unroll
    for (int j = 0; j < n; ++j) {
        if (number(j) >= fours) break;
        float v[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) v[i] = bits_float(held[j].w[i]) * factor * bits_float(weights[j].w[i]);
        if (kept)
            for (int i = 0; i < 4; ++i) norm.out.row(0)[4 * number(j) + i] = v[i];
        column.put(number(j), {{half2(v[0] * scale, v[1] * scale), half2(v[2] * scale, v[3] * scale)}});
    }
    return 1 / scale;
}

// A row that is too long for every block to make it ready.
__global__ void __launch_bounds__(alone_threads)
    prepare_long_kernel(View x, RowNorm norm, Activations<1> to) {
    const float inverse =
        prepare_gemv<alone_threads, held_alone>(x, norm, to, reinterpret_cast<float*>(shared_memory()));
    if (thread_index() == 0) to.inverse[0] = inverse;
}

// The row in shared memory, for all warps.
__device__ float ready_row(const GemvArgs& a, const Activations<1>& to, float* partial) {
    float inverse;
    if (a.prepared.values) {
        wait_for_previous();
        for (int at = 16 * thread_index(); at < 2 * a.x.cols; at += 16 * row_block_threads)
            copy_async16(to.values + at, a.prepared.values + at, true);
        copy_commit();
        inverse = a.prepared.inverse[0];
        copy_wait<0>();
    } else {
        inverse = prepare_gemv<row_block_threads, held_fours>(a.x, a.norm, to, partial);
    }
    sync_block();
    return inverse;
}

// Block x: `height` row blocks, and as many again `grid_x()` times that further on.
template <uint32_t... codes>
__global__ void __launch_bounds__(row_block_threads, resident_blocks) gemv_kernel(GemvArgs a) {
    static_assert(max_matmul_weights == 3);
    std::byte* shared = shared_memory();
    if (a.table_used) shared += size_t{32} << 10;
    auto* const sums = reinterpret_cast<float*>(shared);  // [slot][split][16]
    shared += (a.slots << a.split_bits) * 64;
    auto* const partial = reinterpret_cast<float*>(shared);
    const auto x = arranged<1>(shared + 2 * block_warps * sizeof(float), 1, a.x.cols);

    prefetch_weights(a);
    const int i16 = thread_index() % 16, splits = 1 << a.split_bits;
    float inverse = 0;
    Added added;  // the first results' share comes while the weights do
    const auto ready = [&] {
        inverse = ready_row(a, x, partial);
        if (thread_index() >= 16 * a.slots) return;
        const RowBlockPlace at(a, thread_index() / 16);
        if (at.which >= 0 && 16 * at.block + i16 < a.segment[at.which].rows)
            added = Added(a, at, 16 * at.block + i16);
    };
    uint32_t table = 0;
    if (a.table_used) table = fill_table(a.table);
    const WarpTurns turns(a);
    float* const to = sums + warp_index() * 16;
    constexpr int step = 16 * block_warps;
    if constexpr (sizeof...(codes) == 1) {
        constexpr TileFormat f = format_of((codes, ...));
        GemvStream<f, UniformBlocks<f>> stream({a, turns.mine}, turns.up_to(a.blocks),
                                               WarpShare(a, GemvUnit<f>::columns), a.x.cols);
        ready();
        stream.run(x.values, table, to, step);
    } else {
        ready();
        for_each_weight<codes...>(a, 0, a.slots,
                                  [&]<TileFormat f>(const StridedBlocks& blocks, int count, int turn) {
                                      GemvStream<f, StridedBlocks> stream(
                                          blocks, count, WarpShare(a, GemvUnit<f>::columns), a.x.cols);
                                      stream.run(x.values, table, to + turn * step, step);
                                  });
    }
    sync_block();

    for (int i = thread_index(); i < 16 * a.slots; i += row_block_threads) {
        const RowBlockPlace place(a, i / 16);
        const int row = 16 * place.block + i16;
        if (place.which < 0 || row >= a.segment[place.which].rows) continue;
        const auto total = [&](int slot) {
            const float* const of = sums + (slot << a.split_bits) * 16 + i16;
            float sum = 0;
#pragma unroll
            for (int p = 0; p < block_warps; ++p) sum += p < splits ? of[16 * p] : 0;
            return sum * inverse;
        };
        if (i != thread_index()) added = Added(a, place, row);
        if (!a.paired) {
            a.out.row(0)[a.segment[place.which].first_col + row] =
                total(i / 16) + added.bias + added.residual;
        } else if (place.which == 0) {
            const Segment& up = a.segment[1];
            const float beside = up.bias ? up.bias.row(0)[row] : 0;
            a.ends_in.out.row(0)[row] =
                gated(a.ends_in.params, total(i / 16) + added.bias, total(i / 16 + 1) + beside);
        }
    }
}

bool aligned(const View& v) { return reinterpret_cast<uintptr_t>(v.data) % sizeof(Words4) == 0; }

}  // namespace

bool multiply_gemv(const Exec& e, const ProductArgs& product, std::span<const Type> types,
                   std::span<std::byte> memory, const UnitArgs& ends_in) {
    const int64_t k = product.x.cols;
    if (!e.gemv || product.x.rows != 1 || k % 256 != 0 || k > most_columns || !aligned(product.x))
        return false;
    if (product.norm.on && !aligned(product.norm.weight)) return false;  // none is aligned, too
    const auto unit = [](TileFormat f) { return f.real() ? 64 : 8 * f.group; };
    if (std::ranges::any_of(types, [&](Type t) { return k % unit(tiles_of(t)) != 0; })) return false;
    GemvArgs a{{product}, ends_in, {nullptr, nullptr, 0}};
    a.paired = ends_in.on;
    const int64_t grid = plan_row_blocks(e, types, unit, a);
    const size_t shared = (a.table_used ? size_t{32} << 10 : 0) +
                          (static_cast<size_t>(a.slots) << a.split_bits) * 64 +
                          2 * block_warps * sizeof(float) + static_cast<size_t>(k) * 2;
    if (grid == 0 || shared > e.card->shared_per_block) return false;
    if (k > held_columns && memory.size() < arranged_bytes<1>(1, k)) return false;
    return with_formats(
        types, [&]<uint32_t... codes>() {
            if (k > held_columns) {
                a.prepared = arranged<1>(memory.data(), 1, k);
                launch(prepare_long_kernel,
                       Dims{1, 1, 1, alone_threads, alone_threads / 32 * 2 * sizeof(float)}, *e.stream, a.x,
                       a.norm, a.prepared);
            }
            launch(gemv_kernel<codes...>, Dims{grid, 1, 1, row_block_threads, shared}, *e.stream, a);
        });
}

}  // namespace nibble::cuda
