// The tile operations of simd/amx.inl in plain C++, for tests on processors without them.
// Exact: integers have one result. Registers are kept as bytes, so that the layout of a tile is what is
// tested.
template <int K>
class Tiles {
  public:
    void configure(int rows) { rows_ = rows; }

    template <int set>
    void multiply(const int8_t* x, const std::byte* w, int32_t* out) const {
        int8_t a[16][K];
        int8_t b[K / 4][lanes * 4];
        for (int r = 0; r < rows_; ++r) std::memcpy(a[r], x + r * int8_block, K);
        for (int i = 0; i < K / 4; ++i) std::memcpy(b[i], w + i * lanes * 4, sizeof b[i]);
        for (int r = 0; r < rows_; ++r)
            for (int column = 0; column < lanes; ++column) {
                int32_t total = 0;
                for (int k = 0; k < K; ++k) total += int32_t{a[r][k]} * b[k / 4][4 * column + k % 4];
                out[r * lanes + column] = total;
            }
    }

  private:
    int rows_ = 0;
};
