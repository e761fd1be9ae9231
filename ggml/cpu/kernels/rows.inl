// Kernels on single rows: conversion, norm, activation, addition, rotation.
// Tails go through masked loads and the same arithmetic, so a value does not depend on its column.

inline void encode_row(const TypeInfo& type, const float* src, std::byte* dst, int64_t n) {
    if (type.type == Type::f32) {
        std::memcpy(dst, src, static_cast<size_t>(n) * 4);
        return;
    }
    int64_t i = 0;
    if (type.type == Type::f16)
        for (; i + lanes <= n; i += lanes) store_f16(reinterpret_cast<uint16_t*>(dst) + i, load(src + i));
    const int64_t blocks = i / type.block_len;
    if (i < n) type.encode(src + i, dst + blocks * type.block_bytes, static_cast<size_t>(n - i));
}

// Sum of x - shift, or of its squares, over n floats in two interleaved chains; the order depends on n alone.
template <bool squares>
inline float row_sum(const float* x, int64_t n, float shift) {
    F chain[2] = {zero(), zero()};
    const F s = set1(shift);
    int64_t i = 0;
    for (; i + 2 * lanes <= n; i += 2 * lanes)
        for (int c = 0; c < 2; ++c) {
            const F u = load(x + i + c * lanes) - s;
            chain[c] = squares ? fma(u, u, chain[c]) : chain[c] + u;
        }
    float tail = 0;
    for (; i < n; ++i) tail += squares ? (x[i] - shift) * (x[i] - shift) : x[i] - shift;
    return sum(chain[0] + chain[1]) + tail;
}

inline void norm_row(const NormBlock& b) {
    const int64_t group = b.params->group > 0 ? b.params->group : b.cols;
    for (int64_t at = 0; at < b.cols; at += group) {
        const float* x = b.x + at;
        const int64_t first = b.params->by_column ? at : 0;
        const float count = static_cast<float>(group);
        const float mean = b.params->subtract_mean ? row_sum<false>(x, group, 0) / count : 0;
        const float variance = row_sum<true>(x, group, mean) / count;
        const F inverse = set1(1 / __builtin_sqrtf(variance + b.params->eps)), shift = set1(mean);
        for (int64_t i = 0; i < group; i += lanes) {
            const int64_t n = group - i < lanes ? group - i : lanes;
            F y = (load_n(x + i, n) - shift) * inverse;
            if (b.weight) y = y * load_n(b.weight + first + i, n);
            if (b.bias) y = y + load_n(b.bias + first + i, n);
            if (b.residual) y = y + load_n(b.residual + at + i, n);
            store_n(b.out + at + i, y, n);
        }
    }
}

template <Activation act>
inline F activated(F x) {
    if constexpr (act == Activation::silu) return silu(x);
    if constexpr (act == Activation::gelu_tanh) return gelu_tanh(x);
    if constexpr (act == Activation::gelu_erf) return gelu_erf(x);
    if constexpr (act == Activation::relu) return max(zero(), x);
    if constexpr (act == Activation::tanh) return tanh(x);
    if constexpr (act == Activation::gelu_quick) return gelu_quick(x);
    if constexpr (act == Activation::sigmoid) return sigmoid(x);
    if constexpr (act == Activation::relu_squared) return max(zero(), x) * max(zero(), x);
    if constexpr (act == Activation::softplus) return softplus(x);
    return x;
}

template <Activation act>
struct ActivationTag {
    static constexpr Activation value = act;
};
// Calls fn with the activation as a type, so that the choice is made once per row. Inlined by force: rows may
// be as short as a block, and fn would be handed over through memory.
template <class Fn>
[[gnu::always_inline]] inline void with_activation(Activation act, const Fn& fn) {
    switch (act) {
        case Activation::silu:
            return fn(ActivationTag<Activation::silu>{});
        case Activation::gelu_tanh:
            return fn(ActivationTag<Activation::gelu_tanh>{});
        case Activation::gelu_erf:
            return fn(ActivationTag<Activation::gelu_erf>{});
        case Activation::relu:
            return fn(ActivationTag<Activation::relu>{});
        case Activation::tanh:
            return fn(ActivationTag<Activation::tanh>{});
        case Activation::none:
            return fn(ActivationTag<Activation::none>{});
        case Activation::gelu_quick:
            return fn(ActivationTag<Activation::gelu_quick>{});
        case Activation::sigmoid:
            return fn(ActivationTag<Activation::sigmoid>{});
        case Activation::relu_squared:
            return fn(ActivationTag<Activation::relu_squared>{});
        case Activation::softplus:
            return fn(ActivationTag<Activation::softplus>{});
        case Activation::xielu:
            return fn(ActivationTag<Activation::xielu>{});
    }
}

template <Activation act>
inline void glu_with(const float* gate, const float* up, float* out, int64_t n) {
    for (int64_t i = 0; i < n; i += lanes) {
        const int64_t count = n - i < lanes ? n - i : lanes;
        store_n(out + i, activated<act>(load_n(gate + i, count)) * load_n(up + i, count), count);
    }
}

// The second operand of min and max is the one that may be a NaN, which stays.
template <Activation act>
inline void glu_limited(const GluParams& p, const float* gate, const float* up, float* out, int64_t n) {
    const F limit = set1(p.limit > 0 ? p.limit : __builtin_inff()), shift = set1(p.up_shift);
    for (int64_t i = 0; i < n; i += lanes) {
        const int64_t count = n - i < lanes ? n - i : lanes;
        const F g = min(limit, load_n(gate + i, count));
        const F u = max(zero() - limit, min(limit, load_n(up + i, count)));
        store_n(out + i, activated<act>(g) * (u + shift), count);
    }
}

inline void glu_row(const GluParams& p, const float* gate, const float* up, float* out, int64_t n) {
    const bool plain = p.limit == 0 && p.up_shift == 0;
    with_activation(p.act, [&](auto tag) {
        plain ? glu_with<decltype(tag)::value>(gate, up, out, n)
              : glu_limited<decltype(tag)::value>(p, gate, up, out, n);
    });
}

inline F xielu(const XieluParams& p, F x) {
    const F above = max(zero(), x), below = min(zero(), x);
    return fma(set1(p.alpha_p) * above, above, fma(set1(p.alpha_n), exp_less_line(below), set1(p.beta) * x));
}

template <Activation act>
inline void activate_with(const ActivateParams& p, const float* x, float* out, int64_t n) {
    const F before = set1(p.in_scale), after = set1(p.out_scale);
    for (int64_t i = 0; i < n; i += lanes) {
        const int64_t count = n - i < lanes ? n - i : lanes;
        const F u = before * load_n(x + i, count);
        if constexpr (act == Activation::xielu)
            store_n(out + i, after * xielu(p.xielu, u), count);
        else
            store_n(out + i, after * activated<act>(u), count);
    }
}

inline void activate_row(const ActivateParams& p, const float* x, float* out, int64_t n) {
    with_activation(p.act, [&](auto tag) { activate_with<decltype(tag)::value>(p, x, out, n); });
}

inline void add_row(const float* a, const float* b, float scale, float* out, int64_t n) {
    const F s = set1(scale);
    for (int64_t i = 0; i < n; i += lanes) {
        const int64_t count = n - i < lanes ? n - i : lanes;
        store_n(out + i, fma(s, load_n(b + i, count), load_n(a + i, count)), count);
    }
}

inline void scaled_row(const float* x, float factor, int64_t n, float* out) {
    const F s = set1(factor);
    for (int64_t i = 0; i < n; i += lanes) {
        const int64_t count = n - i < lanes ? n - i : lanes;
        store_n(out + i, load_n(x + i, count) * s, count);
    }
}
inline void scale_row(float* x, float factor, int64_t n) { scaled_row(x, factor, n, x); }

// Orthonormal Hadamard transform of every n of `dim` values, by log2 n rounds of sums and differences.
inline void hadamard_row(float* x, int64_t dim, int64_t n) {
    const float scale = 1 / __builtin_sqrtf(static_cast<float>(n));
    for (float* p = x; p < x + dim; p += n) {
        for (int64_t h = 1; h < n; h *= 2)
            for (int64_t i = 0; i < n; i += 2 * h)
                for (int64_t j = i; j < i + h; ++j) {
                    const float a = p[j], b = p[j + h];
                    p[j] = a + b;
                    p[j + h] = a - b;
                }
        for (int64_t i = 0; i < n; ++i) p[i] *= scale;
    }
}

// Left to the compiler's vectorizer: no sums, and no contraction, so every element rounds the same way.
inline void rope_row(const RopeStoreParams& p, int32_t n_heads, const float* table, const float* x,
                     float* out) {
    const int64_t half = table ? p.rot_dim / 2 : 0;
    const int64_t step = p.style == RopeStyle::half ? 1 : 2, partner = p.style == RopeStyle::half ? half : 1;
    for (int32_t h = 0; h < n_heads; ++h, x += p.head_dim, out += p.head_dim) {
        for (int64_t i = 0; i < half; ++i) {
            const float c = table[2 * i], s = table[2 * i + 1];
            const float a = x[i * step], b = x[i * step + partner];
            out[i * step] = a * c - b * s;
            out[i * step + partner] = a * s + b * c;
        }
        std::memcpy(out + 2 * half, x + 2 * half, static_cast<size_t>(p.head_dim - 2 * half) * sizeof(float));
        if (p.hadamard > 0) hadamard_row(out, p.head_dim, p.hadamard);
    }
}

extern const RowKernels row_kernels;
constinit const RowKernels row_kernels{.decode = decode_row,
                                       .encode = encode_row,
                                       .norm = norm_row,
                                       .glu = glu_row,
                                       .activate = activate_row,
                                       .add = add_row,
                                       .scale = scale_row,
                                       .rope = rope_row};
