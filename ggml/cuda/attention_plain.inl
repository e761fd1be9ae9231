// Attention for what the tile kernel leaves: caches of f32, head dimensions that are not a multiple of 16,
// pages of odd sizes. A thread per key, then a thread per column; everything in f32.

constexpr int plain_threads = 128;

inline size_t plain_shared_bytes(const AttentionParams& p) {
    return static_cast<size_t>(p.head_dim + p.v_head_dim + plain_threads + plain_threads / 32) *
           sizeof(float);
}

__device__ inline float cache_value(Type type, const std::byte* row, int i) {
    const auto block = [&](int bytes) { return row + i / 32 * bytes; };
    const auto scale = [](const std::byte* b) {
        return half_to_float(*reinterpret_cast<const uint16_t*>(b));
    };
    switch (type) {
        case Type::f16:
            return half_to_float(reinterpret_cast<const uint16_t*>(row)[i]);
        case Type::bf16:
            return bf16_to_float(reinterpret_cast<const uint16_t*>(row)[i]);
        case Type::q8_0: {
            const auto* const codes = reinterpret_cast<const int8_t*>(block(34) + 2);
            return scale(block(34)) * static_cast<float>(codes[i % 32]);
        }
        case Type::q4_0: {
            const auto* const codes = reinterpret_cast<const uint8_t*>(block(18) + 2);
            const int code = codes[i % 16] >> (i % 32 < 16 ? 0 : 4) & 15;
            return scale(block(18)) * static_cast<float>(code - 8);
        }
        default:
            return reinterpret_cast<const float*>(row)[i];
    }
}

// The sequence that has this token in the step, or -1.
__device__ inline int sequence_of(const AttentionArgs& a, int64_t token) {
    int owner = -1;
    for (int64_t s = lane(); s < a.seq_rows.rows; s += 32) {
        const int32_t* const r = a.seq_rows.row<int32_t>(s);
        if (r[0] <= token && token < int64_t{r[0]} + r[1]) owner = static_cast<int>(s);
    }
    return warp_max(owner);
}

// Block x: the token; y: the head.
__global__ void __launch_bounds__(plain_threads) plain_kernel(AttentionArgs a) {
    wait_for_previous();
    const AttentionParams& p = a.p;
    auto* const query = reinterpret_cast<float*>(shared_memory());
    float* const value = query + p.head_dim;
    float* const weights = value + p.v_head_dim;
    float* const partial = weights + plain_threads;
    const int64_t token = block_x();
    const int head = block_y(), kv_head = head / a.group, sequence = sequence_of(a, token);
    if (sequence < 0) return;
    for (int i = thread_index(); i < p.head_dim; i += plain_threads)
        query[i] = a.q.row(token)[head * p.head_dim + i];
    for (int i = thread_index(); i < p.v_head_dim; i += plain_threads) value[i] = 0;
    const int position = *a.positions.row<int32_t>(token);
    const int from = p.window > 0 && position >= p.window ? position - p.window + 1 : 0;
    const int32_t* const table = a.page_table.row<int32_t>(sequence);
    const auto cache_row = [&](int at) {
        const int page = at / p.page_size < a.page_table.cols ? table[at / p.page_size] : -1;
        return page < 0 ? -1 : (int64_t{page} * p.n_kv_heads + kv_head) * p.page_size + at % p.page_size;
    };
    Softmax total;
    for (int base = from; base <= position; base += plain_threads) {
        sync_block();
        const int at = base + thread_index();
        const int64_t row = at <= position ? cache_row(at) : -1;
        float s = -INFINITY;
        if (row >= 0) {
            const auto* const k = a.k_cache.row<std::byte>(row);
            s = 0;
            for (int i = 0; i < p.head_dim; ++i) s = fmaf(query[i], cache_value(a.k_type, k, i), s);
            s *= p.scale;
            if (p.softcap > 0) s = p.softcap * tanhf(s / p.softcap);
            s *= log2e;
        }
        Softmax next{block_max(s, partial), 0};
        const float weight = exp2f(s - (next.most == -INFINITY ? 0 : next.most));
        weights[thread_index()] = weight;
        next.sum = block_sum(weight, partial);
        const Join j = join(total, next);
        const int n = position - base + 1 < plain_threads ? position - base + 1 : plain_threads;
        for (int i = thread_index(); i < p.v_head_dim; i += plain_threads) {
            float sum = 0;
            for (int key = 0; key < n; ++key) {
                const int64_t v = cache_row(base + key);
                if (v >= 0)
                    sum = fmaf(weights[key], cache_value(a.v_type, a.v_cache.row<std::byte>(v), i), sum);
            }
            value[i] = joined(value[i], sum, j);
        }
    }
    const float scale = normaliser(total, a.sinks, head);
    for (int i = thread_index(); i < p.v_head_dim; i += plain_threads)
        a.out.row(token)[head * p.v_head_dim + i] = value[i] * scale;
}
