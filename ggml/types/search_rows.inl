// Encoding of a row with search: the shape of the format chooses the search, the better of it and plain wins.
// Included into a namespace that says how wide vectors are, once per instruction set.

// The shapes, told apart by the signature of F::pack.
template <class F>
concept OneScale = requires(const uint8_t* q, const float* scale, typename F::Block& b) {
    F::pack(q, scale, b);
};
template <class F>
concept ListedScale = requires {
    F::scale_code(1.0f);
};
template <class F>
concept OneLine = requires(const uint8_t* q, typename F::Block& b) {
    F::pack(q, 1.0f, 1.0f, b);
};
template <class F>
concept ScaleFactors = requires {
    F::nearest_factor(1.0f);
};
template <class F>
concept PairFactors = requires(const uint8_t* q, typename F::Block& b) {
    F::pack(q, q, q, uint16_t{}, uint16_t{}, b);
};
template <class F>
concept Searchable = OneScale<F> || ListedScale<F> || OneLine<F> || ScaleFactors<F> || PairFactors<F>;

template <class F>
void search_block(const float* x, const float* w, typename F::Block& b) {
    if constexpr (OneScale<F>)
        encode_scale<F>(x, w, b);
    else if constexpr (ListedScale<F>)
        encode_listed_scale<F>(x, w, b);
    else if constexpr (OneLine<F>)
        encode_line<F>(x, w, b);
    else if constexpr (ScaleFactors<F>)
        encode_factors<F>(x, w, b);
    else
        encode_pairs<F>(x, w, b);
}

float mean_square(const float* x, size_t n) {
    float sum[8] = {};
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (size_t l = 0; l < 8; ++l) sum[l] += x[i + l] * x[i + l];
    for (; i < n; ++i) sum[0] += x[i] * x[i];
    float total = 0;
    for (const float s : sum) total += s;
    return n > 0 ? total / static_cast<float>(n) : 0;
}

template <class F>
void search_row(const float* x, const float* importance, std::byte* dst, size_t n) {
    constexpr int len = F::block_len;
    const float square = importance ? 0 : mean_square(x, n);
    float computed[len], y[len];
    for (size_t i = 0; i < n; i += len, dst += sizeof(typename F::Block)) {
        const float* w = importance ? importance + i : computed;
        if (!importance)
            for (size_t j = 0; j < len; ++j) computed[j] = square + x[i + j] * x[i + j];
        typename F::Block plain, found;
        F::encode(x + i, plain);
        search_block<F>(x + i, w, found);
        F::decode(plain, y);
        const float plain_error = weighted_error<len>(x + i, w, y);
        F::decode(found, y);
        // A margin for the rounding of the two sums; NaN (weights or values out of range) keeps the plain
        // one.
        const bool better = weighted_error<len>(x + i, w, y) < plain_error * 0.99999f;
        std::memcpy(dst, better ? &found : &plain, sizeof plain);
    }
}

void encode_with_search(Type type, const float* x, const float* importance, std::byte* dst, size_t n) {
    visit_format(type, [&]<class F>() {
        if constexpr (Searchable<F>)
            search_row<F>(x, importance, dst, n);
        else if (info(type).encode)
            info(type).encode(x, dst, n);
    });
}
