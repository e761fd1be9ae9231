// The intrinsics of AVX-512 that simd/avx512*.inl and simd/vnni512_dot.inl use, each as two of AVX2 or in
// plain C++, for tests on processors without them. Names found in this namespace come before those of
// immintrin.h. Source: Intel SDM volume 2, and its Intrinsics Guide.

// Compilers have some of these as macros, because an operand must be a constant.
#undef _mm512_cvtps_ph
#undef _mm512_extractf32x8_ps
#undef _mm512_extracti64x4_epi64
#undef _mm512_roundscale_ps
#undef _mm512_shuffle_i32x4
#undef _mm512_slli_epi32
#undef _mm512_srai_epi32
#undef _mm512_srli_epi32
#undef _mm256_mask_storeu_epi16

// What takes many instructions is not inlined: the kernels, which are unrolled, would become too much for the
// compiler.

// `To` with the bits of `from`.
template <class To, class From>
inline To bits_as(const From& from) {
    static_assert(sizeof(To) == sizeof(From));
    To to;
    std::memcpy(&to, &from, sizeof to);
    return to;
}

// Vectors of 512 bits are pairs of those of 256, which have registers.
struct __m512 {
    __m256 half[2];
};
struct __m512i {
    __m256i half[2];
};
using __m512bh = __m512i;
using __m256bh = __m256i;
inline __m512 join(__m256 low, __m256 high) { return {{low, high}}; }
inline __m512i join(__m256i low, __m256i high) { return {{low, high}}; }
template <class Op, class... Args>
inline __m512 by_floats(Op op, Args... args) {
    return join(op(args.half[0]...), op(args.half[1]...));
}
template <class Op, class... Args>
inline __m512i by_integers(Op op, Args... args) {
    return join(op(args.half[0]...), op(args.half[1]...));
}
// The numbers T of a vector, one by one.
template <class T>
struct Lanes {
    T lane[64 / sizeof(T)];
};
template <class T, class Op, class V, class... Args>
inline V by_lanes(Op op, V first, Args... args) {
    Lanes<T> out;
    for (size_t i = 0; i < 64 / sizeof(T); ++i)
        out.lane[i] = op(bits_as<Lanes<T>>(first).lane[i], bits_as<Lanes<T>>(args).lane[i]...);
    return bits_as<V>(out);
}

inline __m512 _mm512_loadu_ps(const void* p) {
    __m512 v;
    std::memcpy(&v, p, sizeof v);
    return v;
}
inline __m512i _mm512_loadu_si512(const void* p) {
    __m512i v;
    std::memcpy(&v, p, sizeof v);
    return v;
}
inline void _mm512_storeu_ps(void* p, __m512 v) { std::memcpy(p, &v, sizeof v); }
inline void _mm512_storeu_si512(void* p, __m512i v) { std::memcpy(p, &v, sizeof v); }
[[gnu::noinline]] inline __m512 _mm512_maskz_loadu_ps(__mmask16 mask, const float* p) {
    Lanes<float> out{};
    for (int i = 0; i < 16; ++i)
        if (mask >> i & 1) out.lane[i] = p[i];
    return bits_as<__m512>(out);
}
[[gnu::noinline]] inline void _mm512_mask_storeu_ps(float* p, __mmask16 mask, __m512 v) {
    for (int i = 0; i < 16; ++i)
        if (mask >> i & 1) p[i] = bits_as<Lanes<float>>(v).lane[i];
}
[[gnu::noinline]] inline void _mm256_mask_storeu_epi16(uint16_t* p, __mmask16 mask, __m256i v) {
    uint16_t words[16];
    std::memcpy(words, &v, sizeof words);
    for (int i = 0; i < 16; ++i)
        if (mask >> i & 1) p[i] = words[i];
}

inline __m512 _mm512_set1_ps(float x) { return join(_mm256_set1_ps(x), _mm256_set1_ps(x)); }
inline __m512i twice(__m256i half) { return join(half, half); }
inline __m512i _mm512_set1_epi32(int32_t x) { return twice(_mm256_set1_epi32(x)); }
inline __m512i _mm512_set1_epi16(int16_t x) { return twice(_mm256_set1_epi16(x)); }
inline __m512i _mm512_set1_epi8(char x) { return twice(_mm256_set1_epi8(x)); }
inline __m512 _mm512_setzero_ps() { return _mm512_set1_ps(0); }
inline __m512i _mm512_setzero_si512() { return _mm512_set1_epi32(0); }
inline __m512i _mm512_broadcast_i32x4(__m128i x) { return twice(_mm256_broadcastsi128_si256(x)); }
template <class... Words>
inline __m512i _mm512_set_epi16(Words... from_the_highest) {
    static_assert(sizeof...(Words) == 32);
    const int16_t words[] = {static_cast<int16_t>(from_the_highest)...};
    Lanes<int16_t> out;
    for (int i = 0; i < 32; ++i) out.lane[i] = words[31 - i];
    return bits_as<__m512i>(out);
}

inline __m512i _mm512_castps_si512(__m512 v) { return bits_as<__m512i>(v); }
inline __m512 _mm512_castsi512_ps(__m512i v) { return bits_as<__m512>(v); }
inline __m256 _mm512_extractf32x8_ps(__m512 v, int i) { return v.half[i]; }
inline __m256i _mm512_extracti64x4_epi64(__m512i v, int i) { return v.half[i]; }
inline __m256 _mm512_castps512_ps256(__m512 v) { return _mm512_extractf32x8_ps(v, 0); }
inline __m256i _mm512_castsi512_si256(__m512i v) { return _mm512_extracti64x4_epi64(v, 0); }

inline __m512 operator+(__m512 a, __m512 b) { return join(a.half[0] + b.half[0], a.half[1] + b.half[1]); }
inline __m512 operator-(__m512 a, __m512 b) { return join(a.half[0] - b.half[0], a.half[1] - b.half[1]); }
inline __m512 operator*(__m512 a, __m512 b) { return join(a.half[0] * b.half[0], a.half[1] * b.half[1]); }
inline __m512 operator/(__m512 a, __m512 b) { return join(a.half[0] / b.half[0], a.half[1] / b.half[1]); }
inline __m512 _mm512_fmadd_ps(__m512 a, __m512 b, __m512 c) {
    return by_floats([](__m256 x, __m256 y, __m256 z) { return _mm256_fmadd_ps(x, y, z); }, a, b, c);
}
inline __m512 _mm512_max_ps(__m512 a, __m512 b) {
    return by_floats([](__m256 x, __m256 y) { return _mm256_max_ps(x, y); }, a, b);
}
inline __m512 _mm512_min_ps(__m512 a, __m512 b) {
    return by_floats([](__m256 x, __m256 y) { return _mm256_min_ps(x, y); }, a, b);
}
inline __m512 _mm512_abs_ps(__m512 a) {
    return by_floats([](__m256 x) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x); }, a);
}
inline __m512 _mm512_roundscale_ps(__m512 a, int) {  // to nearest
    return by_floats(
        [](__m256 x) { return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }, a);
}
// a * 2^floor(n), rounded once.
[[gnu::noinline]] inline __m512 _mm512_scalef_ps(__m512 a, __m512 n) {
    return by_lanes<float>(
        [](float x, float e) {
            if (std::isnan(x) || std::isnan(e)) return x + e;
            return std::ldexp(x, static_cast<int>(std::floor(std::fmax(-400.0f, std::fmin(400.0f, e)))));
        },
        a, n);
}
inline float _mm512_reduce_max_ps(__m512 v) {
    const __m256 a = _mm256_max_ps(_mm512_extractf32x8_ps(v, 1), _mm512_castps512_ps256(v));
    const __m128 b = _mm_max_ps(_mm256_extractf128_ps(a, 1), _mm256_castps256_ps128(a));
    const __m128 c = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(c, _mm_movehdup_ps(c)));
}
[[gnu::noinline]] inline int32_t _mm512_reduce_add_epi32(__m512i v) {
    uint32_t sum = 0;
    for (const uint32_t x : bits_as<Lanes<uint32_t>>(v).lane) sum += x;
    return static_cast<int32_t>(sum);
}

inline __m512i _mm512_add_epi32(__m512i a, __m512i b) {
    return by_integers([](__m256i x, __m256i y) { return _mm256_add_epi32(x, y); }, a, b);
}
inline __m512i _mm512_add_epi16(__m512i a, __m512i b) {
    return by_integers([](__m256i x, __m256i y) { return _mm256_add_epi16(x, y); }, a, b);
}
inline __m512i _mm512_sub_epi8(__m512i a, __m512i b) {
    return by_integers([](__m256i x, __m256i y) { return _mm256_sub_epi8(x, y); }, a, b);
}
// The bytes of `chosen` where the mask has their bits.
inline __m512i blend_bytes(__m512i other, __mmask64 mask, __m512i chosen) {
    __m512i out;
    for (int h = 0; h < 2; ++h) {
        // To each byte the byte of the mask that has its bit.
        const __m256i of = _mm256_set_epi64x(0x0303030303030303, 0x0202020202020202, 0x0101010101010101, 0);
        const __m256i bits = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201u));
        const __m256i bytes =
            _mm256_shuffle_epi8(_mm256_set1_epi32(static_cast<int32_t>(mask >> 32 * h)), of);
        out.half[h] = _mm256_blendv_epi8(other.half[h], chosen.half[h],
                                         _mm256_cmpeq_epi8(_mm256_and_si256(bytes, bits), bits));
    }
    return out;
}
inline __m512i _mm512_mask_sub_epi8(__m512i other, __mmask64 mask, __m512i a, __m512i b) {
    return blend_bytes(other, mask, _mm512_sub_epi8(a, b));
}
inline __m512i _mm512_mullo_epi16(__m512i a, __m512i b) {
    return by_integers([](__m256i x, __m256i y) { return _mm256_mullo_epi16(x, y); }, a, b);
}
inline __m512i _mm512_madd_epi16(__m512i a, __m512i b) {
    return by_integers([](__m256i x, __m256i y) { return _mm256_madd_epi16(x, y); }, a, b);
}
inline __m512i _mm512_maddubs_epi16(__m512i a, __m512i b) {
    return by_integers([](__m256i x, __m256i y) { return _mm256_maddubs_epi16(x, y); }, a, b);
}
inline __m512i _mm512_abs_epi8(__m512i a) {
    return by_integers([](__m256i x) { return _mm256_abs_epi8(x); }, a);
}
inline __mmask64 _mm512_movepi8_mask(__m512i a) {
    const auto sign = [&](int h) {
        return static_cast<uint32_t>(_mm256_movemask_epi8(_mm512_extracti64x4_epi64(a, h)));
    };
    return uint64_t{sign(1)} << 32 | sign(0);
}
inline __m512i _mm512_and_si512(__m512i a, __m512i b) {
    return by_integers([](__m256i x, __m256i y) { return _mm256_and_si256(x, y); }, a, b);
}
inline __m512i _mm512_or_si512(__m512i a, __m512i b) {
    return by_integers([](__m256i x, __m256i y) { return _mm256_or_si256(x, y); }, a, b);
}
inline __m512i _mm512_xor_si512(__m512i a, __m512i b) {
    return by_integers([](__m256i x, __m256i y) { return _mm256_xor_si256(x, y); }, a, b);
}
inline __m512i _mm512_slli_epi32(__m512i a, int n) {
    return by_integers([n](__m256i x) { return _mm256_slli_epi32(x, n); }, a);
}
inline __m512i _mm512_srai_epi32(__m512i a, int n) {
    return by_integers([n](__m256i x) { return _mm256_srai_epi32(x, n); }, a);
}
inline __m512i _mm512_srli_epi32(__m512i a, int n) {
    return by_integers([n](__m256i x) { return _mm256_srli_epi32(x, n); }, a);
}

// Within each 128 bits, as in AVX2.
inline __m512i _mm512_shuffle_epi8(__m512i a, __m512i b) {
    return by_integers([](__m256i x, __m256i y) { return _mm256_shuffle_epi8(x, y); }, a, b);
}
inline __m512i _mm512_mask_shuffle_epi8(__m512i other, __mmask64 mask, __m512i a, __m512i b) {
    return blend_bytes(other, mask, _mm512_shuffle_epi8(a, b));
}
inline __m512i _mm512_unpacklo_epi32(__m512i a, __m512i b) {
    return by_integers([](__m256i x, __m256i y) { return _mm256_unpacklo_epi32(x, y); }, a, b);
}
inline __m512i _mm512_unpackhi_epi32(__m512i a, __m512i b) {
    return by_integers([](__m256i x, __m256i y) { return _mm256_unpackhi_epi32(x, y); }, a, b);
}
inline __m512i _mm512_unpacklo_epi64(__m512i a, __m512i b) {
    return by_integers([](__m256i x, __m256i y) { return _mm256_unpacklo_epi64(x, y); }, a, b);
}
inline __m512i _mm512_unpackhi_epi64(__m512i a, __m512i b) {
    return by_integers([](__m256i x, __m256i y) { return _mm256_unpackhi_epi64(x, y); }, a, b);
}
// Two quarters of a, then two of b.
inline __m512i _mm512_shuffle_i32x4(__m512i a, __m512i b, int which) {
    struct Quarters {
        __m128i quarter[4];
    };
    const auto x = bits_as<Quarters>(a), y = bits_as<Quarters>(b);
    return bits_as<__m512i>(Quarters{{x.quarter[which & 3], x.quarter[which >> 2 & 3],
                                      y.quarter[which >> 4 & 3], y.quarter[which >> 6 & 3]}});
}
[[gnu::noinline]] inline __m512i _mm512_permutexvar_epi16(__m512i order, __m512i a) {
    return by_lanes<uint16_t>([&](uint16_t i) { return bits_as<Lanes<uint16_t>>(a).lane[i % 32]; }, order);
}

inline __m512 _mm512_cvtepi32_ps(__m512i a) {
    return join(_mm256_cvtepi32_ps(a.half[0]), _mm256_cvtepi32_ps(a.half[1]));
}
inline __m512i _mm512_cvtps_epi32(__m512 a) {
    return join(_mm256_cvtps_epi32(a.half[0]), _mm256_cvtps_epi32(a.half[1]));
}
inline __m512i _mm512_cvtepi8_epi16(__m256i a) {
    return join(_mm256_cvtepi8_epi16(_mm256_castsi256_si128(a)),
                _mm256_cvtepi8_epi16(_mm256_extracti128_si256(a, 1)));
}
inline __m512i _mm512_cvtepi8_epi32(__m128i a) {
    return join(_mm256_cvtepi8_epi32(a), _mm256_cvtepi8_epi32(_mm_srli_si128(a, 8)));
}
inline __m512i _mm512_cvtepu8_epi32(__m128i a) {
    return join(_mm256_cvtepu8_epi32(a), _mm256_cvtepu8_epi32(_mm_srli_si128(a, 8)));
}
inline __m512i _mm512_cvtepu16_epi32(__m256i a) {
    return join(_mm256_cvtepu16_epi32(_mm256_castsi256_si128(a)),
                _mm256_cvtepu16_epi32(_mm256_extracti128_si256(a, 1)));
}
[[gnu::noinline]] inline __m128i _mm512_cvtsepi32_epi8(__m512i a) {  // saturated
    int8_t bytes[16];
    for (int i = 0; i < 16; ++i) {
        const int32_t x = bits_as<Lanes<int32_t>>(a).lane[i];
        bytes[i] = static_cast<int8_t>(x < -128 ? -128 : x > 127 ? 127 : x);
    }
    __m128i out;
    std::memcpy(&out, bytes, sizeof out);
    return out;
}
inline __m512 _mm512_cvtph_ps(__m256i a) {
    return join(_mm256_cvtph_ps(_mm256_castsi256_si128(a)), _mm256_cvtph_ps(_mm256_extracti128_si256(a, 1)));
}
inline __m256i _mm512_cvtps_ph(__m512 a, int) {  // to nearest
    return _mm256_set_m128i(_mm256_cvtps_ph(a.half[1], _MM_FROUND_TO_NEAREST_INT),
                            _mm256_cvtps_ph(a.half[0], _MM_FROUND_TO_NEAREST_INT));
}

// AVX512-VNNI: unsigned times signed, by the multiply-add of 16 bits, which is exact.
[[gnu::noinline]] inline __m512i _mm512_dpbusd_epi32(__m512i sum, __m512i a, __m512i b) {
    return by_integers(
        [](__m256i s, __m256i x, __m256i y) {
            const __m256i even = _mm256_madd_epi16(_mm256_and_si256(x, _mm256_set1_epi16(0xff)),
                                                   _mm256_srai_epi16(_mm256_slli_epi16(y, 8), 8));
            const __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(x, 8), _mm256_srai_epi16(y, 8));
            return _mm256_add_epi32(s, _mm256_add_epi32(even, odd));
        },
        sum, a, b);
}

// AVX512-BF16. Numbers below the normal ones count as zero, on the way in and out.
inline float normal(float x) { return std::fabs(x) < std::numeric_limits<float>::min() ? 0 * x : x; }
inline uint16_t nearest_bf16(float x) { return f32_to_bf16(normal(x)); }
[[gnu::noinline]] inline __m256bh _mm512_cvtneps_pbh(__m512 a) {
    const auto in = bits_as<Lanes<float>>(a);
    uint16_t words[16];
    for (int i = 0; i < 16; ++i) words[i] = nearest_bf16(in.lane[i]);
    return bits_as<__m256bh>(words);
}
[[gnu::noinline]] inline __m512bh _mm512_cvtne2ps_pbh(__m512 high, __m512 low) {
    const Lanes<float> in[] = {bits_as<Lanes<float>>(low), bits_as<Lanes<float>>(high)};
    uint16_t words[32];
    for (int i = 0; i < 32; ++i) words[i] = nearest_bf16(in[i / 16].lane[i % 16]);
    return bits_as<__m512bh>(words);
}
// The same of eight numbers at once: these are most of what is worked out in software here.
inline __m256 normal(__m256 x) {
    const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
    const __m256 below = _mm256_cmp_ps(_mm256_and_ps(x, magnitude),
                                       _mm256_set1_ps(std::numeric_limits<float>::min()), _CMP_LT_OQ);
    return _mm256_andnot_ps(_mm256_and_ps(below, magnitude), x);
}
// sum + a * b, rounded once, of the first numbers of pairs or of the second ones.
template <bool second>
inline __m256 add_products(__m256 sum, __m256i a, __m256i b) {
    const auto numbers = [](__m256i pairs) {
        const __m256i high = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
        return normal(
            _mm256_castsi256_ps(second ? _mm256_and_si256(pairs, high) : _mm256_slli_epi32(pairs, 16)));
    };
    return normal(_mm256_fmadd_ps(numbers(a), numbers(b), normal(sum)));
}
// The second products of the pairs before the first.
[[gnu::noinline]] inline __m512 _mm512_dpbf16_ps(__m512 sum, __m512bh a, __m512bh b) {
    const auto half = [&](int i) {
        return add_products<false>(add_products<true>(sum.half[i], a.half[i], b.half[i]), a.half[i],
                                   b.half[i]);
    };
    return join(half(0), half(1));
}

// Of simd/avx512_settled.inl: nothing to be kept in its place.
inline __m512i settled(__m512i sums) { return sums; }
