// The instructions of simd/amx_ops.inl in plain C++, for tests on processors without them; behind
// avx512_ops.inl. Registers are bytes in the shapes of the configuration, as in the Intel SDM: volume 1,
// chapter 18, and the instructions' pages in volume 2. Integers are exact, floats are added in the order of
// the manual.

// A processor would raise an exception here.
inline void must_hold(bool condition) {
    if (!condition) std::abort();
}

class TileUnitOfThread {
  public:
    static TileUnitOfThread& get() {
        thread_local TileUnitOfThread unit;
        return unit;
    }

    void configure(const uint8_t* config) {
        must_hold(config[0] == 1);  // palette
        for (int t = 0; t < 8; ++t) {
            uint16_t bytes = 0;
            std::memcpy(&bytes, config + 16 + 2 * t, sizeof bytes);
            Tile& tile = tiles_[t];
            tile.rows = config[48 + t];
            tile.row_bytes = bytes;
            must_hold(tile.rows <= 16 && tile.row_bytes <= 64 && tile.row_bytes % 4 == 0);
            std::memset(tile.data, 0, sizeof tile.data);
        }
    }
    void release() {
        for (Tile& tile : tiles_) tile.rows = 0;
    }
    // Not inlined, from here on: it is less to compile.
    [[gnu::noinline]] void zero(int t) { std::memset(configured(t).data, 0, sizeof tiles_[t].data); }
    [[gnu::noinline]] void load(int t, const std::byte* from, int64_t stride) {
        zero(t);
        for (int r = 0; r < tiles_[t].rows; ++r)
            std::memcpy(tiles_[t].data[r], from + r * stride, static_cast<size_t>(tiles_[t].row_bytes));
    }
    [[gnu::noinline]] void store(int t, std::byte* to, int64_t stride) {
        for (int r = 0; r < configured(t).rows; ++r)
            std::memcpy(to + r * stride, tiles_[t].data[r], static_cast<size_t>(tiles_[t].row_bytes));
    }

    // Even and odd columns are two chains of fused operations, added to each other and then to the sum;
    // numbers below the normal ones count as zero, on the way in and out. Eight columns of the sum at a time;
    // behind the row's last they are zeros, and stay so.
    [[gnu::noinline]] void dot_bf16(int sum, int a, int b) {
        must_match(sum, a, b);
        for (int r = 0; r < tiles_[sum].rows; ++r)
            for (int n = 0; n < tiles_[sum].row_bytes / 4; n += 8) {
                __m256 first = _mm256_setzero_ps(), second = first;
                for (int k = 0; k < tiles_[b].rows; ++k) {
                    const __m256i x = _mm256_set1_epi32(at<int32_t>(a, r, k)), y = at<__m256i>(b, k, n);
                    first = add_products<false>(first, x, y);
                    second = add_products<true>(second, x, y);
                }
                put(sum, r, n, normal(normal(at<__m256>(sum, r, n)) + normal(first + second)));
            }
    }
    [[gnu::noinline]] void dot_int8(int sum, int a, int b) {
        must_match(sum, a, b);
        for (int r = 0; r < tiles_[sum].rows; ++r)
            for (int n = 0; n < tiles_[sum].row_bytes / 4; ++n) {
                int32_t total = at<int32_t>(sum, r, n);
                for (int k = 0; k < 4 * tiles_[b].rows; ++k)
                    total += at<int8_t>(a, r, k) * at<int8_t>(b, k / 4, 4 * n + k % 4);
                put(sum, r, n, total);
            }
    }

  private:
    struct Tile {
        int rows = 0, row_bytes = 0;
        std::byte data[16][64];
    };

    // A tile without rows is one that the configuration does not have.
    Tile& configured(int t) {
        must_hold(tiles_[t].rows > 0);
        return tiles_[t];
    }
    // A number of a row, or what begins with the row's i-th four bytes.
    template <class T>
    static int offset(int i) {
        return i * static_cast<int>(sizeof(T) < 4 ? sizeof(T) : 4);
    }
    template <class T>
    T at(int t, int row, int i) const {
        T value;
        std::memcpy(&value, tiles_[t].data[row] + offset<T>(i), sizeof value);
        return value;
    }
    template <class T>
    void put(int t, int row, int i, T value) {
        std::memcpy(tiles_[t].data[row] + offset<T>(i), &value, sizeof value);
    }
    void must_match(int sum, int a, int b) {
        must_hold(sum != a && sum != b && a != b);
        must_hold(configured(sum).rows == configured(a).rows && tiles_[sum].row_bytes == tiles_[b].row_bytes);
        must_hold(tiles_[a].row_bytes == 4 * configured(b).rows);
    }

    Tile tiles_[8];
};

inline void tile_configure(const void* config) {
    TileUnitOfThread::get().configure(static_cast<const uint8_t*>(config));
}
inline void tile_release() { TileUnitOfThread::get().release(); }

template <int tile>
inline void tile_zero() {
    TileUnitOfThread::get().zero(tile);
}
template <int tile, int at = 0>
inline void tile_load(const void* from, int64_t stride) {
    TileUnitOfThread::get().load(tile, static_cast<const std::byte*>(from) + at, stride);
}
template <int tile, int at = 0>
inline void tile_store(void* to, int64_t stride) {
    TileUnitOfThread::get().store(tile, static_cast<std::byte*>(to) + at, stride);
}
template <int sum, int a, int b>
inline void tile_dot_bf16() {
    TileUnitOfThread::get().dot_bf16(sum, a, b);
}
template <int sum, int a, int b>
inline void tile_dot_int8() {
    TileUnitOfThread::get().dot_int8(sum, a, b);
}

inline void store_past_cache(float* p, F v) {
    must_hold(reinterpret_cast<uintptr_t>(p) % 64 == 0);
    store(p, v);
}
inline void await_stores() {}
