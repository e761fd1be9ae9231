// Memory that is asked for before it is read.
// Inlined by force: GCC 12 takes a function that does nothing else for one without effect.

// The lines of [p, p + bytes), which may lie outside every object, into the first cache or (locality 2) the
// second one.
template <int64_t bytes, int locality = 3>
[[gnu::always_inline]] inline void prefetch_lines(const std::byte* p) {
#pragma GCC unroll 16
    for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(p + i, 0, locality);
}

// The lines of [p, p + bytes), `far` ahead; by levels `near` as well, see Streaming.
template <int64_t bytes>
[[gnu::always_inline]] inline void ask_ahead(const std::byte* p, int64_t far, int64_t near, bool by_levels) {
    if (!by_levels) return prefetch_lines<bytes>(p + far);
#pragma GCC unroll 8
    for (int64_t i = 0; i < bytes; i += 64) {
        __builtin_prefetch(p + i + far, 0, 2);
        __builtin_prefetch(p + i + near);
    }
}

// Loads before it stay before those behind it. Of lines that a compiler reads in another order than they lie
// in, hardware makes out no stream, and does not look ahead.
[[gnu::always_inline]] inline void in_order() { __atomic_signal_fence(__ATOMIC_SEQ_CST); }
