// Memory that is asked for before it is read.
// Inlined by force: GCC 12 takes a function that does nothing else for one without effect.

// The lines of [p, p + bytes), which may lie outside every object.
template <int64_t bytes>
[[gnu::always_inline]] inline void prefetch_lines(const std::byte* p) {
#pragma GCC unroll 8
    for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(p + i);
}

// The lines of [p, p + bytes) of a stream, the way ahead that Lookahead says. `unpacks`: a line is more work
// than reading it.
template <int64_t bytes, bool unpacks>
[[gnu::always_inline]] inline void ask_ahead(const std::byte* p, bool by_levels) {
    if (!by_levels) return prefetch_lines<bytes>(p + Lookahead::bytes);
#pragma GCC unroll 8
    for (int64_t i = 0; i < bytes; i += 64) {
        __builtin_prefetch(p + i + Lookahead::second_level, 0, 2);
        if constexpr (unpacks) __builtin_prefetch(p + i + Lookahead::first_level);
    }
}

// Loads before it stay before those behind it. Of lines that a compiler reads in another order than they lie
// in, hardware makes out no stream, and does not look ahead.
[[gnu::always_inline]] inline void in_order() { __atomic_signal_fence(__ATOMIC_SEQ_CST); }
