// Memory that is asked for before it is read.
// Inlined by force: GCC 12 takes a function that does nothing else for one without effect.

// Levels of the cache, as the compiler counts them. The first one waits for few lines at a time: what is not
// needed soon is for the second one.
constexpr int first_level = 3, second_level = 2;

// The lines of [p, p + bytes), which may lie outside every object, into a level of the cache.
template <int64_t bytes, int level = first_level>
[[gnu::always_inline]] inline void prefetch_lines(const std::byte* p) {
#pragma GCC unroll 16
    for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(p + i, 0, level);
}

// The lines of [p, p + bytes), `far` ahead; by levels `near` as well, see Streaming.
template <int64_t bytes>
[[gnu::always_inline]] inline void ask_ahead(const std::byte* p, int64_t far, int64_t near, bool by_levels) {
    if (!by_levels) return prefetch_lines<bytes>(p + far);
#pragma GCC unroll 8
    for (int64_t i = 0; i < bytes; i += 64) {
        __builtin_prefetch(p + i + far, 0, second_level);
        __builtin_prefetch(p + i + near);
    }
}

// Loads before it stay before those behind it. Of lines that a compiler reads in another order than they lie
// in, hardware makes out no stream, and does not look ahead.
[[gnu::always_inline]] inline void in_order() { __atomic_signal_fence(__ATOMIC_SEQ_CST); }
