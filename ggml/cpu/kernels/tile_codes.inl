// Codes on their way to tiles of bf16: 32 columns of a group of rows become a tile of weights, quad by quad.
// What it costs is what few rows cost, so it keeps to instructions that do not wait for tiles.

// Byte i of every lane and `base`, as floats: the byte, below `base`, is the upper part of the fraction.
template <int i, int base>
inline F byte_and(I bytes) {
    static_assert(base == 128 || base == 256);
    constexpr int lowest_bit = base == 128 ? 16 : 15;
    if constexpr (base == 128 && i != 2) return as_float(Pairs::third_byte<i>(bytes, set1_i(0x43000000)));
    const I byte = and_i(shifted<8 * i - lowest_bit>(bytes), set1_i((base - 1) << lowest_bit));
    return as_float(or_i(byte, set1_i(base == 128 ? 0x43000000 : 0x43800000)));
}

// Codes become scale * code + minimum, rounded. Since the number that bytes come with is taken off in the
// same operation, that is off by at most a 65536th of the scale before it is rounded.
template <class Fmt>
struct CodeUnit {
    using Stream = CodeStream<Fmt>;
    const std::byte* group;
    const CodeLayout& layout;
    const Streaming& streaming;
    int64_t block;
    F scale[Stream::halves], base[Stream::min_halves];

    [[gnu::always_inline]] CodeUnit(const std::byte* of_group, const MatmulBlock& b, int64_t number)
        : group(of_group), layout(*b.type->layout), streaming(b.streaming), block(number) {
        Stream here(group, layout, streaming);
        here.begin(block);
#pragma GCC unroll 2
        for (int h = 0; h < Stream::halves; ++h) scale[h] = no_nan(here.scale(0, h));
#pragma GCC unroll 2
        for (int m = 0; m < Stream::min_halves; ++m) {
            const F s = scale[m * Stream::halves / Stream::min_halves];
            const F zero = set1(-byte_base - Stream::panel_zero);
            base[m] = zero * s;
            if constexpr (Stream::has_min) base[m] = fma(zero, s, no_nan(here.min(0, m)));
        }
    }
    // A quad of it, one of eight, into its place in the tile.
    template <int quad>
    [[gnu::always_inline]] void write(std::byte* tile) const {
        std::byte* const out = tile + quad * 2 * lanes * 4;
        Stream here(group, layout, streaming);
        if constexpr (quad == 0) here.prefetch(block);
        here.begin(block);
        const I q = here.panel_codes(Constant<quad>());
        const F s = scale[quad * Stream::halves / 8], m = base[quad * Stream::min_halves / 8];
        const auto value = [&]<int i>() { return fma(byte_and<i, byte_base>(q), s, m); };
        store_i(out, Pairs::join_near(value.template operator()<0>(), value.template operator()<1>()));
        store_i(out + lanes * 4,
                Pairs::join_near(value.template operator()<2>(), value.template operator()<3>()));
    }

  private:
    static constexpr bool plain = !Stream::P::codes.table && !Stream::panel_signed && !Stream::joins;
    static constexpr int byte_base = plain && Stream::P::codes.largest() < 128 ? 128 : 256;
    // What a NaN of any fraction would become by join_near() is a number; infinity makes NaNs of all codes.
    static F no_nan(F x) { return max(x, set1(-__builtin_inff())); }
};
