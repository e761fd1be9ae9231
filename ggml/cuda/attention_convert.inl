// Cache rows of quantized types as f16 in shared memory, for the tile kernel of attention.
// Values are rounded to f16; those beyond its range become infinities, as in a cache of f16.

// Two halves from two of the bytes of `codes`, each 0..255, less `zero` - 1024: a code in the low bits of
// 1024.0 is its sum with 1024.
__device__ inline uint32_t halves_of_codes(uint32_t codes, uint32_t selector, uint32_t zero) {
    return half2_sub(byte_perm(codes, 0x64646464, selector), zero);
}

// The i-th eight values of a q8_0 block; `at` is any even address.
__device__ inline void convert_q8_0(const std::byte* at, int i, std::byte* to) {
    const uint32_t d = *reinterpret_cast<const uint16_t*>(at), scale = d | d << 16;
    const std::byte* const codes = at + 2 + 8 * i;
    const auto odd = static_cast<int>(reinterpret_cast<uintptr_t>(codes) & 2);
    const auto* const words = reinterpret_cast<const uint32_t*>(codes - odd);
    const uint32_t w[3] = {words[0], words[1], odd ? words[2] : 0};
    Words4 v;
    for (int j = 0; j < 2; ++j) {
        const uint32_t c = byte_perm(w[j], w[j + 1], odd ? 0x5432 : 0x3210) ^ 0x80808080;
        v.w[2 * j] = half2_mul(halves_of_codes(c, 0x4140, 0x64806480), scale);
        v.w[2 * j + 1] = half2_mul(halves_of_codes(c, 0x4342, 0x64806480), scale);
    }
    *reinterpret_cast<Words4*>(to) = v;
}

// Values 4 i .. 4 i + 3 and those 16 further of a q4_0 block.
__device__ inline void convert_q4_0(const std::byte* at, int i, std::byte* const (&to)[2]) {
    const auto* const halves = reinterpret_cast<const uint16_t*>(at);
    const uint32_t d = halves[0], scale = d | d << 16;
    const uint32_t codes = halves[1 + 2 * i] | static_cast<uint32_t>(halves[2 + 2 * i]) << 16;
    for (int high = 0; high < 2; ++high) {
        const uint32_t c = codes >> (4 * high) & 0x0f0f0f0f;
        const Words2 v{{half2_mul(halves_of_codes(c, 0x4140, 0x64086408), scale),
                        half2_mul(halves_of_codes(c, 0x4342, 0x64086408), scale)}};
        *reinterpret_cast<Words2*>(to[high]) = v;
    }
}

// Rows of one of the caches, in shared memory on both sides; rows from `filled` on become zeros.
template <class Shape, int dim>
__device__ void convert_rows(Type type, int cols, int64_t stride, const std::byte* raw, std::byte* to,
                             int filled) {
    constexpr int units = dim / 8;  // of eight values
    for (int u = thread_index(); u < Shape::keys * units; u += Shape::threads) {
        const int row = u / units, c = u % units;
        if (c * 8 >= cols) continue;
        const std::byte* const from = raw + row * stride;
        const auto out = [&](int eight) { return to + Shape::place(row, eight); };
        const int i = c % 4, block = c - i;
        if (row >= filled)
            *reinterpret_cast<Words4*>(out(c)) = Words4{};
        else if (type == Type::q8_0)
            convert_q8_0(from + c / 4 * 34, i, out(c));
        else if (type == Type::q4_0)
            convert_q4_0(from + c / 4 * 18, i,
                         {out(block + i / 2) + i % 2 * 8, out(block + 2 + i / 2) + i % 2 * 8});
        else
            *reinterpret_cast<Words4*>(out(c)) = *reinterpret_cast<const Words4*>(from + 16 * c);
    }
}

template <class Shape, int dim>
__device__ void convert_tile(const AttentionArgs& a, const std::byte* raw, std::byte* to, int filled) {
    convert_rows<Shape, dim>(a.k_type, a.p.head_dim, a.k_cache.stride, raw, to, filled);
    if constexpr (!Shape::latent)
        convert_rows<Shape, dim>(a.v_type, a.p.v_head_dim, a.v_cache.stride,
                                 raw + Shape::raw_bytes(a.k_cache.stride), to + Shape::values_at, filled);
}
