// Attention in pairs of bf16 where nothing forbids it; else, and for the joining of splits, by the kernels of
// namespace borrowed. A cache in f32 asks for all its digits: it is multiplied as it is.

template <class P>
inline void paired_attention(const AttentionBlock& b) {
    const AttentionParams& p = *b.params;
    const bool exact = b.k_cache.type == Type::f32 || b.v_cache.type == Type::f32;
    const bool whole = p.head_dim % P::size == 0 && p.page_size % P::size == 0;
    exact || !whole ? borrowed::attention.block(b) : attend<P>(b);
}

template <class P>
inline size_t paired_attention_scratch(const AttentionParams& p, int64_t tokens) {
    const size_t pairs = tile_scratch<P>(p, tokens), reals = borrowed::attention.scratch_bytes(p, tokens);
    return pairs > reals ? pairs : reals;
}

inline void borrowed_merge(const AttentionBlock& b) { borrowed::attention.merge(b); }

template <class P>
constexpr AttentionKernels paired_attention_kernels{.bf16_products = true,
                                                    .scratch_bytes = paired_attention_scratch<P>,
                                                    .tile_tokens = tile_tokens<P>,
                                                    .block = paired_attention<P>,
                                                    .merge = borrowed_merge};
