// Attention in f32, and the joining of what it left of its splits, whatever numbers it was made in.
// Joined in the order of the splits, as attend() does that is not split.

inline void attention_block(const AttentionBlock& b) { attend<Reals>(b); }

inline void attention_merge_block(const AttentionBlock& b) {
    const AttentionParams& p = *b.params;
    const int64_t group = p.n_heads / p.n_kv_heads;
    Reals::Multiplier multiplier;
    const AttentionTile<Reals> t(p, group, reinterpret_cast<float*>(b.scratch), multiplier);
    for (int64_t i = 0; i < b.n_tokens; ++i) {
        for (int64_t g = 0; g < group; ++g) {
            const int64_t head = b.kv_head * group + g;
            float m = -infinity, l = 0;
            std::memset(t.total_o, 0, static_cast<size_t>(t.v_cols) * 4);
            for (int64_t split = b.split_begin; split < b.split_end; ++split) {
                if (!sees_split(b, i, split)) continue;
                const float* record = b.partial + i * b.partial_stride +
                                      ((split - b.split_begin) * p.n_heads + head) * partial_floats(p);
                join(m, l, t.total_o, record[0], record[1], record + partial_header, t.v_cols);
            }
            write_row(p, m, l, t.total_o, b.sinks ? b.sinks + head : nullptr,
                      b.out + i * b.out_stride + head * p.v_head_dim);
        }
    }
}

extern const AttentionKernels attention_kernels;
constinit const AttentionKernels attention_kernels{.bf16_products = false,
                                                   .scratch_bytes = tile_scratch<Reals>,
                                                   .tile_tokens = tile_tokens<Reals>,
                                                   .block = attention_block,
                                                   .merge = attention_merge_block};
