// embed: rows of a table in tiles or, for f32, in rows.
// Values are exactly those of the format; of a tile only what belongs to the row is read.
#include "ggml/cuda/exec.h"
#include "ggml/cuda/tiles.h"
#include "ggml/cuda/view.h"

namespace nibble::cuda {
namespace {

#include "ggml/cuda/matmul.inl"

struct EmbedArgs {
    View ids, table, drawn, out;
    float scale;
    float level[16];
};

__device__ int64_t row_of(const EmbedArgs& a, int64_t t) {
    return embedded_row(*a.ids.row<int32_t>(t), a.drawn.row(0), a.drawn.rows);
}

// Block x: a token; y: 256 columns.
__global__ void embed_f32_kernel(EmbedArgs a) {
    wait_for_previous();
    const int64_t id = row_of(a, block_x());
    const int c = block_y() * block_threads() + thread_index();
    if (c >= a.out.cols) return;
    a.out.row(block_x())[c] = id < 0 || id >= a.table.rows ? 0 : a.table.row(id)[c] * a.scale;
}

// Writes what a thread has of a row of the tile's upper or lower half: four columns of each step from c on.
template <TileFormat f, int half>
__device__ void put_columns(const EmbedArgs& a, const LaneTile<f>& v, float factor, bool known, int64_t t,
                            int c) {
    float* const to = a.out.row(t) + c;
    const bool fours = in_fours(a.out.row(t), a.out.cols);
#pragma unroll
    for (int s = 0; s < 4; ++s) {
        float x[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) x[i] = known ? value_of(v, s, half, i, a.level) * factor * a.scale : 0;
        const int left = a.out.cols - c - 16 * s;
        if (left <= 0) return;
        if (fours) {
            *reinterpret_cast<Words4*>(to + 16 * s) = words_of(x);
        } else {
            for (int i = 0; i < 4 && i < left; ++i) to[16 * s + i] = x[i];
        }
    }
}

constexpr int embed_threads = 128;

// Lane 4g + t of a warp that multiplies has the columns of its unit for the rows g and g + 8 of a tile. Here
// four threads take a tile, the parts of the four lanes that have the token's row: nothing else is read.
// Block x: a token; y: as many tiles as it has fours of threads.
template <uint32_t code>
__global__ void __launch_bounds__(embed_threads) embed_tiles_kernel(EmbedArgs a) {
    constexpr TileFormat f = format_of(code);
    const int64_t t = block_x();
    const int tiles = static_cast<int>(TileFormat::tiles(a.out.cols));
    const int tile = block_y() * (embed_threads / 4) + thread_index() / 4, part = thread_index() % 4;
    wait_for_previous();
    if (tile >= tiles) return;
    const int64_t id = row_of(a, t);
    const bool known = id >= 0 && id < a.table.rows;
    const int64_t row = known ? id : 0;
    const int g = static_cast<int>(row % 8), l = 4 * g + part;
    const std::byte* const block = a.table.data + row / 16 * f.block_bytes(a.out.cols);
    const std::byte* const at = block + int64_t{tile} * f.tile_bytes();
    LaneTile<f> v;
    load_tile<f>({at + l * 16, at + f.extra_at() + l * 4 * f.extra, at + f.scales_at() + g * f.lane_scales(),
                  block + f.supers_at(a.out.cols) + g * f.lane_super(), tile},
                 0, v);
    const float factor = row_factor<f>(block, a.out.cols, row % 16);
    const int c = 64 * tile + 4 * part;
    if (row % 16 < 8)
        put_columns<f, 0>(a, v, factor, known, t, c);
    else
        put_columns<f, 1>(a, v, factor, known, t, c);
}

}  // namespace

void run_embed(const Exec& e, const OpArgs& a, std::span<std::byte>) {
    const Tensor &ids = a.in[0], &table = a.in[1], &drawn = a.in[2], &out = a.out[0];
    EmbedArgs args{ids, table, drawn, out, a.params->as<EmbedParams>().scale, {}};
    const Dims dims{out.rows, static_cast<int32_t>(blocks_for(out.cols, 256)), 1, 256};
    if (table.layout == Layout::rows) return launch(embed_f32_kernel, dims, *e.stream, args);
    const TileTable levels = table_of(table.type);
    for (int i = 0; i < 16; ++i) args.level[i] = levels.level[i];
    const int64_t parts = 4 * TileFormat::tiles(out.cols);
    const Dims by_tile{out.rows, static_cast<int32_t>(blocks_for(parts, embed_threads)), 1, embed_threads};
    visit_tile_format(table.type, [&]<TileFormat f>() {
        launch(embed_tiles_kernel<format_code(f)>, by_tile, *e.stream, args);
    });
}

}  // namespace nibble::cuda
