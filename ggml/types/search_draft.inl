// Blocks of a span of a row before they are packed: their codes, scales and factors, whatever the format.
// Included after search_rows.inl into the same namespace.

// A span under way: of its columns those rounded so far have their loss in `lost`.
struct Span {
    const SpanCosts& costs;
    float* lost;  // the weights, where not rounded yet
    float* x;     // the weights and what makes up for the losses so far; then by how much it was off
    int64_t n() const { return costs.n; }
};

// y[j] += factor * row[j] for j in [from, n), and perhaps for some before that, where row is zero.
inline void add_row(float* y, float factor, const float* row, int64_t from, int64_t n) {
    int64_t j = from / vector_floats * vector_floats;
    for (; j + vector_floats <= n; j += vector_floats) {
        Vec v, r;
        std::memcpy(&v, y + j, sizeof v);
        std::memcpy(&r, row + j, sizeof r);
        v += factor * r;
        std::memcpy(y + j, &v, sizeof v);
    }
    for (; j < n; ++j) y[j] += factor * row[j];
}

template <class F>
concept WithMinimum = OneLine<F> || PairFactors<F>;

// A block that is not packed yet. Number i is scale * level + min, both of its group.
template <class F>
struct Draft {
    static constexpr int group = static_cast<int>(F::group), groups = static_cast<int>(F::block_len) / group;
    uint8_t q[F::block_len];
    float scale[groups], min[groups];
    int factor[groups], min_factor[groups];  // or code of a scale: where the format has them
    float d, dmin;

    float level(int i) const {
        if constexpr (WithMinimum<F>)
            return q[i];
        else
            return level_of<F>(q[i]);
    }
    // The code of what is `v` scales above the minimum.
    static uint8_t nearest(float v) {
        int code = 0;
        if constexpr (WithMinimum<F>) {
            code = static_cast<int>(std::floor(clamped(v, 0, F::top) + 0.5f));
        } else if constexpr (IntegerLevels<F>) {
            code = round_away(clamped(v, F::lo, F::hi)) - F::lo;
        } else {
            static constexpr auto mid = midpoints(F::levels);
            for (const float m : mid) code += v > m;
        }
        return static_cast<uint8_t>(code);
    }

    // What a group's scale is for a block's factor of 1.
    float unit(int g) const {
        if constexpr (ScaleFactors<F>)
            return F::factor(factor[g]);
        else
            return static_cast<float>(factor[g]);
    }
    void set_factor(int g, int f) {
        factor[g] = f;
        if constexpr (ListedScale<F>)
            scale[g] = F::scale_of(f);
        else
            scale[g] = d * unit(g);
    }
    void set_min_factor(int g, int f) {
        min_factor[g] = f;
        min[g] = -(dmin * static_cast<float>(f));
    }

    struct Line {
        float scale, min;
        int factor, min_factor;
    };
    Line line(int g) const { return {scale[g], min[g], factor[g], min_factor[g]}; }
    void set_line(int g, const Line& l) {
        scale[g] = l.scale;
        min[g] = l.min;
        factor[g] = l.factor;
        min_factor[g] = l.min_factor;
    }

    // About the nearest that the format can say. Neither takes what is no finite number.
    void set_scale(int g, float wanted) {
        if (!std::isfinite(wanted)) return;
        if constexpr (OneScale<F>)
            scale[g] = F::snap(wanted);
        else if constexpr (ListedScale<F>)
            set_factor(g, static_cast<int>(clamped(F::scale_code(wanted), F::min_code, F::max_code)));
        else if constexpr (OneLine<F>)
            scale[g] = f16_to_f32(f16_scale(wanted));
        else if constexpr (ScaleFactors<F>)
            set_factor(g, F::nearest_factor(wanted * inverse_or_zero(d)));
        else if constexpr (PairFactors<F>)
            set_factor(g, round_away(clamped(wanted * inverse_or_zero(d), 0, F::max_factor)));
    }
    void set_min(int g, float wanted) {
        if (!std::isfinite(wanted)) return;
        if constexpr (OneLine<F>)
            min[g] = f16_to_f32(f16_scale(wanted));
        else if constexpr (PairFactors<F>)
            set_min_factor(g, round_away(clamped(-wanted * inverse_or_zero(dmin), 0, F::max_factor)));
    }

    // Factors of the block's own, by which those of its groups are chosen one by one.
    void open(const float* x, const float* w) {
        if constexpr (ScaleFactors<F>) {
            d = fit_factors<F>(x, w, factor);
        } else if constexpr (PairFactors<F>) {
            uint8_t sc[groups], mn[groups];
            const Factors f = fit_pairs<F>(x, w, sc, mn);
            d = f.d;
            dmin = f.dmin;
        }
    }
    void choose(int g, const float* x, const float* w) {
        min[g] = 0;
        if constexpr (OneScale<F>) {
            scale[g] = F::snap(group_scale<F, true>(x, w));
        } else if constexpr (ListedScale<F>) {
            set_factor(g, listed_scale<F>(x, w));
        } else if constexpr (OneLine<F>) {
            const auto line = group_line<F::group, false>(x, w, F::top);
            scale[g] = f16_to_f32(f16_scale(line.scale));
            min[g] = f16_to_f32(f16_scale(line.min));
        } else if constexpr (ScaleFactors<F>) {
            set_factor(g, choose_factor<F>(x, w, group_scale<F, false>(x, w), d));
        } else {
            uint8_t sc, mn;
            choose_pair<F>(x, w, group_line<F::group, true>(x, w, F::top), {d, dmin}, sc, mn);
            set_factor(g, sc);
            set_min_factor(g, mn);
        }
    }

    void pack(typename F::Block& b) {
        if constexpr (OneScale<F>) {
            F::pack(q, scale, b);
        } else if constexpr (ListedScale<F>) {
            for (uint8_t& l : q) l = e2m1_code(l);
            F::pack(q, factor, b);
        } else if constexpr (OneLine<F>) {
            F::pack(q, scale[0], min[0], b);
        } else if constexpr (ScaleFactors<F>) {
            F::pack(q, factor, f16_scale(d), b);
        } else {
            uint8_t sc[groups], mn[groups];
            for (int g = 0; g < groups; ++g) {
                sc[g] = static_cast<uint8_t>(factor[g]);
                mn[g] = static_cast<uint8_t>(min_factor[g]);
            }
            F::pack(q, sc, mn, f16_scale(d), f16_scale(dmin), b);
        }
    }
};
