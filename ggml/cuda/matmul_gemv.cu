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
    UnitArgs ends_in;  // of two weights
};

// Fours of x that a thread holds in registers while the block finds out how large they are; the others wait
// in shared memory, some of them on their way at once.
constexpr int held_fours = 4, staged_fours = 10;
__host__ __device__ constexpr int64_t staged_bytes(int64_t k) {
    const int64_t behind = k / 4 - held_fours * row_block_threads;
    return behind > 0 ? behind * 16 : 0;
}

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

// Makes the row ready, for all warps: normed if it is to be, as Activations<1>. Returns what takes the sums
// back. `partial`: two floats per warp.
__device__ float prepare_gemv(const GemvArgs& a, const Activations<1>& to, Words4* staged, float* partial) {
    const int k = a.x.cols, fours = k / 4;
    const float* const row = a.x.row(0);
    const float* const weight = a.norm.on && a.norm.weight ? a.norm.weight.row(0) : nullptr;
    const auto number = [&](int j) { return thread_index() + j * row_block_threads; };
    const auto weight_of = [&](int u) {
        constexpr uint32_t one = 0x3f800000;
        return weight ? load16(weight + (u < fours ? 4 * u : 0)) : Words4{{one, one, one, one}};
    };
    Words4 held[held_fours], weights[held_fours];
#pragma unroll
    for (int j = 0; j < held_fours; ++j) weights[j] = weight_of(number(j));
    wait_for_previous();

    RowMoments moments;
#pragma unroll
    for (int j = 0; j < held_fours; ++j) held[j] = four_words(row, number(j) < fours ? 4 * number(j) : 0);
    for (int first = held_fours * row_block_threads; first < fours;
         first += staged_fours * row_block_threads) {
        Words4 some[staged_fours];
#pragma unroll
        for (int j = 0; j < staged_fours; ++j) {
            const int u = first + number(j);
            some[j] = four_words(row, u < fours ? 4 * u : 0);
        }
#pragma unroll
        for (int j = 0; j < staged_fours; ++j) {
            const int u = first + number(j);
            if (u >= fours) break;
            staged[u - held_fours * row_block_threads] = some[j];
            moments.add(some[j], weight_of(u));
        }
    }
#pragma unroll
    for (int j = 0; j < held_fours; ++j)
        if (number(j) < fours) moments.add(held[j], weights[j]);

    moments.squares = warp_sum(moments.squares), moments.most = warp_max(moments.most);
    if (lane() == 0)
        partial[2 * warp_index()] = moments.squares, partial[2 * warp_index() + 1] = moments.most;
    sync_block();
    float squares = 0, most = 0;
    for (int w = 0; w < block_warps; ++w) squares += partial[2 * w], most = fmaxf(most, partial[2 * w + 1]);
    const float factor = a.norm.on ? 1 / sqrtf(squares / static_cast<float>(k) + a.norm.eps) : 1;
    const float scale = range_factor(most * factor);

    const auto column = to.column(0);
    const bool kept = a.norm.on && a.norm.out && block_x() == 0;
    const auto put = [&](int u, const Words4& x, const Words4& w) {
        float v[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) v[i] = bits_float(x.w[i]) * factor * bits_float(w.w[i]);
        if (kept)
            for (int i = 0; i < 4; ++i) a.norm.out.row(0)[4 * u + i] = v[i];
        column.put(u, {{half2(v[0] * scale, v[1] * scale), half2(v[2] * scale, v[3] * scale)}});
    };
#pragma unroll
    for (int j = 0; j < held_fours; ++j)
        if (number(j) < fours) put(number(j), held[j], weights[j]);
#pragma unroll 2
    for (int u = number(held_fours); u < fours; u += row_block_threads)
        put(u, staged[u - held_fours * row_block_threads], weight_of(u));
    sync_block();
    return 1 / scale;
}

// Block x: `height` row blocks, and as many again `grid_x()` times that further on.
template <uint32_t only>
__global__ void __launch_bounds__(row_block_threads, resident_blocks) gemv_kernel(GemvArgs a) {
    static_assert(max_matmul_weights == 3);
    std::byte* shared = shared_memory();
    if (a.table_used) shared += size_t{32} << 10;
    auto* const sums = reinterpret_cast<float*>(shared);  // [slot][split][16]
    shared += (a.slots << a.split_bits) * 64;
    auto* const partial = reinterpret_cast<float*>(shared);
    shared += 2 * block_warps * sizeof(float);
    const auto x = arranged<1>(shared, 1, a.x.cols);
    auto* const staged = reinterpret_cast<Words4*>(shared + int64_t{a.x.cols} * 2);

    prefetch_weights(a);
    uint32_t table = 0;
    if (a.table_used) table = fill_table(a.table);
    const float inverse = prepare_gemv(a, x, staged, partial);

    // The first results' share comes while the weights do.
    const int i16 = thread_index() % 16;
    Added added;
    if (thread_index() < 16 * a.slots)
        if (const RowBlockPlace at(a, thread_index() / 16);
            at.which >= 0 && 16 * at.block + i16 < a.segment[at.which].rows)
            added = Added(a, at, 16 * at.block + i16);

    const int splits = 1 << a.split_bits;
    for_each_run<only>(
        a, 0, a.slots / a.height, []<TileFormat f>() { return GemvUnit<f>::columns; },
        [&]<TileFormat f>(const WarpRun& run, int slot) {
            const int split = warp_index() & (splits - 1);
            gemv_run<f>(run, x.values, table, sums + ((slot << a.split_bits) + split) * 16, 16 * block_warps);
        });
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
                   const UnitArgs& ends_in) {
    if (!e.gemv || product.x.rows != 1 || product.x.cols % 256 != 0 || !aligned(product.x)) return false;
    if (product.norm.on && !aligned(product.norm.weight)) return false;  // none is aligned, too
    const auto unit = [](TileFormat f) { return f.real() ? 64 : 8 * f.group; };
    if (std::ranges::any_of(types, [&](Type t) { return product.x.cols % unit(tiles_of(t)) != 0; }))
        return false;
    GemvArgs a{{product}, ends_in};
    a.paired = ends_in.on;
    const int64_t grid = plan_row_blocks(e, types, unit, a);
    const size_t shared = (a.table_used ? size_t{32} << 10 : 0) +
                          (static_cast<size_t>(a.slots) << a.split_bits) * 64 +
                          2 * block_warps * sizeof(float) + static_cast<size_t>(a.x.cols) * 2 +
                          static_cast<size_t>(staged_bytes(a.x.cols));
    if (grid == 0 || shared > e.card->shared_per_block) return false;
    with_only_format(types, [&]<uint32_t only>() {
        launch(gemv_kernel<only>, Dims{grid, 1, 1, row_block_threads, shared}, *e.stream, a);
    });
    return true;
}

}  // namespace nibble::cuda
