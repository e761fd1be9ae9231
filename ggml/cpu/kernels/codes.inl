// Sources of integer-coded weights for the int8 micro-kernel: the packed layout as it streams by, and a
// panel of unpacked codes, as bytes or words, that stays in the cache. All give the same codes, scales and
// minima.

template <int n>
using Constant = std::integral_constant<int, n>;
// fn(0), fn(1), … fn(n - 1), written out; each number is a constant.
template <int n, class Fn>
[[gnu::always_inline]] inline void each_of(const Fn& fn) {
    if constexpr (n > 1) each_of<n - 1>(fn);
    fn(Constant<n - 1>());
}

template <int n>  // n > 0 towards low bits, n < 0 towards high bits; stray bits are masked off by the caller
inline I shifted(I v) {
    if constexpr (n > 0) return shift_right<n>(v);
    if constexpr (n < 0) return shift_left<-n>(v);
    return v;
}

// The sum of a row's products with codes around `zero` begins at -zero * sum(x). Kept is -sum(x), times the
// weights' offset or, where they have none, the zero of four bits.
constexpr int sum_unit = weight_offset > 0 ? weight_offset : 8;
template <int zero>
inline I start_of(I kept) {
    if constexpr (zero == 0) return set1_i(0);
    if constexpr (zero > sum_unit) return shift_left<__builtin_ctz(zero / sum_unit)>(kept);
    if constexpr (zero > 0 && zero < sum_unit)
        return shift_right_signed<__builtin_ctz(sum_unit / zero)>(kept);
    return kept;
}

// Codes that lie in pieces, where bytes can be shifted by themselves: their bits from `to` on are the
// uppermost of each byte, whatever is below them.
template <int bits, int j, int to, class Bytes>
[[gnu::always_inline]] inline I from_top(const I* vectors) {
    constexpr CodePiece p = code_piece(bits, j, to);
    const I piece = shifted<p.at + p.n - 8>(vectors[p.vector]);
    if constexpr (to + p.n == bits)
        return piece;
    else
        return Bytes::template below<bits - to - p.n>(from_top<bits, j, to + p.n, Bytes>(vectors), piece);
}

// The codes of quad j of a block, from their bit `to` on. Inlined by force, like load_codes() and begin()
// below: called, they would hand vectors over through memory.
template <int bits, int j, int to = 0, class Bytes = ByteOps>
[[gnu::always_inline]] inline I quad_of(const I* vectors) {
    constexpr CodePiece p = code_piece(bits, j, to);
    const I v = vectors[p.vector];
    if constexpr (p.n == 8) {
        return v;
    } else if constexpr (!std::is_void_v<Bytes> && p.at + p.n == 8 && p.n == bits) {
        return Bytes::template shift_right<p.at>(v);
    } else if constexpr (!std::is_void_v<Bytes> && p.n < bits) {
        return Bytes::template shift_right<8 - bits>(from_top<bits, j, 0, Bytes>(vectors));
    } else {
        const I piece = and_i(shifted<p.at - to>(v), set1_i8(((1 << p.n) - 1) << to));
        if constexpr (to + p.n == bits)
            return piece;
        else
            return or_i(piece, quad_of<bits, j, to + p.n, Bytes>(vectors));
    }
}

template <int bits>
[[gnu::always_inline]] inline void load_codes(const std::byte* p, I (&vectors)[bits]) {
    constexpr int vec = lanes * 4;
#pragma GCC unroll 8
    for (int i = 0; i < bits; ++i) {
        vectors[i] = load_i(p + i * vec);
        if (8 % bits != 0) in_order();  // pieces do not ask for the last ones first
    }
    if constexpr (bits == 8 && loads_in_pairs) in_order();
}

template <class F>
using PackedOf = Packed<F, lanes>;

// What codes are multiplied with added. Where products of signed weights cost more than others, a table has a
// zero if its levels leave room for it.
constexpr bool signs_cost = !std::is_same_v<decltype(unsigned_weights(I())), decltype(signed_weights(I()))>;
constexpr int zero_of(const CodeLayout& codes) {
    if (!codes.is_signed) return codes.zero;
    return signs_cost && codes.table_zero() > 0 ? codes.table_zero() : weight_offset;
}

// Quads out of n whose products with codes up to `largest` still fit 16 bits added up; each number is the sum
// of two products. 0: this instruction set adds no numbers of 16 bits.
constexpr int quads_in_short(int largest, int n) {
    while (n > 1 && n * 2 * largest * 127 > 32767) n /= 2;
    return short_sums ? n : 0;
}

// Formats whose blocks have two integers to one scale, see CodeStream::joins.
template <class Fmt>
constexpr bool joins_halves =
    !short_sums && PackedOf<Fmt>::halves == 2 && PackedOf<Fmt>::codes.products_fit_bytes();

// Formats of two integers likewise, see CodeStream::widens.
template <class Fmt>
constexpr bool widens_halves =
    PackedOf<Fmt>::codes.factor_bits > 0 && PackedOf<Fmt>::halves == 2 && widening_multiplies;

// Two numbers of 16 bits in each lane.
inline I words_of(I low, I high) { return or_i(and_i(low, set1_i(0xffff)), shift_left<16>(high)); }

// The lowest bytes of each byte of a lane times the lane's word, which it holds twice.
inline I times_word(I codes, I words) {
    const I even = mul_i16(codes, words);
    const I odd = mul_i16(and_i(codes, set1_i(static_cast<int>(0xff00ff00u))), words);
    return or_i(and_i(even, set1_i(0x00ff00ff)), odd);
}

// Streams the spans of groups of rows of format Fmt.
template <class Fmt>
struct CodeStream {
    using P = PackedOf<Fmt>;
    static constexpr int vectors = 1;
    // Halves of a block whose scales are integers times one number: their sums are joined by these, and
    // panels hold codes times them, so that every row is spared a scale. (Where sums are of 16 bits, larger
    // codes would cost more than that.)
    static constexpr bool joins = joins_halves<Fmt>;
    // Where sums of 16 bits are widened by a product, these integers are its factors, and nothing else is
    // left to do for them.
    static constexpr bool widens = widens_halves<Fmt>;
    static constexpr int halves = joins || widens ? 1 : P::halves, min_halves = P::halves;
    static constexpr int zero = zero_of(P::codes);
    static constexpr bool has_min = P::has_min, is_signed = P::codes.is_signed && zero == weight_offset;
    static constexpr bool has_factors = P::codes.scales == ScaleKind::factor;
    static constexpr int short_quads =
        quads_in_short(P::codes.largest() + (P::codes.table ? zero : 0), 8 / P::halves);
    // What panel_codes() gives.
    static constexpr bool panel_signed = is_signed || (joins && zero > 0);
    static constexpr int panel_zero = joins && zero > 0 ? weight_offset : zero;
    // Bytes would be widened quad by quad: panels of words take fewer instructions.
    static constexpr bool wants_words = word_sums && short_quads == 1 && P::halves == 1 && is_signed;
    static constexpr int64_t blocks = P::span / 32;                // of a span
    static constexpr int64_t together = has_factors ? blocks : 1;  // have numbers that are read once for all
    static constexpr bool streams = true, has_words = false, has_pairs = false;
    static constexpr int64_t row_block = int8_block;  // bytes of 32 activations of a row

    const std::byte* group;
    int64_t stretch, left;  // bytes it goes through without a gap, and of these from `group` on
    int64_t jump;           // over the others' behind its end
    int64_t far, near;      // what is asked for is so many bytes ahead, see Streaming
    bool by_levels;
    int ahead_rows;  // so many rows of activations ask for it
    const std::byte* span;
    F d, dmin;                // of the span, where scales are integers times it
    I packed[P::codes.bits];  // codes of the block
    F scales[halves], mins[min_halves];
    I integers;  // of halves that are joined or widened, as words
    const CodeLayout* layout;
    Table16 table;

    // Rows of a layout that Fmt's kernels read. One of so many streams, whose stretches lie one behind the
    // other; how far ahead is for each of them.
    CodeStream(const std::byte* rows, const CodeLayout& of_rows, const Streaming& s, int64_t streams = 1,
               int64_t stretch_bytes = 0, int64_t left_bytes = 0)
        : group(rows),
          stretch(stretch_bytes),
          left(left_bytes),
          jump((streams - 1) * stretch),
          far(s.bytes),
          near(s.first_level),
          by_levels(s.by_levels),
          ahead_rows(has_factors ? s.factor_rows : s.code_rows),
          layout(&of_rows) {
        if constexpr (P::codes.table) table = load_table(layout->levels.data(), zero);
    }

    static F scale_at(const std::byte* scales, int64_t i) {
        const std::byte* p = scales + i * P::per_scale;
        F v;
        if constexpr (P::codes.scales == ScaleKind::f16) v = load_f16(reinterpret_cast<const uint16_t*>(p));
        if constexpr (P::codes.scales == ScaleKind::bf16) v = load_bf16(reinterpret_cast<const uint16_t*>(p));
        if constexpr (P::codes.scales == ScaleKind::f32) v = load(reinterpret_cast<const float*>(p));
        if constexpr (P::codes.scales == ScaleKind::factor) v = to_float(load_s8(p));
        if constexpr (P::codes.table_scale != 1 && !has_factors) v = v * set1(P::codes.table_scale);
        return v;
    }
    static constexpr int64_t share = (P::span_bytes + blocks - 1) / blocks;  // bytes of a block, with scales
    // Blocks of a turn, where streams are multiplied in turn, and how far ahead they ask: what a stream
    // begins its next turn with has to come while it is the others'. Only processors that look ahead by
    // levels have several.
    static constexpr int64_t turn = 8;
    static constexpr Streaming in_turn{.bytes = 3 * turn / 2 * share, .by_levels = true, .first_level = 1024};
    static_assert(turn % together == 0);
    // Asks for the shares that n blocks have of their spans, some way ahead; behind its own end it goes on
    // behind the others', unless it is alone.
    template <int n = 1, bool alone = most_streams == 1>
    [[gnu::always_inline]] void prefetch(int64_t block) const {
        const int64_t at = block * share;
        const int64_t past = !alone && at + far >= left ? jump : 0;
        ask_ahead<n * share>(group + at + past, far, near, by_levels);
    }
    [[gnu::always_inline]] void begin(int64_t block) {
        const auto from_zero = static_cast<uint64_t>(block);  // dividing takes a shift less
        enter(static_cast<int64_t>(from_zero / blocks));
        begin_in_span(static_cast<int64_t>(from_zero % blocks));
    }
    [[gnu::always_inline]] void enter(int64_t index) {
        span = group + index * P::span_bytes;
        if constexpr (has_factors) {
            d = load_f16(reinterpret_cast<const uint16_t*>(span));
            if constexpr (P::codes.table) d = d * set1(layout->table_scale);
            if constexpr (has_min) dmin = load_f16(reinterpret_cast<const uint16_t*>(span) + lanes);
        }
    }
    [[gnu::always_inline]] void begin_in_span(int64_t in_span) {
        if constexpr (joins || widens) {
            scales[0] = d;
            integers = load_s8_words(span + P::scales_at + in_span * 2 * P::per_scale);
        }
#pragma GCC unroll 2
        for (int h = 0; h < min_halves; ++h) {
            const int64_t i = in_span * 32 / P::group + h;
            if constexpr (!joins && !widens) {
                scales[h] = scale_at(span + P::scales_at, i);
                if constexpr (has_factors) scales[h] = scales[h] * d;
            }
            if constexpr (has_min) {
                mins[h] = scale_at(span + P::mins_at, i);
                if constexpr (has_factors) mins[h] = mins[h] * dmin;
            }
        }
        in_order();
        load_codes(span + P::codes_at + in_span * P::block_bytes, packed);
    }
    // Quad j, unpacked when it is asked for: not all instruction sets have registers for eight.
    template <int j>
    [[gnu::always_inline]] I codes(int /*v*/, Constant<j> /*j*/) const {
        const I quad = quad_of<P::codes.bits, j>(packed);
        if constexpr (P::codes.table) return look_up(table, quad);
        return quad;
    }
    static I start(I kept) { return start_of<zero>(kept); }
    F scale(int, int h) const { return scales[h]; }
    F min(int, int h) const { return mins[h]; }
    // What the sums of half h are widened by; both halves' side by side.
    template <int h>
    I factors(int /*v*/, Constant<h> /*h*/) const {
        return word_twice<h>(integers);
    }
    I both_factors(int /*v*/) const { return integers; }
    // Quads j and j + 1, weights two at a time (row_pairs.inl).
    template <int j>
    auto pairs(int v, Constant<j> at) const {
        return weight_pairs(codes(v, at), codes(v, Constant<j + 1>()));
    }
    // Sums of the halves, which fit words, times the halves' integers.
    static I joined(I first, I second, I integers) {
        static_assert(!joins || 16 * P::codes.largest() * 127 <= 32767);
        return dot_i16(words_of(first, second), integers);
    }
    // Quad j as a panel holds it.
    template <int j>
    [[gnu::always_inline]] I panel_codes(Constant<j> at) const {
        const I quad = codes(0, at);
        if constexpr (!joins) return quad;
        const I half = j < 4 ? integers : shift_right<16>(integers);
        const I product = times_word(zero > 0 ? sub_i8(quad, zero) : quad, words_of(half, half));
        return panel_zero > 0 ? xor_i(product, set1_i8(panel_zero)) : product;
    }
};

// Up to G sources, each a stretch behind the one before.
template <class Source, int G>
struct Neighbours {
    const Source& first;
    int64_t n = 1;

    Source operator[](int64_t i) const {
        Source source = first;
        if constexpr (G > 1) source.group += i * source.stretch;
        return source;
    }
};

// All that the layout and the kernels of panels depend on: most formats share them.
struct PanelKind {
    int vectors;  // groups of rows
    bool words;
    int halves, min_halves;
    bool has_min, is_signed;
    int zero, short_quads;
    bool widens;
};

// Codes that do not have to be short get the zero that costs a row least: none or, where weights have an
// offset, that.
template <class Stream>
constexpr PanelKind panel_kind(int vectors, bool words) {
    const int zero = short_sums || Stream::panel_zero == 0 ? Stream::panel_zero : weight_offset;
    return {vectors,
            words,
            Stream::halves,
            Stream::has_min ? Stream::min_halves : Stream::halves,
            Stream::has_min,
            Stream::panel_signed || zero != Stream::panel_zero,
            zero,
            Stream::short_quads,
            Stream::widens};
}

// A panel of groups of rows of a stream: per block and vector 8 quads, then scales, minima and factors.
// With `words`, codes are 16-bit words instead: of each quad a vector of the even ones and one of the odd
// ones. Where rows are multiplied two at a time, quads lie in pairs: low and high of two (row_pairs.inl).
template <PanelKind kind>
struct CodePanel {
    static constexpr int vectors = kind.vectors;
    static constexpr int halves = kind.halves, min_halves = kind.min_halves;
    static constexpr int zero = kind.zero;
    static constexpr bool has_min = kind.has_min, is_signed = kind.is_signed;
    static constexpr int short_quads = kind.short_quads;
    static constexpr bool streams = false;  // it is in the cache
    static constexpr bool joins = false, widens = kind.widens;
    static constexpr bool has_words = kind.words, has_pairs = dot_rows == 2;
    static_assert(!has_words || (halves == 1 && is_signed));
    static constexpr int64_t row_block = int8_block * (has_words ? 2 : 1);
    static constexpr int64_t vec = lanes * 4;
    static constexpr int64_t scales_at = vec * (has_words ? 16 : 8), mins_at = scales_at + vec * halves;
    static constexpr int64_t factors_at = mins_at + (has_min ? vec * min_halves : 0);
    static constexpr int64_t vector_bytes = factors_at + (widens ? vec * 3 : 0);
    static constexpr int64_t block_bytes = vectors * vector_bytes;
    static constexpr int64_t together = 1;
    static constexpr int64_t word_bytes = has_words ? stream_rows * row_block : 0;  // of a tile's block

    std::byte* panel;
    const std::byte* at = nullptr;

    // n blocks of rows as the panel wants them: where they are or, as words, in `memory`.
    static const int8_t* activations(const int8_t* q, int64_t n, std::byte* memory) {
        if constexpr (has_words) {
            for (int64_t i = 0; i < n; ++i) write_words(load_i(q + i * vec), memory + i * row_block);
            q = reinterpret_cast<const int8_t*>(memory);
        }
        return q;
    }
    void begin(int64_t block) { at = panel + block * block_bytes; }
    // Quad j; of words vector j.
    I codes(int v, int j) const { return load_i(at + v * vector_bytes + j * vec); }
    auto pairs(int v, int j) const {
        using Pairs = decltype(weight_pairs(codes(v, j), codes(v, j + 1)));
        return Pairs{codes(v, j), codes(v, j + 1)};
    }
    static I start(I kept) { return start_of<zero>(kept); }
    F scale(int v, int h) const {
        return load(reinterpret_cast<const float*>(at + v * vector_bytes + scales_at + h * vec));
    }
    F min(int v, int h) const {
        return load(reinterpret_cast<const float*>(at + v * vector_bytes + mins_at + h * vec));
    }
    I factors(int v, int h) const { return load_i(at + v * vector_bytes + factors_at + h * vec); }
    I both_factors(int v) const { return factors(v, 2); }
    // Vector v of the panel's blocks [0, n) from the stream's blocks [first, first + n).
    template <class Stream>
    void fill(Stream stream, int64_t first, int64_t n, int v) const {
        std::byte* p = panel + v * vector_bytes;
        for (int64_t b = 0; b < n; ++b, p += block_bytes) {
            stream.prefetch(first + b);
            stream.begin(first + b);
            each_of<4>([&](auto pair) __attribute__((always_inline)) {
                constexpr int j = 2 * pair;
                write(codes_of<j>(stream), codes_of<j + 1>(stream), p + j * (has_words ? 2 : 1) * vec);
            });
#pragma GCC unroll 2
            for (int h = 0; h < halves; ++h)
                store(reinterpret_cast<float*>(p + scales_at + h * vec), stream.scale(0, h));
            if constexpr (has_min)
#pragma GCC unroll 2
                for (int h = 0; h < min_halves; ++h)
                    store(reinterpret_cast<float*>(p + mins_at + h * vec), stream.min(0, h));
            if constexpr (widens) {
                each_of<2>([&](auto h) __attribute__((always_inline)) {
                    store_i(p + factors_at + h * vec, stream.factors(0, h));
                });
                store_i(p + factors_at + 2 * vec, stream.both_factors(0));
            }
        }
    }

  private:
    template <int j, class Stream>
    static I codes_of(const Stream& stream) {
        const I codes = stream.panel_codes(Constant<j>());
        return zero != Stream::panel_zero ? sub_i8(codes, Stream::panel_zero - zero) : codes;
    }
    // Two quads that follow each other.
    template <class Codes>
    static void write(Codes first, Codes second, std::byte* out) {
        if constexpr (has_words) {
            write_words(first, out);
            write_words(second, out + 2 * vec);
        } else if constexpr (has_pairs) {
            const auto pairs = weight_pairs(first, second);
            store_i(out, pairs.low);
            store_i(out + vec, pairs.high);
        } else {
            store_i(out, first);
            store_i(out + vec, second);
        }
    }
    template <class Codes>
    static void write_words(Codes codes, std::byte* out) {
        store_i(out, even_words(codes));
        store_i(out + vec, odd_words(codes));
    }
};

// A row's numbers of a block, in every lane.
struct OneRow {
    const Int8Block& block;
    const Int8Halves& halves;
    F d() const { return set1(block.d); }
    F d_sum() const { return set1(block.d_sum); }
    F d_sum(int half) const { return set1(halves.d_sum[half]); }
};

// `acc` and what the integer sum of half h of a block adds to it: all kernels do this alike, to the last bit.
// `row` has the numbers of the activations; `scale` and min(i) are the weights'.
template <class Source, class Row, class Min>
[[gnu::always_inline]] inline F add_scaled(int h, F scale, I sum, const Row& row, F acc, const Min& min) {
    constexpr int mins = Source::min_halves / Source::halves;
    acc = fma(to_float(sum), scale * row.d(), acc);
    if constexpr (Source::has_min)
#pragma GCC unroll 2
        for (int m = h; m < h + mins; ++m)
            acc = fma(min(m), Source::min_halves == 1 ? row.d_sum() : row.d_sum(m), acc);
    return acc;
}
// Of vector v of the block that the source is at.
template <class Source>
[[gnu::always_inline]] inline F add_scaled(const Source& source, int v, int h, F scale, I sum,
                                           const Int8Block& block, const Int8Halves& halves, F acc) {
    return add_scaled<Source>(
        h, scale, sum, OneRow{block, halves},
        acc, [&](int m) __attribute__((always_inline)) { return source.min(v, m); });
}
