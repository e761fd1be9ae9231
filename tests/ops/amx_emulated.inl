// The tile operations of simd/amx.inl in plain C++, for tests on processors without them.
// Exact: integers have one result, and floats are added in the order of the manual. Registers are kept as
// bytes, so that the layout of a tile is what is tested.
template <int K>
class Tiles {
  public:
    void configure(int rows) { rows_ = rows; }

    template <int A>
    void multiply(const int8_t* const (&x)[A], const std::byte* w, int64_t w_step) {
        std::memset(sums_, 0x5a, sizeof sums_);  // of those asked for nothing remains
        for (int a = 0; a < A; ++a)
            for (int v = 0; v < 2; ++v) multiply(x[a], w + v * w_step, sums_[a * 2 + v]);
    }

    template <int A>
    void store(int32_t* out, int64_t step) const {
        for (int i = 0; i < A * 2; ++i)
            for (int r = 0; r < rows_; ++r) std::memcpy(out + i * step + r * lanes, sums_[i][r], lanes * 4);
    }

  private:
    void multiply(const int8_t* x, const std::byte* w, int32_t (&sums)[16][lanes]) const {
        int8_t a[16][K];
        int8_t b[K / 4][lanes * 4];
        for (int r = 0; r < rows_; ++r) std::memcpy(a[r], x + r * int8_block, K);
        for (int i = 0; i < K / 4; ++i) std::memcpy(b[i], w + i * lanes * 4, sizeof b[i]);
        for (int r = 0; r < rows_; ++r)
            for (int column = 0; column < lanes; ++column) {
                int32_t total = 0;
                for (int k = 0; k < K; ++k) total += int32_t{a[r][k]} * b[k / 4][4 * column + k % 4];
                sums[r][column] = total;
            }
    }

    int rows_ = 0;
    int32_t sums_[4][16][lanes];
};

// TDPBF16PS of the Intel SDM, volume 2: even and odd columns are two chains of fused operations, added to
// each other and then to the sum; numbers below the normal ones count as zero, on the way in and out.
class Bf16Tiles {
  public:
    static constexpr int rows = 16, columns = 32, groups = 4;
    static constexpr int64_t weight_bytes = columns * 2 * lanes;

    void configure(int n) { rows_ = n; }

    template <int V>
    void zero() {
        for (auto& sum : sums_) std::memset(sum, 0xff, sizeof sum);  // NaNs, but for those asked for
        std::memset(sums_, 0, V * sizeof sums_[0]);
    }

    void load_rows(const uint16_t* high, const uint16_t* low, int64_t stride) {
        for (int r = 0; r < rows_; ++r) {
            std::memcpy(parts_[0][r], reinterpret_cast<const std::byte*>(high) + r * stride, columns * 2);
            std::memcpy(parts_[1][r], reinterpret_cast<const std::byte*>(low) + r * stride, columns * 2);
        }
    }

    template <int v>
    void multiply(const std::byte* w) {
        uint16_t b[columns / 2][2 * lanes];
        std::memcpy(b, w, sizeof b);
        for (const auto& part : parts_)
            for (int r = 0; r < rows_; ++r)
                for (int n = 0; n < lanes; ++n) {
                    float chain[2] = {0, 0};
                    for (int k = 0; k < columns; ++k)
                        chain[k % 2] =
                            normal(std::fma(value(part[r][k]), value(b[k / 2][2 * n + k % 2]), chain[k % 2]));
                    sums_[v][r][n] = normal(sums_[v][r][n] + normal(chain[0] + chain[1]));
                }
    }

    template <int V>
    void store(float* c, int64_t stride) const {
        for (int v = 0; v < V; ++v)
            for (int r = 0; r < rows_; ++r) std::memcpy(c + r * stride + v * lanes, sums_[v][r], lanes * 4);
    }

  private:
    static float normal(float x) { return std::fabs(x) < std::numeric_limits<float>::min() ? 0 * x : x; }
    static float value(uint16_t bf16) { return normal(bf16_to_f32(bf16)); }

    int rows_ = 0;
    uint16_t parts_[2][rows][columns];
    float sums_[groups][rows][lanes];
};
