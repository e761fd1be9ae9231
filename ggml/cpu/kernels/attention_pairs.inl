// Attention in pairs of bf16 where nothing forbids it.
// A cache in f32 asks for all its digits: it is multiplied as it is.
struct Pairs::Multiplier : FmaMultiplier<Pairs> {};

template <class P>
inline void paired_attention(const AttentionBlock& b) {
    const AttentionParams& p = *b.params;
    const bool exact = b.k_cache.type == Type::f32 || b.v_cache.type == Type::f32;
    const bool whole = p.head_dim % P::size == 0 && p.page_size % P::size == 0;
    return exact || !whole ? attend<Reals>(b) : attend<P>(b);
}

template <class P>
inline size_t paired_attention_scratch(const AttentionParams& p) {
    const int64_t rows = scratch_rows(p), reals = AttentionTile<Reals>::floats(p, rows),
                  pairs = AttentionTile<P>::floats(p, rows);
    return static_cast<size_t>(padded(reals > pairs ? reals : pairs)) * sizeof(float);
}
