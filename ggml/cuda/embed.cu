// embed: rows of a table in tiles or, for f32, in rows; values are exactly those of the format.
// A block takes one token and 256 columns.
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

__global__ void embed_f32_kernel(EmbedArgs a) {
    wait_for_previous();
    const int64_t id = row_of(a, block_x());
    const int c = block_y() * block_threads() + thread_index();
    if (c >= a.out.cols) return;
    a.out.row(block_x())[c] = id < 0 || id >= a.table.rows ? 0 : a.table.row(id)[c] * a.scale;
}

// Lane 4g + t of a warp has the columns of its unit for the rows g and g + 8; here a warp takes the tile that
// holds the token's row, and the four lanes of that row write its columns.
template <uint32_t code>
__global__ void embed_tiles_kernel(EmbedArgs a) {
    wait_for_previous();
    constexpr TileFormat f = format_of(code);
    const int64_t t = block_x(), id = row_of(a, t), tiles = TileFormat::tiles(a.out.cols);
    const int64_t tile = int64_t{block_y()} * (block_threads() / 32) + warp_index();
    if (tile >= tiles) return;
    const bool known = id >= 0 && id < a.table.rows;
    const int64_t row = known ? id : 0;
    LaneTile<f> v;
    const std::byte* const block = a.table.data + row / 16 * f.block_bytes(a.out.cols);
    load_tile<f>(tile_place<f>(block, static_cast<int>(tiles), static_cast<int>(tile)), 0, v);
    const int half = static_cast<int>(row % 16 / 8);
    const float factor = row_factor<f>(block, a.out.cols, row % 16);
    if (lane() / 4 != row % 8) return;
    for (int s = 0; s < 4; ++s)
        for (int i = 0; i < 4; ++i) {
            const int64_t c = 64 * tile + 16 * s + 4 * (lane() % 4) + i;
            if (c >= a.out.cols) continue;
            const float x = value_of(v, s, half, i, a.level) * factor;
            a.out.row(t)[c] = known ? x * a.scale : 0;
        }
}

}  // namespace

void run_embed(const Exec& e, const OpArgs& a, std::span<std::byte>) {
    const Tensor &ids = a.in[0], &table = a.in[1], &drawn = a.in[2], &out = a.out[0];
    EmbedArgs args{ids, table, drawn, out, a.params->as<EmbedParams>().scale, {}};
    const Dims dims{out.rows, static_cast<int32_t>(blocks_for(out.cols, 256)), 1, 256};
    if (table.layout == Layout::rows) return launch(embed_f32_kernel, dims, *e.stream, args);
    const TileTable levels = table_of(table.type);
    for (int i = 0; i < 16; ++i) args.level[i] = levels.level[i];
    const Dims by_tile{out.rows, static_cast<int32_t>(blocks_for(TileFormat::tiles(out.cols), 4)), 1, 128};
    visit_tile_format(table.type, [&]<TileFormat f>() {
        launch(embed_tiles_kernel<format_code(f)>, by_tile, *e.stream, args);
    });
}

}  // namespace nibble::cuda
