// SIMD vocabulary of AVX2 + FMA + F16C: 8 lanes of f32.
// Included inside a target region and a namespace; see isa/avx2.cpp. Names are those of every vocabulary.
using F = __m256;
using I = __m256i;
constexpr int lanes = 8;
constexpr int tile_rows = 6, tile_vecs = 2;  // float tile: 12 accumulators of 16 registers
constexpr int64_t stream_rows = 4;           // activation rows of a streamed or integer tile
constexpr int64_t most_streams = 4;          // of codes at once, where memory wants several
constexpr bool loads_in_pairs = false;
using ByteOps = void;  // nothing that takes bytes by themselves

inline __m256i first_lanes(int64_t n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)),
                              _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

inline F zero() { return _mm256_setzero_ps(); }
inline F set1(float x) { return _mm256_set1_ps(x); }
inline F load(const float* p) { return _mm256_loadu_ps(p); }
inline F load_n(const float* p, int64_t n) {
    return n >= lanes ? load(p) : _mm256_maskload_ps(p, first_lanes(n));
}
inline void store(float* p, F v) { _mm256_storeu_ps(p, v); }
// AMD's processors up to Zen 3 make some forty operations of a masked store.
inline void store_n(float* p, F v, int64_t n) {
    if (n >= lanes) return store(p, v);
    _mm256_maskstore_ps(p, first_lanes(n), v);
}
inline F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
inline F max(F a, F b) { return _mm256_max_ps(a, b); }  // b when one is a NaN
inline F min(F a, F b) { return _mm256_min_ps(a, b); }
inline F abs(F a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
inline F round(F a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
inline F power_of_two(I n) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}
// a * 2^n in two exact steps, so that n may lie beyond the exponents of normal numbers.
inline F scale_by_power(F a, F n) {
    const I whole = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(whole, 1);
    return a * power_of_two(half) * power_of_two(_mm256_sub_epi32(whole, half));
}
// a * 2^n where 2^n is a normal number.
inline F scale_by_normal_power(F a, F n) { return a * power_of_two(_mm256_cvtps_epi32(n)); }
inline float sum(F v) {
    const __m128 b = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}
inline float max_of(F v) {
    const __m128 b = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    const __m128 c = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(c, _mm_movehdup_ps(c)));
}

inline F load_f16(const uint16_t* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
inline F load_bf16(const uint16_t* p) {
    const __m128i h = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}
inline float one_f16(const void* p) {
    short h;
    std::memcpy(&h, p, 2);
    return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(h)));
}
inline I load_u8(const void* p) {  // one byte per lane
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64(static_cast<const __m128i*>(p)));
}
inline I load_s8_words(const void* p) {  // two of each lane
    return _mm256_cvtepi8_epi16(_mm_loadu_si128(static_cast<const __m128i*>(p)));
}
inline I load_s8(const void* p) {
    return _mm256_cvtepi8_epi32(_mm_loadl_epi64(static_cast<const __m128i*>(p)));
}
inline void store_f16(uint16_t* p, F v) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}

inline I load_i(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
inline void store_i(void* p, I v) { _mm256_storeu_si256(static_cast<__m256i*>(p), v); }
inline I set1_i(int32_t x) { return _mm256_set1_epi32(x); }
inline I load1_i(const int32_t* p) { return set1_i(*p); }
inline I add_i(I a, I b) { return _mm256_add_epi32(a, b); }
inline I mul_i16(I a, I b) { return _mm256_mullo_epi16(a, b); }
inline I dot_i16(I a, I b) { return _mm256_madd_epi16(a, b); }  // of the two words of each lane
inline I set1_i8(int x) { return _mm256_set1_epi8(static_cast<char>(x)); }
inline I sub_i8(I a, int n) { return _mm256_sub_epi8(a, set1_i8(n)); }
inline I and_i(I a, I b) { return _mm256_and_si256(a, b); }
inline I or_i(I a, I b) { return _mm256_or_si256(a, b); }
inline I xor_i(I a, I b) { return _mm256_xor_si256(a, b); }
template <int n>
inline I shift_left(I v) {
    return _mm256_slli_epi32(v, n);
}
template <int n>
inline I shift_right(I v) {
    return _mm256_srli_epi32(v, n);
}
template <int n>
inline I shift_right_signed(I v) {
    return _mm256_srai_epi32(v, n);
}
inline I as_int(F v) { return _mm256_castps_si256(v); }
inline F as_float(I v) { return _mm256_castsi256_ps(v); }
inline I to_int(F v) { return _mm256_cvtps_epi32(v); }  // nearest even
inline F to_float(I v) { return _mm256_cvtepi32_ps(v); }
inline int32_t sum_i(I v) {
    const __m128i b = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    const __m128i c = _mm_add_epi32(b, _mm_shuffle_epi32(b, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(c, _mm_shuffle_epi32(c, 0xb1)));
}
inline void store_i8(int8_t* p, I v) {
    const __m128i h = _mm_packs_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packs_epi16(h, h));
}
inline F low_bf16(I pairs) { return as_float(_mm256_slli_epi32(pairs, 16)); }
inline F high_bf16(I pairs) { return as_float(_mm256_and_si256(pairs, _mm256_set1_epi32(-65536))); }

// Even and odd halves of the lanes, as one permutation that the compiler shares between the two.
inline I split_halves(I pairs) {
    const I order = _mm256_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15, 0, 1, 4, 5, 8, 9,
                                     12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
    return _mm256_permute4x64_epi64(_mm256_shuffle_epi8(pairs, order), 0xd8);
}
inline F low_f16(I pairs) { return _mm256_cvtph_ps(_mm256_castsi256_si128(split_halves(pairs))); }
inline F high_f16(I pairs) { return _mm256_cvtph_ps(_mm256_extracti128_si256(split_halves(pairs), 1)); }

// v[i] lane j <-> v[j] lane i.
inline void transpose(I (&v)[8]) {
    I r[8], s[8];
    for (int i = 0; i < 8; i += 2) {
        r[i] = _mm256_unpacklo_epi32(v[i], v[i + 1]);
        r[i + 1] = _mm256_unpackhi_epi32(v[i], v[i + 1]);
    }
    for (int g = 0; g < 8; g += 4) {  // s[g + c], half h: column 4h + c of rows g .. g+3
        s[g] = _mm256_unpacklo_epi64(r[g], r[g + 2]);
        s[g + 1] = _mm256_unpackhi_epi64(r[g], r[g + 2]);
        s[g + 2] = _mm256_unpacklo_epi64(r[g + 1], r[g + 3]);
        s[g + 3] = _mm256_unpackhi_epi64(r[g + 1], r[g + 3]);
    }
    for (int c = 0; c < 4; ++c) {
        v[c] = _mm256_permute2x128_si256(s[c], s[4 + c], 0x20);
        v[4 + c] = _mm256_permute2x128_si256(s[c], s[4 + c], 0x31);
    }
}

// Sixteen bytes, looked up by byte.
using Table16 = I;
inline Table16 load_table(const int8_t* levels, int offset) {
    const __m128i t = _mm_loadu_si128(reinterpret_cast<const __m128i*>(levels));
    return _mm256_broadcastsi128_si256(_mm_add_epi8(t, _mm_set1_epi8(static_cast<char>(offset))));
}
inline I look_up(Table16 table, I codes) { return _mm256_shuffle_epi8(table, codes); }
