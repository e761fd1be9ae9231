// Revising a span whose columns have been rounded in order: codes, scales and a superblock's factors are
// moved one after another to where the span's cost is least while all others stay. No move makes it larger.
// Included after search_draft.inl into the same namespace.

// The cost of being off by e is e H e', so a move by m along p, e - m p, changes it by m^2 pHp' - 2 m eHp'.
template <class F>
class Revision {
  public:
    Revision(const Span& s, std::vector<Draft<F>>& blocks)
        : s_(s),
          blocks_(blocks),
          slope_(static_cast<size_t>(s.n())),
          along_(slope_.size()),
          along_ones_(slope_.size()),
          along_block_(slope_.size()),
          along_minima_(slope_.size()) {
        // e H = ((e M) D) M', and e M is how far off the rounding of each column was.
        for (int64_t k = 0; k < s.n(); ++k) s.x[k] *= s.costs.importance[k];
        for (int64_t i = 0; i < s.n(); ++i) {
            const int64_t from = i / 8 * 8;  // up to i the row of carries holds zeros
            slope_[at(i)] = s.x[i] + dot(s.x + from, s.costs.carry + i * s.n() + from, s.n() - from);
        }
    }

    void run() {
        constexpr int rounds = 2;
        for (int r = 0; r < rounds; ++r) {
            move_codes();
            move_scales();
        }
        move_codes();
    }

  private:
    static size_t at(int64_t i) { return static_cast<size_t>(i); }
    // Of n numbers, a multiple of 8 as all groups are: in the same order whatever the width of vectors.
    static float dot(const float* a, const float* b, int64_t n) {
        float sum[8] = {};
        for (int64_t i = 0; i < n; i += 8)
            for (int l = 0; l < 8; ++l) sum[l] += a[i + l] * b[i + l];
        float total = 0;
        for (const float v : sum) total += v;
        return total;
    }
    const float* row(int64_t i) const { return s_.costs.cost + i * s_.n(); }

    void move_codes() {
        int64_t first = 0;
        for (Draft<F>& b : blocks_) {
            for (int i = 0; i < static_cast<int>(F::block_len); ++i) {
                const int64_t column = first + i;
                const int g = i / b.group;
                const float own = row(column)[column], before = b.level(i);
                const float wanted = before + slope_[at(column)] / own * inverse_or_zero(b.scale[g]);
                const uint8_t code = b.nearest(wanted);
                if (code == b.q[i]) continue;
                b.q[i] = code;
                const float step = b.scale[g] * (b.level(i) - before);
                s_.lost[column] -= step;
                add_row(slope_.data(), -step, row(column), 0, s_.n());
            }
            first += F::block_len;
        }
    }

    static constexpr int group = Draft<F>::group;
    static constexpr bool superblocks = ScaleFactors<F> || PairFactors<F>;

    // along = sum of p[i] * row i over the columns of a group; returns p H p', of which along is p H.
    float combine(int64_t first, const float* p, std::vector<float>& along) const {
        constexpr int tile = 16, vectors = tile / vector_floats;  // of columns, which are whole tiles
        for (int64_t j = 0; j < s_.n(); j += tile) {
            Vec sum[vectors] = {};
            for (int i = 0; i < group; ++i)
                for (int v = 0; v < vectors; ++v) {
                    Vec r;
                    std::memcpy(&r, row(first + i) + j + v * vector_floats, sizeof r);
                    sum[v] += p[i] * r;
                }
            for (int v = 0; v < vectors; ++v)
                std::memcpy(along.data() + j + v * vector_floats, &sum[v], sizeof sum[v]);
        }
        return dot(p, along.data() + first, group);
    }
    // The numbers of n columns grow by step * p; along = p H.
    void move(float step, const float* p, int64_t first, int64_t n, const std::vector<float>& along) {
        if (step == 0) return;
        for (int64_t i = 0; i < n; ++i) s_.lost[first + i] -= step * p[i];
        add_row(slope_.data(), -step, along.data(), 0, s_.n());
    }

    void move_scales() {
        int64_t first = 0;
        for (Draft<F>& b : blocks_) {
            if constexpr (superblocks) {
                std::fill(along_block_.begin(), along_block_.end(), 0.0f);
                std::fill(along_minima_.begin(), along_minima_.end(), 0.0f);
            }
            for (int g = 0; g < b.groups; ++g) {
                if constexpr (WithMinimum<F>)
                    move_line(b, g, first + g * group);
                else
                    move_scale(b, g, first + g * group);
            }
            if constexpr (superblocks) move_block(b, first);
            first += F::block_len;
        }
    }

    void move_scale(Draft<F>& b, int g, int64_t first) {
        const float own = levels(b, g, first), gain = dot(level_, slope_.data() + first, group);
        const typename Draft<F>::Line before = b.line(g);
        if (own > 0) b.set_scale(g, before.scale + gain / own);
        const float step = b.scale[g] - before.scale;
        if (step * step * own < 2 * step * gain)
            move(step, level_, first, group, along_);
        else
            b.set_line(g, before);
        if constexpr (superblocks) add_row(along_block_.data(), b.unit(g), along_.data(), 0, s_.n());
    }

    // Scale and minimum together where that helps, or else the minimum.
    void move_line(Draft<F>& b, int g, int64_t first) {
        static constexpr auto ones = [] {
            std::array<float, group> o;
            o.fill(1);
            return o;
        }();
        const float ll = levels(b, g, first), gain_l = dot(level_, slope_.data() + first, group);
        const float oo = combine(first, ones.data(), along_ones_),
                    gain_o = dot(ones.data(), slope_.data() + first, group);
        const float lo = dot(ones.data(), along_.data() + first, group), det = ll * oo - lo * lo;
        const typename Draft<F>::Line before = b.line(g);
        const auto step = [&] { return b.scale[g] - before.scale; };
        const auto min_step = [&] { return b.min[g] - before.min; };
        const auto gains = [&] {
            const float s = step(), m = min_step();
            return s * s * ll + 2 * s * m * lo + m * m * oo < 2 * (s * gain_l + m * gain_o);
        };
        if (det > 0) {
            b.set_scale(g, before.scale + (gain_l * oo - gain_o * lo) / det);
            b.set_min(g, before.min + (gain_o - step() * lo) / oo);
        }
        if (!gains()) {
            b.set_line(g, before);
            if (oo > 0) b.set_min(g, before.min + gain_o / oo);
            if (!gains()) b.set_line(g, before);
        }
        move(step(), level_, first, group, along_);
        move(min_step(), ones.data(), first, group, along_ones_);
        if constexpr (superblocks) {
            add_row(along_block_.data(), b.unit(g), along_.data(), 0, s_.n());
            add_row(along_minima_.data(), -static_cast<float>(b.min_factor[g]), along_ones_.data(), 0,
                    s_.n());
        }
    }

    // The factors that a superblock's groups share.
    void move_block(Draft<F>& b, int64_t first) {
        float p[F::block_len];
        const auto nearer = [&](float now, const std::vector<float>& along) {
            const float own = dot(p, along.data() + first, F::block_len),
                        wanted = now + dot(p, slope_.data() + first, F::block_len) / own;
            const float next = own > 0 && std::isfinite(wanted) ? f16_to_f32(f16_scale(wanted)) : now;
            // What has one sign by definition keeps it, and a block does not become all zeros.
            const bool usable = now > 0 ? next > 0 : next < 0;
            if (!usable) return now;
            move(next - now, p, first, F::block_len, along);
            return next;
        };
        for (int i = 0; i < static_cast<int>(F::block_len); ++i) p[i] = b.unit(i / group) * b.level(i);
        b.d = nearer(b.d, along_block_);
        if constexpr (PairFactors<F>) {
            for (int i = 0; i < static_cast<int>(F::block_len); ++i)
                p[i] = -static_cast<float>(b.min_factor[i / group]);
            b.dmin = nearer(b.dmin, along_minima_);
        }
        for (int g = 0; g < b.groups; ++g) {
            b.set_factor(g, b.factor[g]);
            if constexpr (PairFactors<F>) b.set_min_factor(g, b.min_factor[g]);
        }
    }

    float levels(const Draft<F>& b, int g, int64_t first) {
        for (int i = 0; i < group; ++i) level_[i] = b.level(g * group + i);
        return combine(first, level_, along_);
    }

    const Span& s_;
    std::vector<Draft<F>>& blocks_;
    float level_[group];        // of the group at hand
    std::vector<float> slope_;  // e H
    std::vector<float> along_, along_ones_, along_block_, along_minima_;
};
