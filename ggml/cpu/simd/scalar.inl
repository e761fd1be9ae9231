// SIMD vocabulary of the baseline: 4 lanes by the compiler's vector extension (SSE2, NEON or plain code).
// Without a fused multiply-add in the baseline, fma() rounds twice; everything else as in the others.
using F = float __attribute__((vector_size(16)));
using I = int32_t __attribute__((vector_size(16)));
using U = uint32_t __attribute__((vector_size(16)));
constexpr int lanes = 4;
constexpr int tile_rows = 4, tile_vecs = 2;
constexpr int int_tile_vecs = 1;
constexpr int64_t stream_rows = 2;   // activation rows of a streamed or integer tile
constexpr int64_t most_streams = 1;  // of codes at once, where memory wants several
constexpr bool loads_in_pairs = false;
using ByteOps = void;  // nothing that takes bytes by themselves

inline F set1(float x) { return F{x, x, x, x}; }
inline F zero() { return set1(0); }
inline F load(const float* p) {
    F v;
    std::memcpy(&v, p, sizeof v);
    return v;
}
inline F load_n(const float* p, int64_t n) {
    F v = zero();
    for (int i = 0; i < n; ++i) v[i] = p[i];
    return v;
}
inline void store(float* p, F v) { std::memcpy(p, &v, sizeof v); }
inline void store_n(float* p, F v, int64_t n) {
    for (int i = 0; i < n; ++i) p[i] = v[i];
}
inline I as_int(F v) { return reinterpret_cast<I>(v); }
inline F as_float(I v) { return reinterpret_cast<F>(v); }
inline F select(I mask, F a, F b) { return as_float((mask & as_int(a)) | (~mask & as_int(b))); }
inline F fma(F a, F b, F c) { return a * b + c; }
inline F max(F a, F b) { return select(a > b, a, b); }  // b when one is a NaN
inline F min(F a, F b) { return select(a < b, a, b); }
inline F abs(F a) { return as_float(as_int(a) & 0x7fffffff); }
// Nearest even for |a| < 2^22: beyond 1.5 * 2^23 the sum has no room for a fraction.
inline F round(F a) { return (a + 12582912.0f) - 12582912.0f; }
inline I to_int(F v) { return as_int(v + 12582912.0f) - 0x4b400000; }
inline F to_float(I v) { return F{float(v[0]), float(v[1]), float(v[2]), float(v[3])}; }
inline F power_of_two(I n) { return as_float((n + 127) << 23); }
// a * 2^n in two exact steps, so that n may lie beyond the exponents of normal numbers. A NaN in n comes
// with a NaN in a; clamping keeps the integers defined.
inline F scale_by_power(F a, F n) {
    const I whole = to_int(min(max(n, set1(-200)), set1(200))), half = whole >> 1;
    return a * power_of_two(half) * power_of_two(whole - half);
}
// a * 2^n where 2^n is a normal number.
inline F scale_by_normal_power(F a, F n) { return a * power_of_two(to_int(n)); }
inline float sum(F v) { return (v[0] + v[2]) + (v[1] + v[3]); }
inline float max_of(F v) {
    const float a = v[0] > v[2] ? v[0] : v[2], b = v[1] > v[3] ? v[1] : v[3];
    return a > b ? a : b;
}

// Files may hold tensors at odd addresses.
inline F load_f16(const uint16_t* p) {
    uint16_t h[lanes];
    std::memcpy(h, p, sizeof h);
    return F{f16_to_f32(h[0]), f16_to_f32(h[1]), f16_to_f32(h[2]), f16_to_f32(h[3])};
}
inline F load_bf16(const uint16_t* p) {
    uint16_t h[lanes];
    std::memcpy(h, p, sizeof h);
    return F{bf16_to_f32(h[0]), bf16_to_f32(h[1]), bf16_to_f32(h[2]), bf16_to_f32(h[3])};
}
inline float one_f16(const void* p) {
    uint16_t h;
    std::memcpy(&h, p, 2);
    return f16_to_f32(h);
}
inline I load_u8(const void* p) {  // one byte per lane
    uint8_t b[lanes];
    std::memcpy(b, p, sizeof b);
    return I{b[0], b[1], b[2], b[3]};
}
inline I load_s8_words(const void* p) {  // two of each lane
    int8_t b[2 * lanes];
    std::memcpy(b, p, sizeof b);
    int16_t words[2 * lanes];
    for (int i = 0; i < 2 * lanes; ++i) words[i] = b[i];
    I v;
    std::memcpy(&v, words, sizeof v);
    return v;
}
inline I load_s8(const void* p) {
    int8_t b[lanes];
    std::memcpy(b, p, sizeof b);
    return I{b[0], b[1], b[2], b[3]};
}
inline void store_f16(uint16_t* p, F v) {
    for (int i = 0; i < lanes; ++i) p[i] = f32_to_f16(v[i]);
}

inline I load_i(const void* p) {
    I v;
    std::memcpy(&v, p, sizeof v);
    return v;
}
inline void store_i(void* p, I v) { std::memcpy(p, &v, sizeof v); }
inline I set1_i(int32_t x) { return I{x, x, x, x}; }
inline I load1_i(const int32_t* p) { return set1_i(*p); }
inline I set1_i8(int x) { return set1_i(static_cast<int32_t>(0x01010101u * static_cast<uint8_t>(x))); }
inline I add_i(I a, I b) { return a + b; }
inline I mul_i16(I a, I b) {
    using Words = uint16_t __attribute__((vector_size(16)));
    return reinterpret_cast<I>(reinterpret_cast<Words>(a) * reinterpret_cast<Words>(b));
}
inline I low_i16(I v) { return reinterpret_cast<I>(reinterpret_cast<U>(v) << 16) >> 16; }
inline I dot_i16(I a, I b) {  // of the two words of each lane
    return low_i16(a) * low_i16(b) + (a >> 16) * (b >> 16);
}
inline I sub_i8(I a, int n) {
    using Bytes = uint8_t __attribute__((vector_size(16)));
    return reinterpret_cast<I>(reinterpret_cast<Bytes>(a) - reinterpret_cast<Bytes>(set1_i8(n)));
}
inline I and_i(I a, I b) { return a & b; }
inline I or_i(I a, I b) { return a | b; }
inline I xor_i(I a, I b) { return a ^ b; }
template <int n>
inline I shift_left(I v) {
    return reinterpret_cast<I>(reinterpret_cast<U>(v) << n);
}
template <int n>
inline I shift_right(I v) {
    return reinterpret_cast<I>(reinterpret_cast<U>(v) >> n);
}
template <int n>
inline I shift_right_signed(I v) {
    return v >> n;
}
inline int32_t sum_i(I v) { return v[0] + v[1] + v[2] + v[3]; }
inline void store_i8(int8_t* p, I v) {
    for (int i = 0; i < lanes; ++i) p[i] = static_cast<int8_t>(v[i] < -128 ? -128 : v[i] > 127 ? 127 : v[i]);
}
inline F low_bf16(I pairs) { return as_float(reinterpret_cast<I>(reinterpret_cast<U>(pairs) << 16)); }
inline F high_bf16(I pairs) { return as_float(pairs & static_cast<int32_t>(0xffff0000)); }

inline F low_f16(I pairs) {
    F v;
    for (int i = 0; i < lanes; ++i) v[i] = f16_to_f32(static_cast<uint16_t>(pairs[i]));
    return v;
}
inline F high_f16(I pairs) { return low_f16(pairs >> 16); }

// v[i] lane j <-> v[j] lane i.
inline void transpose(I (&v)[4]) {
    for (int i = 0; i < 4; ++i)
        for (int j = 0; j < i; ++j) {
            const int32_t t = v[i][j];
            v[i][j] = v[j][i];
            v[j][i] = t;
        }
}

// Sixteen bytes, looked up by byte.
struct Table16 {
    int8_t v[16];
};
inline Table16 load_table(const int8_t* levels, int) {
    Table16 t;
    std::memcpy(t.v, levels, sizeof t.v);
    return t;
}
inline I look_up(const Table16& table, I codes) {
    uint8_t c[16];
    std::memcpy(c, &codes, sizeof c);
    for (uint8_t& x : c) x = static_cast<uint8_t>(table.v[x & 15]);
    return load_i(c);
}

// Products of int8 quadruples.
struct Weights {
    I w;
};
constexpr int32_t weight_offset = 0;
constexpr bool short_sums = false;
constexpr bool word_sums = false;
constexpr bool widening_multiplies = false;
constexpr bool dots_by_quad = false;
constexpr int dot_rows = 1;
inline Weights unsigned_weights(I w) { return {w}; }
inline Weights signed_weights(I w) { return {w}; }
// Byte b of each lane, sign-extended.
template <int b>
inline I byte_of(I v) {
    return reinterpret_cast<I>(reinterpret_cast<U>(v) << (24 - 8 * b)) >> 24;
}
inline I dot(I acc, const Weights& w, I x) {
    return acc + byte_of<0>(w.w) * byte_of<0>(x) + byte_of<1>(w.w) * byte_of<1>(x) +
           byte_of<2>(w.w) * byte_of<2>(x) + byte_of<3>(w.w) * byte_of<3>(x);
}
