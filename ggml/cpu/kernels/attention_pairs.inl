// Attention in pairs where nothing forbids it; the table of instruction sets that have them.
// A cache in f32 asks for all its digits: it is multiplied as it is.
inline void paired_attention(const AttentionBlock& b) {
    const AttentionParams& p = *b.params;
    const bool exact = b.k_cache.type == Type::f32 || b.v_cache.type == Type::f32;
    const bool whole = p.head_dim % Pairs::size == 0 && p.page_size % Pairs::size == 0;
    return exact || !whole ? attend<Reals>(b) : attend<Pairs>(b);
}

inline size_t paired_scratch(const AttentionParams& p) {
    const int64_t rows = scratch_rows(p), reals = AttentionTile<Reals>::floats(p, rows),
                  pairs = AttentionTile<Pairs>::floats(p, rows);
    return static_cast<size_t>(padded(reals > pairs ? reals : pairs)) * sizeof(float);
}

constexpr KernelTable make_paired_table(std::string_view name, std::string_view needs,
                                        bool (*available)(const Features&)) {
    KernelTable t = make_table(name, needs, available);
    t.attention_scratch_bytes = paired_scratch;
    t.attention = paired_attention;
    return t;
}
