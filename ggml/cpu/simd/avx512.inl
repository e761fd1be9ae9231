// SIMD vocabulary of AVX-512 (F, BW, VL, DQ): 16 lanes of f32.
// Included inside a target region and a namespace; see isa/avx512.cpp. Names are those of every vocabulary.
using F = __m512;
using I = __m512i;
constexpr int lanes = 16;
constexpr int tile_rows = 6, tile_vecs = 4;  // float tile: 24 accumulators of 32 registers
constexpr int64_t stream_rows = 8;           // activation rows of a streamed or integer tile
constexpr int64_t most_streams = 4;          // of codes at once, where memory wants several
constexpr bool loads_in_pairs = false;
using ByteOps = void;  // nothing that takes bytes by themselves

inline __mmask16 first_lanes(int64_t n) { return static_cast<__mmask16>((1u << n) - 1); }

inline F zero() { return _mm512_setzero_ps(); }
inline F set1(float x) { return _mm512_set1_ps(x); }
inline F load(const float* p) { return _mm512_loadu_ps(p); }
inline F load_n(const float* p, int64_t n) { return _mm512_maskz_loadu_ps(first_lanes(n), p); }
inline void store(float* p, F v) { _mm512_storeu_ps(p, v); }
inline void store_n(float* p, F v, int64_t n) { _mm512_mask_storeu_ps(p, first_lanes(n), v); }
inline F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
inline F max(F a, F b) { return _mm512_max_ps(a, b); }  // b when one is a NaN
inline F min(F a, F b) { return _mm512_min_ps(a, b); }
inline F abs(F a) { return _mm512_abs_ps(a); }
inline F round(F a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
inline F scale_by_power(F a, F n) { return _mm512_scalef_ps(a, n); }
inline F scale_by_normal_power(F a, F n) { return scale_by_power(a, n); }
inline float sum(F v) {
    const __m256 a = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}
inline float max_of(F v) { return _mm512_reduce_max_ps(v); }

inline F load_f16(const uint16_t* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline F load_bf16(const uint16_t* p) {
    const __m256i h = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}
inline float one_f16(const void* p) {
    short h;
    std::memcpy(&h, p, 2);
    return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(h)));
}
inline I load_u8(const void* p) {  // one byte per lane
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p)));
}
inline I load_s8_words(const void* p) {  // two of each lane
    return _mm512_cvtepi8_epi16(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
}
inline I load_s8(const void* p) {
    return _mm512_cvtepi8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p)));
}
inline void store_f16(uint16_t* p, F v) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}

inline I load_i(const void* p) { return _mm512_loadu_si512(p); }
inline void store_i(void* p, I v) { _mm512_storeu_si512(p, v); }
inline I set1_i(int32_t x) { return _mm512_set1_epi32(x); }
inline I load1_i(const int32_t* p) { return set1_i(*p); }
inline I add_i(I a, I b) { return _mm512_add_epi32(a, b); }
inline I mul_i16(I a, I b) { return _mm512_mullo_epi16(a, b); }
inline I dot_i16(I a, I b) { return _mm512_madd_epi16(a, b); }  // of the two words of each lane
inline I set1_i8(int x) { return _mm512_set1_epi8(static_cast<char>(x)); }
inline I sub_i8(I a, int n) { return _mm512_sub_epi8(a, set1_i8(n)); }
inline I and_i(I a, I b) { return _mm512_and_si512(a, b); }
inline I or_i(I a, I b) { return _mm512_or_si512(a, b); }
inline I xor_i(I a, I b) { return _mm512_xor_si512(a, b); }
template <int n>
inline I shift_left(I v) {
    return _mm512_slli_epi32(v, n);
}
template <int n>
inline I shift_right(I v) {
    return _mm512_srli_epi32(v, n);
}
template <int n>
inline I shift_right_signed(I v) {
    return _mm512_srai_epi32(v, n);
}
inline I as_int(F v) { return _mm512_castps_si512(v); }
inline F as_float(I v) { return _mm512_castsi512_ps(v); }
inline I to_int(F v) { return _mm512_cvtps_epi32(v); }  // nearest even
inline F to_float(I v) { return _mm512_cvtepi32_ps(v); }
inline int32_t sum_i(I v) { return _mm512_reduce_add_epi32(v); }
inline void store_i8(int8_t* p, I v) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtsepi32_epi8(v));
}
inline F low_bf16(I pairs) { return as_float(_mm512_slli_epi32(pairs, 16)); }
inline F high_bf16(I pairs) { return as_float(_mm512_and_si512(pairs, _mm512_set1_epi32(-65536))); }

// Even and odd halves of the lanes, as one permutation that the compiler shares between the two.
inline __m512i split_halves(I pairs) {
    const I order = _mm512_set_epi16(31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1, 30, 28, 26,
                                     24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    return _mm512_permutexvar_epi16(order, pairs);
}
inline F low_f16(I pairs) { return _mm512_cvtph_ps(_mm512_castsi512_si256(split_halves(pairs))); }
inline F high_f16(I pairs) { return _mm512_cvtph_ps(_mm512_extracti64x4_epi64(split_halves(pairs), 1)); }

// v[i] lane j <-> v[j] lane i.
inline void transpose(I (&v)[16]) {
    I r[16], s[16];
    for (int i = 0; i < 16; i += 2) {
        r[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
        r[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
    }
    for (int g = 0; g < 16; g += 4) {  // s[g + c], quarter q: column 4q + c of rows g .. g+3
        s[g] = _mm512_unpacklo_epi64(r[g], r[g + 2]);
        s[g + 1] = _mm512_unpackhi_epi64(r[g], r[g + 2]);
        s[g + 2] = _mm512_unpacklo_epi64(r[g + 1], r[g + 3]);
        s[g + 3] = _mm512_unpackhi_epi64(r[g + 1], r[g + 3]);
    }
    for (int c = 0; c < 4; ++c) {
        const I even01 = _mm512_shuffle_i32x4(s[c], s[4 + c], 0x88);
        const I odd01 = _mm512_shuffle_i32x4(s[c], s[4 + c], 0xdd);
        const I even23 = _mm512_shuffle_i32x4(s[8 + c], s[12 + c], 0x88);
        const I odd23 = _mm512_shuffle_i32x4(s[8 + c], s[12 + c], 0xdd);
        v[c] = _mm512_shuffle_i32x4(even01, even23, 0x88);
        v[4 + c] = _mm512_shuffle_i32x4(odd01, odd23, 0x88);
        v[8 + c] = _mm512_shuffle_i32x4(even01, even23, 0xdd);
        v[12 + c] = _mm512_shuffle_i32x4(odd01, odd23, 0xdd);
    }
}

// Sixteen bytes, looked up by byte.
using Table16 = I;
inline Table16 load_table(const int8_t* levels, int offset) {
    const __m128i t = _mm_loadu_si128(reinterpret_cast<const __m128i*>(levels));
    return _mm512_broadcast_i32x4(_mm_add_epi8(t, _mm_set1_epi8(static_cast<char>(offset))));
}
inline I look_up(Table16 table, I codes) { return _mm512_shuffle_epi8(table, codes); }
