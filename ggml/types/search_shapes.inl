// The searches themselves, one template per shape of format; see search.h for what each one does.
// Every function encodes one block; the caller compares the result with the plain encoding.
// Included after search_lanes.inl into the same namespace.

template <class F>
void level_indices(const float* x, float inverse, uint8_t* q) {
    if constexpr (IntegerLevels<F>) {
        signed_codes<F::group>(x, inverse, F::lo, F::hi, F::lo, q);
    } else {
        static constexpr auto mid = midpoints(F::levels);
        level_codes<F::group>(x, inverse, mid, q);
    }
}

template <class F>
float level_of(uint8_t q) {
    if constexpr (IntegerLevels<F>)
        return static_cast<float>(q + F::lo);
    else
        return F::levels[q];
}

// ---- one scale ------------------------------------------------------------------------------------------

// Least-squares scale of the best of the candidates 1 / inverse, by the error it removes: (wLx)^2 / wLL.
template <class F, int C>
float best_scale(const float* x, const float* w, const Lanes<C>& inverse, float otherwise) {
    Lanes<C> lx, ll, gain;
    level_sums<F, F::group, C>(x, w, inverse, lx, ll);
    const Vec zero = {};
    for (int k = 0; k < Lanes<C>::vectors; ++k)
        gain.v[k] = ll.v[k] > zero ? lx.v[k] * lx.v[k] / ll.v[k] : zero;
    const int best = argmax(gain);
    return gain.at(best) > 0 ? lx.at(best) / ll.at(best) : otherwise;
}

// The real-valued scale of one group. The value of largest magnitude is put on (or clipped beyond) the
// lowest level, and with the other sign of the scale on the highest one.
template <class F, bool look_again>
float group_scale(const float* x, const float* w) {
    const float extreme = signed_extreme<F::group>(x);
    if (extreme == 0) return 0;
    constexpr float low = lowest_level<F>(), high = highest_level<F>();
    static const Lanes<16> levels = [] {
        Lanes<16> l = Lanes<16>::ramp(0.85f, 0.05f, 1, 8);
        for (int c = 0; c < 16; ++c) l.at(c) *= c < 8 ? low : high;
        return l;
    }();
    static const Lanes<8> near = Lanes<8>::ramp(0.965f, 0.01f);
    const float unit = 1 / extreme;
    Lanes<16> inverse;
    for (int k = 0; k < inverse.vectors; ++k) inverse.v[k] = levels.v[k] * unit;
    const float scale = best_scale<F>(x, w, inverse, extreme / low);
    if constexpr (!look_again) return scale;
    const float by_scale = 1 / scale;
    Lanes<8> around;
    for (int k = 0; k < around.vectors; ++k) around.v[k] = near.v[k] * by_scale;
    return best_scale<F>(x, w, around, scale);
}

// Q4_0, Q5_0, IQ4_NL, NF4: one f16 scale.
template <class F>
void encode_scale(const float* x, const float* w, typename F::Block& b) {
    const float scale = F::snap(group_scale<F, true>(x, w));
    uint8_t q[F::block_len];
    level_indices<F>(x, inverse_or_zero(scale), q);
    F::pack(q, &scale, b);
}

// The scale of least error for one group among eight of a short list.
template <class F>
int listed_scale(const float* x, const float* w) {
    const int first = F::scale_code(max_abs<F::group>(x) / 12) - 3;
    Lanes<8> scale, error;
    int codes[8];
    for (int c = 0; c < 8; ++c) {
        codes[c] = first + c < F::min_code ? F::min_code : first + c > F::max_code ? F::max_code : first + c;
        scale.at(c) = F::scale_of(codes[c]);
    }
    level_errors<F, F::group, 8>(x, w, scale, error);
    return codes[argmin(error)];
}

// MXFP4, NVFP4.
template <class F>
void encode_listed_scale(const float* x, const float* w, typename F::Block& b) {
    constexpr int groups = F::block_len / F::group;
    int code[groups];
    uint8_t q[F::block_len];
    for (int g = 0; g < groups; ++g) {
        const float* xg = x + g * F::group;
        code[g] = listed_scale<F>(xg, w + g * F::group);
        e2m1_codes<F::group>(xg, inverse_or_zero(F::scale_of(code[g])), q + g * F::group);
    }
    F::pack(q, code, b);
}

// ---- a superblock factor times an integer per group -----------------------------------------------------

// The integer factor of least error for one group among eight around the ideal one.
template <class F>
int choose_factor(const float* x, const float* w, float ideal, float d) {
    const int first = F::nearest_factor(ideal * inverse_or_zero(d)) - 3;
    Lanes<8> scale, error;
    int factors[8];
    for (int c = 0; c < 8; ++c) {
        const int f = first + c;
        factors[c] = f < F::min_factor ? F::min_factor : f > F::max_factor ? F::max_factor : f;
        scale.at(c) = d * F::factor(factors[c]);
    }
    level_errors<F, F::group, 8>(x, w, scale, error);
    return factors[argmin(error)];
}

// Least-squares d for codes q with factors s.
template <class F>
float refit_factor(const float* x, const float* w, const uint8_t* q, float d, const int* s) {
    float num = 0, den = 0;
    for (int g = 0; g < static_cast<int>(F::block_len / F::group); ++g) {
        float level[F::group];
        for (int i = 0; i < static_cast<int>(F::group); ++i) level[i] = level_of<F>(q[g * F::group + i]);
        const LevelSums sums = level_sums_of<F::group>(x + g * F::group, w + g * F::group, level);
        const float f = F::factor(s[g]);
        num += f * sums.lx;
        den += f * f * sums.ll;
    }
    return den > 0 ? num / den : d;
}

template <class F>
void factor_codes(const float* x, float d, const int* s, uint8_t* q) {
    for (int g = 0; g < static_cast<int>(F::block_len / F::group); ++g)
        level_indices<F>(x + g * F::group, inverse_or_zero(d * F::factor(s[g])), q + g * F::group);
}

// The factor of a superblock, as decoded from f16, and those of its groups.
template <class F>
float fit_factors(const float* x, const float* w, int* s) {
    constexpr int groups = F::block_len / F::group;
    float ideal[groups], largest = 0;
    for (int g = 0; g < groups; ++g) {
        ideal[g] = group_scale<F, false>(x + g * F::group, w + g * F::group);
        largest = std::fabs(ideal[g]) > std::fabs(largest) ? ideal[g] : largest;
    }
    // The largest scale takes the factor of largest magnitude, which is the negative end.
    const float d = f16_to_f32(f16_factor(largest / F::factor(F::min_factor)));
    for (int g = 0; g < groups; ++g) s[g] = choose_factor<F>(x + g * F::group, w + g * F::group, ideal[g], d);
    uint8_t q[F::block_len];
    factor_codes<F>(x, d, s, q);
    return f16_to_f32(f16_factor(refit_factor<F>(x, w, q, d, s)));
}

// Q3_K, Q6_K, IQ4_XS, NF4_DQ.
template <class F>
void encode_factors(const float* x, const float* w, typename F::Block& b) {
    int s[F::block_len / F::group];
    const float d = fit_factors<F>(x, w, s);
    uint8_t q[F::block_len];
    factor_codes<F>(x, d, s, q);
    F::pack(q, s, f16_scale(d), b);
}

// ---- scale and minimum ----------------------------------------------------------------------------------

// x = scale * q + min
struct Line {
    float scale, min;
};

// Least-squares line through the codes of the best candidate (inverse, offset). With `below_zero` the
// minimum may not be positive, as in the superblock formats.
template <int n, int C, bool below_zero>
Line best_line(const float* x, const float* w, float top, const Lanes<C>& inverse, const Lanes<C>& offset,
               Line otherwise) {
    const Vec zero = {};
    const float sw = sum_of<n>(w);
    const float swx = weighted_sum<n>(x, w);
    Lanes<C> wq, wqq, wqx, scale, min, gain;
    code_sums<n, C>(x, w, top, inverse, offset, wq, wqq, wqx);
    for (int k = 0; k < Lanes<C>::vectors; ++k) {
        const Vec det = sw * wqq.v[k] - wq.v[k] * wq.v[k];
        Vec d = (sw * wqx.v[k] - swx * wq.v[k]) / det;
        Vec m = (wqq.v[k] * swx - wq.v[k] * wqx.v[k]) / det;
        if constexpr (below_zero) {
            const Vec through_zero = wqx.v[k] / wqq.v[k];
            d = m > zero ? through_zero : d;
            m = m > zero ? zero : m;
        }
        const Vec g = d * wqx.v[k] + m * swx;
        gain.v[k] = det > zero && g > zero ? g : zero;
        scale.v[k] = d;
        min.v[k] = m;
    }
    const int best = argmax(gain);
    return gain.at(best) > 0 ? Line{scale.at(best), min.at(best)} : otherwise;
}

// The real-valued line of one group: 16 ranges that clip either end, then 8 lines around the best.
template <int n, bool below_zero>
Line group_line(const float* x, const float* w, float top) {
    Range r = min_max<n>(x);
    if (below_zero && r.lo > 0) r.lo = 0;
    if (below_zero && r.hi < 0) r.hi = 0;
    const float width = r.hi - r.lo;
    const Line plain{width / top, r.lo};
    if (!(width > 0)) return plain;
    static const Lanes<16> clip_lo = Lanes<16>::ramp(-0.02f, 0.04f, 1, 4),
                           clip_hi = Lanes<16>::ramp(-0.02f, 0.04f, 4);
    static const Lanes<8> near = Lanes<8>::ramp(0.965f, 0.01f);
    Lanes<16> inverse, offset;
    for (int k = 0; k < inverse.vectors; ++k) {
        const Vec lo = r.lo + width * clip_lo.v[k], hi = r.hi - width * clip_hi.v[k];
        inverse.v[k] = top / (hi - lo);
        offset.v[k] = -lo * inverse.v[k];
    }
    const Line line = best_line<n, 16, below_zero>(x, w, top, inverse, offset, plain);
    if (!(line.scale > 0)) return plain;
    // With few codes the rounding to integer factors moves the line more than a second look would.
    if (below_zero && top < 16) return line;
    const float by_scale = 1 / line.scale;
    Lanes<8> around, around_offset;
    for (int k = 0; k < around.vectors; ++k) {
        around.v[k] = near.v[k] * by_scale;
        around_offset.v[k] = -line.min * around.v[k];
    }
    return best_line<n, 8, below_zero>(x, w, top, around, around_offset, line);
}

// Q4_1, Q5_1.
template <class F>
void encode_line(const float* x, const float* w, typename F::Block& b) {
    const Line line = group_line<F::group, false>(x, w, F::top);
    const float scale = f16_to_f32(f16_scale(line.scale)), min = f16_to_f32(f16_scale(line.min));
    uint8_t q[F::block_len];
    offset_codes<F::block_len>(x, -min, inverse_or_zero(scale), F::top, q);
    F::pack(q, scale, min, b);
}

// ---- superblocks with scale and minimum factors -----------------------------------------------------------

struct Factors {
    float d, dmin;  // as decoded from f16
};

inline Vec within(Vec v, float top) {
    const Vec zero = {}, limit = zero + top;
    v = v > zero ? v : zero;
    return v < limit ? v : limit;
}

// The pair of integer factors of least error for one group among the eight nearest to the ideal line.
template <class F>
void choose_pair(const float* x, const float* w, const Line& ideal, const Factors& f, uint8_t& sc,
                 uint8_t& mn) {
    constexpr float most = F::max_factor;
    static const Lanes<8> s_step = Lanes<8>::ramp(0, 1, 4), m_step = Lanes<8>::ramp(-1, 1, 1, 4);
    const int s = static_cast<int>(clamped(ideal.scale * inverse_or_zero(f.d), 0, most));
    const int m = static_cast<int>(clamped(-ideal.min * inverse_or_zero(f.dmin), 0, most));
    Lanes<8> ds, dm, scale, min, error;
    for (int k = 0; k < ds.vectors; ++k) {
        const Vec sk = within(static_cast<float>(s) + s_step.v[k], most);
        const Vec mk = within(static_cast<float>(m) + m_step.v[k], most);
        ds.v[k] = sk;
        dm.v[k] = mk;
        scale.v[k] = f.d * sk;
        min.v[k] = -(f.dmin * mk);
    }
    code_errors<F::group, 8>(x, w, F::top, scale, min, error);
    const int best = argmin(error);
    sc = static_cast<uint8_t>(ds.at(best));
    mn = static_cast<uint8_t>(dm.at(best));
}

// Least-squares d and dmin for codes q with factors sc and mn; f where that leads nowhere.
template <class F>
Factors refit_pair(const float* x, const float* w, const uint8_t* q, const Factors& f, const uint8_t* sc,
                   const uint8_t* mn) {
    float aa = 0, ab = 0, bb = 0, ax = 0, bx = 0;
    for (int g = 0; g < static_cast<int>(F::block_len / F::group); ++g) {
        const float *xg = x + g * F::group, *wg = w + g * F::group;
        const float a = sc[g], b = mn[g];
        float level[F::group];
        for (int i = 0; i < static_cast<int>(F::group); ++i) level[i] = q[g * F::group + i];
        const LevelSums s = level_sums_of<F::group>(xg, wg, level);
        aa += a * a * s.ll;
        ab -= a * b * s.l;
        bb += b * b * sum_of<F::group>(wg);
        ax += a * s.lx;
        bx -= b * weighted_sum<F::group>(xg, wg);
    }
    const float det = aa * bb - ab * ab;
    if (!(det > 0)) return {aa > 0 ? ax / aa : f.d, f.dmin};
    const Factors r{(ax * bb - bx * ab) / det, (aa * bx - ab * ax) / det};
    return r.d > 0 && r.dmin > 0 ? r : f;
}

// Codes for factors as they will be decoded.
template <class F>
void pair_codes(const float* x, const Factors& f, const uint8_t* sc, const uint8_t* mn, uint8_t* q) {
    for (int g = 0; g < static_cast<int>(F::block_len / F::group); ++g)
        offset_codes<F::group>(x + g * F::group, f.dmin * mn[g], inverse_or_zero(f.d * sc[g]), F::top,
                               q + g * F::group);
}

inline Factors as_decoded(const Factors& f) {
    return {f16_to_f32(f16_factor(f.d)), f16_to_f32(f16_factor(f.dmin))};
}

// The factors of a superblock and those of its groups.
template <class F>
Factors fit_pairs(const float* x, const float* w, uint8_t* sc, uint8_t* mn) {
    constexpr int groups = F::block_len / F::group;
    Line ideal[groups];
    float max_scale = 0, max_min = 0;
    for (int g = 0; g < groups; ++g) {
        ideal[g] = group_line<F::group, true>(x + g * F::group, w + g * F::group, F::top);
        max_scale = ideal[g].scale > max_scale ? ideal[g].scale : max_scale;
        max_min = -ideal[g].min > max_min ? -ideal[g].min : max_min;
    }
    const Factors f = as_decoded({max_scale / F::max_factor, max_min / F::max_factor});
    for (int g = 0; g < groups; ++g)
        choose_pair<F>(x + g * F::group, w + g * F::group, ideal[g], f, sc[g], mn[g]);
    uint8_t q[F::block_len];
    pair_codes<F>(x, f, sc, mn, q);
    return as_decoded(refit_pair<F>(x, w, q, f, sc, mn));
}

// Q2_K, Q4_K, Q5_K.
template <class F>
void encode_pairs(const float* x, const float* w, typename F::Block& b) {
    uint8_t sc[F::block_len / F::group], mn[F::block_len / F::group], q[F::block_len];
    const Factors f = fit_pairs<F>(x, w, sc, mn);
    pair_codes<F>(x, f, sc, mn, q);
    F::pack(q, sc, mn, f16_scale(f.d), f16_scale(f.dmin), b);
}
