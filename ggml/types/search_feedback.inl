// Rounding a span of a row column after column, each of which makes up for what those before it have lost.
// Scales are searched when their group's turn comes; a superblock's own factors before its first column.
// Included after search_rows.inl into the same namespace.

// A span under way: n columns, of which those rounded so far have their loss in `lost`.
struct Span {
    float* lost;         // the weights, where not rounded yet
    float* x;            // what is rounded: the weights and what makes up for the losses so far
    const float* w;      // what a loss in each column costs
    const float* carry;  // n x n: what a loss in one column adds to the others' x
    int64_t n;
};

inline void lose(const Span& s, int64_t i, float rounded) {
    const float loss = s.lost[i] - rounded;
    s.lost[i] = loss;
    const float* const row = s.carry + i * s.n;
    int64_t j = i / vector_floats * vector_floats;  // up to i the row holds zeros
    for (; j + vector_floats <= s.n; j += vector_floats) {
        Vec x, c;
        std::memcpy(&x, s.x + j, sizeof x);
        std::memcpy(&c, row + j, sizeof c);
        x += loss * c;
        std::memcpy(s.x + j, &x, sizeof x);
    }
    for (; j < s.n; ++j) s.x[j] += loss * row[j];
}

// Rounds a group from column `at` on to scale * level.
template <class F>
void round_levels(const Span& s, int64_t at, float scale, uint8_t* q) {
    const float inverse = inverse_or_zero(scale);
    for (int64_t i = 0; i < static_cast<int64_t>(F::group); ++i) {
        const float v = s.x[at + i] * inverse;
        int code = 0;
        if constexpr (IntegerLevels<F>) {
            code = round_away(clamped(v, F::lo, F::hi)) - F::lo;
        } else {
            static constexpr auto mid = midpoints(F::levels);
            for (const float m : mid) code += v > m;
        }
        q[i] = static_cast<uint8_t>(code);
        lose(s, at + i, scale * level_of<F>(q[i]));
    }
}

// Rounds a group to scale * code + min.
template <class F>
void round_codes(const Span& s, int64_t at, float scale, float min, uint8_t* q) {
    const float inverse = inverse_or_zero(scale);
    for (int64_t i = 0; i < static_cast<int64_t>(F::group); ++i) {
        const float code = std::floor(clamped((s.x[at + i] - min) * inverse, 0, F::top) + 0.5f);
        q[i] = static_cast<uint8_t>(code);
        lose(s, at + i, scale * code + min);
    }
}

template <class F>
void round_block(const Span& s, int64_t at, typename F::Block& b) {
    constexpr int groups = F::block_len / F::group;
    const float *const x = s.x + at, *const w = s.w + at;
    uint8_t q[F::block_len];
    if constexpr (OneScale<F>) {
        const float scale = F::snap(group_scale<F, true>(x, w));
        round_levels<F>(s, at, scale, q);
        F::pack(q, &scale, b);
    } else if constexpr (OneLine<F>) {
        const Line line = group_line<F::group, false>(x, w, F::top);
        const float scale = f16_to_f32(f16_scale(line.scale)), min = f16_to_f32(f16_scale(line.min));
        round_codes<F>(s, at, scale, min, q);
        F::pack(q, scale, min, b);
    } else if constexpr (ListedScale<F>) {
        int code[groups];
        for (int g = 0; g < groups; ++g) {
            const int64_t i = g * F::group;
            code[g] = listed_scale<F>(x + i, w + i);
            round_levels<F>(s, at + i, F::scale_of(code[g]), q + i);
        }
        for (uint8_t& level : q) level = e2m1_code(level);
        F::pack(q, code, b);
    } else if constexpr (ScaleFactors<F>) {
        int factor[groups];
        const float d = fit_factors<F>(x, w, factor);
        for (int g = 0; g < groups; ++g) {
            const int64_t i = g * F::group;
            factor[g] = choose_factor<F>(x + i, w + i, group_scale<F, false>(x + i, w + i), d);
            round_levels<F>(s, at + i, d * F::factor(factor[g]), q + i);
        }
        F::pack(q, factor, f16_scale(d), b);
    } else {
        uint8_t sc[groups], mn[groups];
        const Factors f = fit_pairs<F>(x, w, sc, mn);
        for (int g = 0; g < groups; ++g) {
            const int64_t i = g * F::group;
            choose_pair<F>(x + i, w + i, group_line<F::group, true>(x + i, w + i, F::top), f, sc[g], mn[g]);
            round_codes<F>(s, at + i, f.d * sc[g], -(f.dmin * mn[g]), q + i);
        }
        F::pack(q, sc, mn, f16_scale(f.d), f16_scale(f.dmin), b);
    }
}

void round_span(Type type, float* lost, float* x, const float* w, const float* carry, std::byte* dst,
                size_t n) {
    visit_format(type, [&]<class F>() {
        if constexpr (Searchable<F>) {
            const Span s{lost, x, w, carry, static_cast<int64_t>(n)};
            for (int64_t at = 0; at < s.n; at += F::block_len, dst += sizeof(typename F::Block)) {
                typename F::Block b;
                round_block<F>(s, at, b);
                std::memcpy(dst, &b, sizeof b);
            }
        }
    });
}
