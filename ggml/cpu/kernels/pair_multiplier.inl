// What multiplies blocks of pairs of bf16: one row at a time or, where an instruction multiplies two rows by
// two, two at a time. Both add a row's products in the same order, with the same bits.
template <class P, int rows_at_once = dot_rows>
struct PairMultiplier : FmaMultiplier<P> {};

template <class P>
struct PairMultiplier<P, 2> {
    static constexpr int64_t most_depth = FmaMultiplier<P>::most_depth;
    static constexpr int most_rows = 8, most_vecs = 2;

    // As fma_block().
    void block(int64_t m, int64_t cols, const int32_t* x, int64_t ldx, const int32_t* w, Steps steps,
               int64_t k, float* c, int64_t ldc, bool from_zero) const {
        int64_t at = 0;
        const auto columns = [&]<int V>() {
            for (; at + V * lanes <= cols; at += V * lanes)
                for (int64_t r = 0; r < m; r += most_rows)
                    rows<most_rows, V>(m - r < most_rows ? m - r : most_rows, x + r * ldx, ldx,
                                       w + at / lanes * steps.vector, steps, k, c + r * ldc + at, ldc,
                                       from_zero);
        };
        columns.template operator()<most_vecs>();
        columns.template operator()<1>();
    }

  private:
    // n <= R rows.
    template <int R, int V>
    static void rows(int64_t n, const int32_t* x, int64_t ldx, const int32_t* w, Steps steps, int64_t k,
                     float* c, int64_t ldc, bool from_zero) {
        if (n == R) return tile<R, V>(x, ldx, w, steps, k, c, ldc, from_zero);
        if constexpr (R > 1) rows<R - 1, V>(n, x, ldx, w, steps, k, c, ldc, from_zero);
    }
    template <int R, int V>
    static void tile(const int32_t* x, int64_t ldx, const int32_t* w, Steps steps, int64_t k, float* c,
                     int64_t ldc, bool from_zero) {
        F acc[R + R % 2][V];
        load_pairs<R>(c, ldc, from_zero, acc);
        int64_t i = 0;
        const auto multiply = [&]<bool both>() __attribute__((always_inline)) {
            typename P::Weights pairs[V];
#pragma GCC unroll 4
            for (int v = 0; v < V; ++v)
                pairs[v] = P::weights(load_i(w + v * steps.vector),
                                      both ? load_i(w + v * steps.vector + steps.row) : set1_i(0));
#pragma GCC unroll 4
            for (int r = 0; r < R; r += 2) {
                const int32_t *first = x + r * ldx, *second = r + 1 < R ? first + ldx : first;
                const I two =
                    both ? P::load_rows(first, second)
                         : P::weights(low_pairs(P::broadcast(first), P::broadcast(second)), set1_i(0)).low;
#pragma GCC unroll 4
                for (int v = 0; v < V; ++v) P::multiply_rows(acc[r][v], acc[r + 1][v], pairs[v], two);
            }
        };
        for (; i + 2 <= k; i += 2, w += 2 * steps.row, x += 2) multiply.template operator()<true>();
        if (i < k) multiply.template operator()<false>();
        store_pairs<R>(c, ldc, acc);
    }
};

struct Pairs::Multiplier : PairMultiplier<Pairs> {};
