// How the blocks of an attention divide contexts among them, and the kernel that joins what they leave where
// they do not do it themselves.

// Block x: tiles, as in tile_kernel; y: the kv head; z: four rows of the tile, a warp each.
template <int dim>
__global__ void __launch_bounds__(128) join_kernel(AttentionArgs a, int height) {
    wait_for_previous();
    const int r = block_z() * 4 + warp_index();
    QueryTile tile;
    for (int64_t i = block_x(); find_tile(a, i, height, tile); i += grid_x())
        if (tile.row + r < tile.rows && Walk(a, Reach(a, tile, height), 0).blocks > 1)
            join_row<dim>(a, tile, i, height, r);
}

int splits_of(const OpArgs& a) {
    const int64_t positions = a.in[5].cols * a.params->as<AttentionParams>().page_size;
    return split_of(static_cast<int>(std::clamp<int64_t>(positions - 1, 0, INT32_MAX))) + 1;
}

// Bytes of the partial sums of this many rows of every kv head.
size_t partial_bytes(const OpArgs& a, int64_t rows) {
    const auto& p = a.params->as<AttentionParams>();
    return static_cast<size_t>(rows * p.n_kv_heads * splits_of(a) * (p.v_head_dim + 2)) * sizeof(float);
}

// Tiles of `height` query rows, at least as many as find_tile() finds.
int64_t most_tiles(const OpArgs& a, const AttentionArgs& args, int height) {
    const int64_t sequences = a.in[3].rows, rows = a.in[0].rows * args.group;
    const bool one_each = args.cover == Cover::narrow || rows == sequences * args.group;
    return one_each && args.group <= height ? sequences
           : sequences == 1                 ? ceil_div(rows, int64_t{height})
                                            : rows / height + sequences;
}

// Divides the context of each of `tiles` of `height` rows among `walkers` blocks per kv head, if it has so
// many splits and there is memory for what these leave. Blocks that make few rows join them: those of many
// would take longer than another kernel.
void plan_walkers(const Exec& e, const OpArgs& a, int64_t tiles, int height, int64_t walkers, bool joins,
                  std::span<std::byte> scratch, AttentionArgs& args) {
    const int64_t sequences = a.in[3].rows, rows = a.in[0].rows * args.group, heads = args.p.n_kv_heads;
    const size_t bytes = partial_bytes(a, args.cover == Cover::all ? rows : tiles * height);
    args.walkers = static_cast<int>(std::clamp<int64_t>(walkers, 1, args.splits));
    if (bytes > scratch.size()) args.walkers = 1;
    if (args.walkers == 1) return;
    const int64_t counted = (rows / height + sequences) * heads;
    if (joins && counted <= attention_counters) args.counters = e.counters;
    const auto v_head_dim = static_cast<size_t>(args.p.v_head_dim);
    args.partial = reinterpret_cast<float*>(scratch.data());
    args.partial_sums = args.partial + bytes / sizeof(float) / (v_head_dim + 2) * v_head_dim;
}

// The kernel for `dim` columns of values joins what blocks have left that do not join it themselves.
template <int dim, class Kernel, class Args>
void launch_walkers(const Exec& e, const Kernel& kernel, int64_t tiles, int height, size_t shared,
                    const Args& args) {
    const int32_t heads = args.p.n_kv_heads;
    launch(kernel, Dims{tiles, heads, args.walkers, 128, shared}, *e.stream, args);
    if (args.walkers > 1 && !args.counters)
        launch(join_kernel<dim>, Dims{tiles, heads, height / 4, 128}, *e.stream, AttentionArgs(args), height);
}
