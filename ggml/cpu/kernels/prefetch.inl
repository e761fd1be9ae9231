// Memory that is asked for before it is read.
// Inlined by force: GCC 12 takes a function that does nothing else for one without effect.

// The lines of [p, p + bytes), which may lie outside every object.
template <int64_t bytes>
[[gnu::always_inline]] inline void prefetch_lines(const std::byte* p) {
#pragma GCC unroll 8
    for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(p + i);
}

// Loads before it stay before those behind it. Of lines that a compiler reads in another order than they lie
// in, hardware makes out no stream, and does not look ahead.
[[gnu::always_inline]] inline void in_order() { __atomic_signal_fence(__ATOMIC_SEQ_CST); }
