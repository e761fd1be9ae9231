// The product of f32 weights that lie in rows, small matrices such as routers. A product is one sum per lane,
// over every 32nd column in order, and then warp_sum()'s: a tile of them shares what it reads, and a result's
// bits do not depend on it.

// Warps of a block beside each other, with the same rows of x; the others have further rows of x. Some of
// either, so that a block's warps read the same rows of both.
constexpr int warps_across = 4;

// A lane's values of some columns, every 32nd: of weight rows and of rows of x.
template <int weights, int columns>
struct F32Values {
    static constexpr int steps = weights == 1 ? 8 : 2;  // a lone product has nothing else to wait beside
    static constexpr int span = 32 * steps;
    float w[steps][weights], x[steps][columns];
};

// warp_sum() of n values, a power of two up to 32: lane l gets that of value l / (32 / n). Lanes exchange
// halves of what they have; a value's own sum has the order of warp_sum().
template <int n, int m = 16>
__device__ float warp_sums(const float (&v)[n]) {
    if constexpr (m == 0) {
        return v[0];
    } else if constexpr (n == 1) {
        const float sum[1] = {v[0] + shuffle_xor(v[0], m)};
        return warp_sums<1, m / 2>(sum);
    } else {
        const bool upper = (lane() & m) != 0;
        float half[n / 2];
#pragma unroll
        for (int i = 0; i < n / 2; ++i) {
            const float low = v[i], high = v[i + n / 2];
            half[i] = (upper ? +high : +low) + shuffle_xor(upper ? +low : +high, m);
        }
        return warp_sums<n / 2, m / 2>(half);
    }
}

// A warp: `weights` weight rows (block y) by `columns` rows of x (block x), of which there may be many.
template <int weights, int columns>
__global__ void __launch_bounds__(256, resident_blocks) f32_matmul_kernel(MatmulArgs a, int64_t stride) {
    using Values = F32Values<weights, columns>;
    const Segment& s = a.segment[0];
    const int64_t row = (int64_t{block_y()} * warps_across + warp_index() % warps_across) * weights;
    const int64_t column =
        (block_x() * (block_threads() / 32 / warps_across) + warp_index() / warps_across) * columns;
    // Rows that are not there are the last: nobody asks for their sums.
    const float *w[weights], *x[columns];
#pragma unroll
    for (int r = 0; r < weights; ++r) {
        const int64_t there = row + r < s.rows ? row + r : s.rows - 1;
        w[r] = reinterpret_cast<const float*>(s.data + there * stride) + lane();
    }
#pragma unroll
    for (int c = 0; c < columns; ++c)
        x[c] = a.x.row(column + c < a.x.rows ? column + c : a.x.rows - 1) + lane();
    // Pointers go along: otherwise all that made them is done again for each load. Behind the last whole span
    // they stay and it is read once more, for a condition would cost more.
    const auto load = [](auto& to, auto& rows, int step) {
#pragma unroll
        for (int r = 0; r < static_cast<int>(sizeof rows / sizeof rows[0]); ++r) {
            rows[r] += step;
#pragma unroll
            for (int i = 0; i < Values::steps; ++i) to[i][r] = rows[r][32 * i];
        }
    };
    const int whole = a.x.cols / Values::span * Values::span;
    Values now{};
    if (whole > 0)  // by the loads that are for weights alone
#pragma unroll
        for (int i = 0; i < Values::steps; ++i)
#pragma unroll
            for (int r = 0; r < weights; ++r) now.w[i][r] = bits_float(load4(w[r] + 32 * i));
    wait_for_previous();
    if (whole > 0) load(now.x, x, 0);
    float sums[weights * columns] = {};
    for (int first = 0; first < whole; first += Values::span) {
        const int step = first + Values::span < whole ? Values::span : 0;
        Values next;
        load(next.w, w, step);
        load(next.x, x, step);
#pragma unroll
        for (int i = 0; i < Values::steps; ++i)
#pragma unroll
            for (int c = 0; c < columns; ++c)
#pragma unroll
                for (int r = 0; r < weights; ++r)
                    sums[c * weights + r] = fused(now.w[i][r], now.x[i][c], sums[c * weights + r]);
        now = next;
    }
    const int behind = whole > 0 ? Values::span : 0;  // where the pointers are
    for (int i = behind; i - behind + lane() < a.x.cols - whole; i += 32)
#pragma unroll
        for (int c = 0; c < columns; ++c)
#pragma unroll
            for (int r = 0; r < weights; ++r)
                sums[c * weights + r] = fused(w[r][i], x[c][i], sums[c * weights + r]);
    const float sum = warp_sums(sums);
    constexpr int lanes = 32 / (weights * columns);
    const int which = lane() / lanes, r = which % weights, c = which / weights;
    if (lane() % lanes == 0 && row + r < s.rows && column + c < a.x.rows)
        store(a, s, row + r, column + c, sum);
}

template <int weights, int columns>
void launch_f32_tiles(const Exec& e, const MatmulArgs& a, int64_t stride, int32_t warps) {
    launch(f32_matmul_kernel<weights, columns>,
           Dims{blocks_for(a.x.rows, columns * (warps / warps_across)),
                static_cast<int32_t>(blocks_for(a.segment[0].rows, weights * warps_across)), 1, 32 * warps},
           *e.stream, a, stride);
}

// Tiles where they give the card enough warps; products one by one, in smaller blocks, where they do not.
void launch_f32(const Exec& e, const MatmulArgs& a, int64_t stride) {
    constexpr int weights = 4, columns = 8;
    const int64_t tiles = blocks_for(a.segment[0].rows, weights) * blocks_for(a.x.rows, columns);
    if (tiles < int64_t{4} * e.card->multiprocessors)
        return launch_f32_tiles<1, 1>(e, a, stride, warps_across);
    launch_f32_tiles<weights, columns>(e, a, stride, 2 * warps_across);
}
