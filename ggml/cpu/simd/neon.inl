// SIMD vocabulary of NEON (Armv8-A): 4 lanes of f32, 32 registers.
// Included inside a target region and a namespace; see isa/neon.cpp. Names are those of every vocabulary.
using F = float32x4_t;
using I = int32x4_t;
constexpr int lanes = 4;
constexpr int tile_rows = 6, tile_vecs = 4;  // float tile: 24 accumulators of 32 registers
constexpr int64_t stream_rows = 8;           // activation rows of a streamed or integer tile
constexpr int64_t most_streams = 1;          // of codes at once, where memory wants several
constexpr bool loads_in_pairs = true;        // of neighbours: one instruction

inline F zero() { return vdupq_n_f32(0); }
inline F set1(float x) { return vdupq_n_f32(x); }
inline F load(const float* p) { return vld1q_f32(p); }
inline F load_n(const float* p, int64_t n) {
    if (n >= lanes) return load(p);
    float padded[lanes] = {};
    for (int i = 0; i < n; ++i) padded[i] = p[i];
    return load(padded);
}
inline void store(float* p, F v) { vst1q_f32(p, v); }
inline void store_n(float* p, F v, int64_t n) {
    if (n >= lanes) return store(p, v);
    float all[lanes];
    store(all, v);
    for (int i = 0; i < n; ++i) p[i] = all[i];
}
inline F fma(F a, F b, F c) { return vfmaq_f32(c, a, b); }
inline F max(F a, F b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }  // b when one is a NaN
inline F min(F a, F b) { return vbslq_f32(vcltq_f32(a, b), a, b); }
inline F abs(F a) { return vabsq_f32(a); }
inline F round(F a) { return vrndnq_f32(a); }
inline F power_of_two(I n) { return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(n, vdupq_n_s32(127)), 23)); }
// a * 2^n in two exact steps, so that n may lie beyond the exponents of normal numbers.
inline F scale_by_power(F a, F n) {
    const I whole = vcvtnq_s32_f32(n), half = vshrq_n_s32(whole, 1);
    return a * power_of_two(half) * power_of_two(vsubq_s32(whole, half));
}
// a * 2^n where 2^n is a normal number.
inline F scale_by_normal_power(F a, F n) { return a * power_of_two(vcvtnq_s32_f32(n)); }
inline float sum(F v) { return vaddvq_f32(v); }
inline float max_of(F v) { return vmaxvq_f32(v); }

inline F load_f16(const uint16_t* p) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }
inline F load_bf16(const uint16_t* p) { return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16)); }
inline float one_f16(const void* p) {
    uint16_t h;
    std::memcpy(&h, p, 2);
    return vgetq_lane_f32(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(h))), 0);
}
inline uint8x8_t four_bytes(const void* p) {
    uint32_t four;
    std::memcpy(&four, p, 4);
    return vcreate_u8(four);
}
inline I load_u8(const void* p) {  // one byte per lane
    return vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(vmovl_u8(four_bytes(p)))));
}
inline I load_s8_words(const void* p) {  // two of each lane
    return vreinterpretq_s32_s16(vmovl_s8(vld1_s8(static_cast<const int8_t*>(p))));
}
inline I load_s8(const void* p) {
    return vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_u8(four_bytes(p)))));
}
inline void store_f16(uint16_t* p, F v) { vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(v))); }

inline I load_i(const void* p) { return vreinterpretq_s32_u8(vld1q_u8(static_cast<const uint8_t*>(p))); }
inline void store_i(void* p, I v) { vst1q_u8(static_cast<uint8_t*>(p), vreinterpretq_u8_s32(v)); }
inline I set1_i(int32_t x) { return vdupq_n_s32(x); }
// Into all lanes. Given a number, GCC takes it through a register of integers.
inline I load1_i(const int32_t* p) {
    I v;
    asm("ld1r {%0.4s}, %1" : "=w"(v) : "Q"(*p));
    return v;
}
inline I add_i(I a, I b) { return vaddq_s32(a, b); }
inline I mul_i16(I a, I b) {
    return vreinterpretq_s32_s16(vmulq_s16(vreinterpretq_s16_s32(a), vreinterpretq_s16_s32(b)));
}
inline I dot_i16(I a, I b) {  // of the two words of each lane
    const int16x8_t x = vreinterpretq_s16_s32(a), y = vreinterpretq_s16_s32(b);
    return vpaddq_s32(vmull_s16(vget_low_s16(x), vget_low_s16(y)), vmull_high_s16(x, y));
}
inline I set1_i8(int x) { return vreinterpretq_s32_s8(vdupq_n_s8(static_cast<int8_t>(x))); }
inline I sub_i8(I a, int n) {
    return vreinterpretq_s32_s8(vsubq_s8(vreinterpretq_s8_s32(a), vreinterpretq_s8_s32(set1_i8(n))));
}
inline I and_i(I a, I b) { return vandq_s32(a, b); }
inline I or_i(I a, I b) { return vorrq_s32(a, b); }
inline I xor_i(I a, I b) { return veorq_s32(a, b); }
template <int n>
inline I shift_left(I v) {
    return vshlq_n_s32(v, n);
}
template <int n>  // n > 0
inline I shift_right(I v) {
    return vreinterpretq_s32_u32(vshrq_n_u32(vreinterpretq_u32_s32(v), n));
}
template <int n>  // n > 0
inline I shift_right_signed(I v) {
    return vshrq_n_s32(v, n);
}
struct ByteOps {
    template <int n>  // n > 0
    static I shift_right(I v) {
        return vreinterpretq_s32_u8(vshrq_n_u8(vreinterpretq_u8_s32(v), n));
    }
    template <int n>  // the uppermost n bits of a, followed by those of b; 0 < n < 8
    static I below(I a, I b) {
        return vreinterpretq_s32_u8(vsriq_n_u8(vreinterpretq_u8_s32(a), vreinterpretq_u8_s32(b), n));
    }
};
inline I as_int(F v) { return vreinterpretq_s32_f32(v); }
inline F as_float(I v) { return vreinterpretq_f32_s32(v); }
inline I to_int(F v) { return vcvtnq_s32_f32(v); }  // nearest even
inline F to_float(I v) { return vcvtq_f32_s32(v); }
inline int32_t sum_i(I v) { return vaddvq_s32(v); }
inline void store_i8(int8_t* p, I v) {
    const int16x4_t h = vqmovn_s32(v);
    const int8x8_t b = vqmovn_s16(vcombine_s16(h, h));
    const uint32_t four = vget_lane_u32(vreinterpret_u32_s8(b), 0);
    std::memcpy(p, &four, 4);
}
inline F low_bf16(I pairs) { return as_float(vshlq_n_s32(pairs, 16)); }
inline F high_bf16(I pairs) { return as_float(vandq_s32(pairs, vdupq_n_s32(-65536))); }
inline F low_f16(I pairs) {
    return vcvt_f32_f16(vreinterpret_f16_u16(vmovn_u32(vreinterpretq_u32_s32(pairs))));
}
inline F high_f16(I pairs) {
    return vcvt_f32_f16(vreinterpret_f16_u16(vshrn_n_u32(vreinterpretq_u32_s32(pairs), 16)));
}

// v[i] lane j <-> v[j] lane i.
inline void transpose(I (&v)[4]) {
    const int64x2_t even01 = vreinterpretq_s64_s32(vtrn1q_s32(v[0], v[1]));
    const int64x2_t odd01 = vreinterpretq_s64_s32(vtrn2q_s32(v[0], v[1]));
    const int64x2_t even23 = vreinterpretq_s64_s32(vtrn1q_s32(v[2], v[3]));
    const int64x2_t odd23 = vreinterpretq_s64_s32(vtrn2q_s32(v[2], v[3]));
    v[0] = vreinterpretq_s32_s64(vtrn1q_s64(even01, even23));
    v[1] = vreinterpretq_s32_s64(vtrn1q_s64(odd01, odd23));
    v[2] = vreinterpretq_s32_s64(vtrn2q_s64(even01, even23));
    v[3] = vreinterpretq_s32_s64(vtrn2q_s64(odd01, odd23));
}

// Sixteen bytes, looked up by byte.
using Table16 = int8x16_t;
inline Table16 load_table(const int8_t* levels, int offset) {
    return vaddq_s8(vld1q_s8(levels), vdupq_n_s8(static_cast<int8_t>(offset)));
}
inline I look_up(Table16 table, I codes) {
    return vreinterpretq_s32_s8(vqtbl1q_s8(table, vreinterpretq_u8_s32(codes)));
}
