// A block's weights as streams of codes, of as many places at once as Streaming says. What few rows of
// activations are multiplied by, on vectors or tiles.

template <class Fmt>
struct CodeStreams {
    static constexpr int64_t width = most_streams * lanes;
    Neighbours<CodeStream<Fmt>, most_streams> of;
    int64_t n0, step;  // the first one's columns, and how far behind them the next one's are

    // Results of m rows from row r0 on: c[m x width].
    void results(const MatmulBlock& b, int64_t r0, int64_t m, const float* c) const {
        for (int64_t i = 0, at = n0; i < of.n; ++i, at += step)
            finish(b, at, b.n - at < lanes ? b.n - at : lanes, r0, m, c + i * lanes, width);
    }
};
// Calls fn(streams) until they have gone through the weights of the block, which are packed into `memory`,
// most_streams groups of them, where they are not.
template <class Fmt, class Fn>
inline void each_streams(const MatmulBlock& b, std::byte* memory, Fn fn) {
    const auto bytes = static_cast<int64_t>(packed_group_bytes(*b.type, b.k));
    const int64_t groups = (b.n + lanes - 1) / lanes, wanted = (least_stretch + bytes - 1) / bytes;
    const int64_t streams = b.streaming.code_streams < most_streams ? b.streaming.code_streams : most_streams;
    Streaming each = b.streaming;
    each.bytes /= streams, each.first_level /= streams;
    // `run`: groups of a stream before it jumps; in memory that is packed into there is one of each.
    for (int64_t first = 0, run = 0; first < groups; first += streams * run) {
        const int64_t left = groups - first, most = left / streams;
        run = !b.packed || most < 1 ? 1 : most < wanted ? most : wanted;
        const int64_t n = left < streams ? left : streams;
        for (int64_t g = first; g < first + run; ++g) {
            const std::byte* const w = packed_group(b, g * lanes, memory, n);
            const CodeStream<Fmt> stream(w, *b.type->layout, each, streams, run * bytes,
                                         (first + run - g) * bytes);
            fn(CodeStreams<Fmt>{{stream, n}, g * lanes, run * lanes});
        }
    }
}
