// Rounding a span of a row column after column, each of which makes up for what those before it have lost.
// Scales are searched when their group's turn comes; a superblock's own factors before its first column.
// Included after search_revise.inl into the same namespace.

inline void lose(const Span& s, int64_t i, float rounded) {
    s.x[i] -= rounded;
    s.lost[i] -= rounded;
    add_row(s.x, s.lost[i], s.costs.carry + i * s.n(), i, s.n());
}

// The first rounding of a block whose first column is `at`.
template <class F>
void round_in_order(const Span& s, int64_t at, Draft<F>& b) {
    const float *const x = s.x + at, *const w = s.costs.importance + at;
    b.open(x, w);
    for (int g = 0; g < b.groups; ++g) {
        const int first = g * b.group;
        b.choose(g, x + first, w + first);
        const float inverse = inverse_or_zero(b.scale[g]);
        for (int i = first; i < first + b.group; ++i) {
            b.q[i] = b.nearest((x[i] - b.min[g]) * inverse);
            lose(s, at + i, b.scale[g] * b.level(i) + b.min[g]);
        }
    }
}

void round_span(Type type, float* lost, float* x, const SpanCosts& costs, std::byte* dst) {
    visit_format(type, [&]<class F>() {
        if constexpr (Searchable<F>) {
            const Span s{costs, lost, x};
            std::vector<Draft<F>> blocks(static_cast<size_t>(s.n()) / F::block_len);
            int64_t at = 0;
            for (Draft<F>& b : blocks) {
                round_in_order(s, at, b);
                at += F::block_len;
            }
            Revision<F>(s, blocks).run();
            for (Draft<F>& b : blocks) {
                typename F::Block packed;
                b.pack(packed);
                std::memcpy(dst, &packed, sizeof packed);
                dst += sizeof packed;
            }
        }
    });
}
