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

// Columns that a warp makes ready at once, a four per lane.
constexpr int warp_columns = 128;

// Makes the warp's share of the row ready, n * 128 columns of a unit, each unit by itself: no warp waits for
// another. A norm's weight is multiplied with; its factor is the whole row's, and comes at the end. Returns
// the sum of the squares.
template <int n, bool normed>
__device__ float prepare_share(const GemvArgs& a, const WarpShare& share, const WarpRow& to_row) {
    constexpr int at_once = normed ? 4 : 8, units = at_once / n;
    const auto column = [&](int unit, int j) {
        const int u = unit < share.units ? unit : 0;
        return ((share.first + u) * n + j) * warp_columns + 4 * lane();
    };
    float squares = 0;
    for (int first = 0; first < share.units; first += units) {
        Words4 x[units][n], w[units][n];
#pragma unroll
        for (int u = 0; u < units; ++u)
#pragma unroll
            for (int j = 0; j < n; ++j) {
                x[u][j] = four_words(a.x.row(0), column(first + u, j));
                if constexpr (normed) w[u][j] = four_words(a.norm.weight.row(0), column(first + u, j));
            }
#pragma unroll
        for (int u = 0; u < units; ++u) {
            if (first + u >= share.units) break;
            float v[n][4], most = 0;
#pragma unroll
            for (int j = 0; j < n; ++j)
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    v[j][i] = bits_float(x[u][j].w[i]);
                    squares = fused(v[j][i], v[j][i], squares);
                    if constexpr (normed) v[j][i] *= bits_float(w[u][j].w[i]);
                    most = fmaxf(most, fabsf(v[j][i]));
                }
            const float scale = range_factor(warp_max(most));
            const Activations<1> to{to_row.values + (first + u) * n * 2 * warp_columns, nullptr, 0};
#pragma unroll
            for (int j = 0; j < n; ++j)
                to.column(0).put(j * 32 + lane(), {{half2(v[j][0] * scale, v[j][1] * scale),
                                                    half2(v[j][2] * scale, v[j][3] * scale)}});
            if (lane() == 0) to_row.inverse[first + u] = 1 / scale;
        }
    }
    return squares;
}

template <bool normed>
__device__ float prepare_share(const GemvArgs& a, const WarpShare& share, const WarpRow& to_row) {
    switch (a.unit / warp_columns) {
        case 1:
            return prepare_share<1, normed>(a, share, to_row);
        case 2:
            return prepare_share<2, normed>(a, share, to_row);
        default:
            return prepare_share<4, normed>(a, share, to_row);
    }
}

// The row of a norm where it is wanted besides.
__device__ inline void keep_normed(const GemvArgs& a, float factor) {
    for (int i = thread_index(); i < a.x.cols; i += row_block_threads) {
        const float v = a.x.row(0)[i] * factor;
        a.norm.out.row(0)[i] = a.norm.weight ? v * a.norm.weight.row(0)[i] : v;
    }
}

// Block x: `height` row blocks, and as many again `grid_x()` times that further on.
template <uint32_t... codes>
__global__ void __launch_bounds__(row_block_threads, resident_blocks) gemv_kernel(GemvArgs a) {
    std::byte* shared = shared_memory() + a.table_bytes();
    auto* const sums = reinterpret_cast<float*>(shared);  // [slot][split][16]
    shared += (a.slots << a.split_bits) * 64;
    auto* const squares = reinterpret_cast<float*>(shared);  // of each warp's share
    shared += block_warps * sizeof(float);

    const int i16 = thread_index() % 16;
    const WarpTurns turns(a);
    const WarpShare share(a);
    const int inverse_bytes = (share.most + 3) / 4 * 16;
    std::byte* const mine = shared + warp_index() * (inverse_bytes + share.most * 2 * a.unit);
    const WarpRow x{mine + inverse_bytes, reinterpret_cast<float*>(mine)};
    Added added;  // the first results' share comes while the weights do
    const auto ready = [&] {
        wait_for_previous();
        float sum =
            a.norm.on && a.norm.weight ? prepare_share<true>(a, share, x) : prepare_share<false>(a, share, x);
        if (a.norm.on) sum = warp_sum(sum);
        if (lane() == 0) squares[warp_index()] = sum;
        if (a.table_used) sync_block();
        sync_warp();
        if (thread_index() >= 16 * a.slots) return;
        const RowBlockPlace at(a, thread_index() / 16);
        if (at.which >= 0 && 16 * at.block + i16 < a.segment[at.which].rows)
            added = Added(a, at, 16 * at.block + i16, 0);
    };
    uint32_t table = 0;
    if (a.table_used) table = fill_table(a.table);
    float* const to = sums + warp_index() * 16;
    constexpr int step = 16 * block_warps;
    const auto stream_of = [&]<TileFormat f, class From>(const From& from, int count) {
        const int per_unit = a.unit / GemvUnit<f>::columns;
        return RowBlockStream<GemvUnit<f>, From>(from, count, share.first * per_unit, share.units * per_unit,
                                                 a.x.cols);
    };
    const auto work_of = [&]<TileFormat f>(float* partial) {
        return GemvWork<f>{x, table, partial, step, a.unit / GemvUnit<f>::columns, a.x.cols};
    };
    if constexpr (sizeof...(codes) == 1) {
        constexpr TileFormat f = format_of((codes, ...));
        auto stream =
            stream_of.template operator()<f>(UniformBlocks<f>{a, turns.mine}, turns.up_to(a.blocks));
        ready();
        stream.run(work_of.template operator()<f>(to));
    } else {
        ready();
        for_each_weight<codes...>(a, 0, a.slots,
                                  [&]<TileFormat f>(const StridedBlocks& blocks, int count, int turn) {
                                      stream_of.template operator()<f>(blocks, count)
                                          .run(work_of.template operator()<f>(to + turn * step));
                                  });
    }
    sync_block();

    float factor = 1;
    if (a.norm.on) {
        float sum = 0;
        for (int p = 0; p < 1 << a.split_bits; ++p) sum += squares[p];
        factor = 1 / sqrtf(sum / static_cast<float>(a.x.cols) + a.norm.eps);
        if (a.norm.out && block_x() == 0) keep_normed(a, factor);
    }
    for (int i = thread_index(); i < 16 * a.slots; i += row_block_threads) {
        const RowBlockPlace place(a, i / 16);
        const int row = 16 * place.block + i16;
        if (place.which < 0 || row >= a.segment[place.which].rows) continue;
        const auto total = [&](int slot) {
            return sum_of_splits(a, sums + (slot << a.split_bits) * 16 + i16, 16) * factor;
        };
        if (i != thread_index()) added = Added(a, place, row, 0);
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
    const int64_t k = product.x.cols;
    if (!e.gemv || product.x.rows != 1 || k % 256 != 0 || !aligned(product.x)) return false;
    if (product.norm.on && !aligned(product.norm.weight)) return false;  // none is aligned, too
    const auto unit = [](TileFormat f) { return f.real() ? 256 : 8 * f.group; };
    if (std::ranges::any_of(types, [&](Type t) { return k % unit(tiles_of(t)) != 0; })) return false;
    GemvArgs a{{product}, ends_in};
    a.paired = ends_in.on;
    const int64_t grid = plan_row_blocks(e, types, unit, a);
    if (grid == 0) return false;
    const int64_t units = ceil_div(k / a.unit, int64_t{1} << a.split_bits);
    const size_t shared =
        static_cast<size_t>(a.table_bytes()) + (static_cast<size_t>(a.slots) << a.split_bits) * 64 +
        block_warps *
            (sizeof(float) + static_cast<size_t>(round_up(units, int64_t{4}) * 4 + units * 2 * a.unit));
    if (shared > e.card->shared_per_block) return false;
    return with_formats(
        types, [&]<uint32_t... codes>() {
            launch(gemv_kernel<codes...>, Dims{grid, 1, 1, row_block_threads, shared}, *e.stream, a);
        });
}

}  // namespace nibble::cuda
