// Products of int8 activations with codes on tiles, with the bits that vectors give: tiles make the integer
// sums of blocks of 32, which are exact, and vectors scale and add them up, block after block.

// A part of K of the weights of 16 columns as it is multiplied: codes as signed bytes, scales, minima.
template <class Fmt>
struct SignedCodes {
    using Stream = CodeStream<Fmt>;
    static constexpr int64_t blocks = Stream::turn;  // most of a part
    static constexpr int H = Stream::halves;
    static constexpr int64_t quad_bytes = lanes * 4, half_bytes = 8 / H * quad_bytes;

    struct Block {  // a source as matmul_int8.inl has them, but for the codes
        static constexpr int halves = H, min_halves = Stream::min_halves;
        static constexpr bool has_min = Stream::has_min;
        alignas(64) std::byte codes[8 * quad_bytes];
        float scales[H][lanes], mins[has_min ? min_halves : 1][lanes];

        F min(int, int m) const { return load(mins[m]); }
    };
    Block of[blocks];

    // Block `block` of a stream is the i-th one.
    [[gnu::always_inline]] void write(const Stream& from, int64_t block, int64_t i) {
        // Only what is known here: the processors that have tiles look ahead in the same way.
        Stream stream(from.group, *from.layout, Stream::in_turn, most_streams, from.stretch, from.left);
        Block& to = of[i];
        stream.prefetch(block);
        stream.begin(block);
        each_of<8>([&](auto j) __attribute__((always_inline)) {
            const I codes = stream.panel_codes(j);
            store_i(to.codes + j * quad_bytes,
                    Stream::panel_zero > 0 ? sub_i8(codes, Stream::panel_zero) : codes);
        });
#pragma GCC unroll 2
        for (int h = 0; h < H; ++h) store(to.scales[h], stream.scale(0, h));
        if constexpr (Stream::has_min)
#pragma GCC unroll 2
            for (int m = 0; m < Stream::min_halves; ++m) store(to.mins[m], stream.min(0, m));
    }
};

// Tiles are of R rows: what one has less of is multiplied all the same, and goes nowhere.
template <class Fmt>
class Int8Tiles {
    using Codes = SignedCodes<Fmt>;
    using Stream = typename Codes::Stream;
    using Streams = Neighbours<Stream, most_streams>;
    static constexpr int H = Codes::H, R = TileMultiplier::rows;
    static constexpr int64_t chunk = Codes::blocks;
    static constexpr int slots = 4, x = 4, w = 6;  // tile registers: of sums, and the first of the others

  public:
    static constexpr int64_t width = CodeStreams<Fmt>::width;
    static constexpr int64_t most_tiles = 2, most_rows = most_tiles * R;  // whose sums are added up together
    static constexpr int64_t sums_at = 2 * int64_t{sizeof(Codes)} + slots * R * lanes * 4;
    static constexpr int64_t bytes = sums_at + most_rows * width * 4;  // of memory

    Int8Tiles(const MatmulBlock& b, std::byte* memory)
        : b_(b),
          blocks_(b.k / int8_block),
          codes_(reinterpret_cast<Codes*>(memory)),
          products_(reinterpret_cast<int32_t*>(memory + 2 * sizeof(Codes))),
          sums_(reinterpret_cast<float*>(memory + sums_at)) {
        registers_.configure(1, [](TileConfig& config) {
            for (int slot = 0; slot < slots; ++slot) config.shape(slot, R, lanes * 4);
            for (const int t : {x, x + 1}) config.shape(t, R, int8_block / H);
            for (const int t : {w, w + 1}) config.shape(t, 8 / H, lanes * 4);
        });
    }
    const float* sums() const { return sums_; }

    // Of rows [r0, r0 + m), in tiles of which the last may be lower, and of the groups of these streams.
    void multiply(const Streams& streams, int64_t r0, int64_t m) {
        const int64_t tiles = (m + R - 1) / R, parts = (blocks_ + chunk - 1) / chunk * streams.n;
        for (int64_t t = 0; t < tiles; ++t) {
            const int64_t left = m - t * R, height = left < R ? left : R;
            rows_[t] = {b_.xq.tile(r0 + t * R, height, 0, b_.k), height};
        }
        // By every stream in turn; one behind the last has no blocks.
        const auto behind_of = [&](Part p) __attribute__((always_inline)) {
            ++p.number;
            if (++p.stream == streams.n) p.stream = 0, p.first += chunk;
            const int64_t left = p.number == parts ? 0 : blocks_ - p.first;
            p.blocks = left < chunk ? left : chunk;
            return p;
        };
        Part part{0, 0, 0, blocks_ < chunk ? blocks_ : chunk}, multiplied = part;
        const Stream first = stream_of(streams, part);
        for (int64_t i = 0; i < part.blocks; ++i) codes_of(0).write(first, i, i);
        int64_t tile = 0;
        int32_t* const products = products_;
        Next next = next_of(part, 0);
        // The next product. Behind the last one it is any.
        const auto product = [&]<int slot>() __attribute__((always_inline)) {
            run<slot>(next, products);
            if (slot + 1 < slots || next.left > 0) return;
            if (++tile == tiles) {
                tile = 0;
                if (multiplied.number + 1 < parts) multiplied = behind_of(multiplied);
            }
            next = next_of(multiplied, tile);
        };
        product.template operator()<0>();
        product.template operator()<1>();
        product.template operator()<2>();
        while (part.number < parts) {
            const Part behind = behind_of(part);
            for (int64_t t = 0; t < tiles; ++t)
                add(streams, part, t, t == 0 ? behind : Part{}, products, product);
            part = behind;
        }
    }

  private:
    // A product is stored two products later, when it is done, and added up after another.
    static constexpr int stored_behind = 2, added_behind = 3;

    struct Part {  // blocks of K of a stream's group
        int64_t number, stream, first, blocks;
    };
    Codes& codes_of(int64_t number) const { return codes_[number % 2]; }
    struct Rows {
        Int8Rows x;
        int64_t height;
    };

    // From the part on.
    static Stream stream_of(const Streams& streams, const Part& part) {
        Stream stream = streams[part.stream];
        skip(stream, part.first);
        return stream;
    }
    [[gnu::always_inline]] static void skip(Stream& stream, int64_t blocks) {
        const int64_t bytes = blocks / Stream::blocks * Stream::P::span_bytes;
        stream.group += bytes;
        stream.left -= bytes;
    }

    // Products of a part and a tile of rows. They go by four: the last ones may be of no block.
    struct Next {
        const typename Codes::Block* codes;
        const int8_t* q;
        int64_t q_step, left;
    };
    [[gnu::always_inline]] Next next_of(const Part& part, int64_t tile) const {
        const int64_t q_step = rows_[tile].height * int8_block;
        return {codes_of(part.number).of, rows_[tile].x.q + part.first * q_step, q_step,
                (part.blocks * H + slots - 1) / slots * slots};
    }
    template <int slot>
    [[gnu::always_inline]] static void run(Next& next, int32_t* products) {
        constexpr int h = slot % H, before = (slot + slots - stored_behind) % slots;
        tile_load<w + slot % 2, h * Codes::half_bytes>(next.codes->codes, lanes * 4);
        tile_load<x + slot % 2, h*(int8_block / H)>(next.q, int8_block);
        tile_store<before, before * R * lanes * 4>(products, lanes * 4);
        tile_zero<slot>();
        tile_dot_int8<slot, x + slot % 2, w + slot % 2>();
        --next.left;
        if (h + 1 < H) return;
        ++next.codes;
        next.q += next.q_step;
    }

    // The sums of a part and a tile of rows, while another part is made ready.
    template <class Product>
    [[gnu::always_inline]] void add(const Streams& streams, const Part& part, int64_t tile,
                                    const Part& behind, const int32_t* products,
                                    const Product& product) const {
        float* const c = sums_ + tile * R * width + part.stream * lanes;
        const int64_t height = rows_[tile].height;
        const Int8Block* blocks = rows_[tile].x.blocks + part.first * height;
        const Int8Halves* halves = rows_[tile].x.halves + part.first * height;
        const typename Codes::Block* codes = codes_of(part.number).of;
        Codes& to = codes_of(behind.number);
        Stream stream = stream_of(streams, behind);
        // Where whole spans are made ready between two looks at the number, blocks' places are constants.
        constexpr bool moves = Stream::blocks <= slots / H;
        F acc[R];
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r) acc[r] = part.first == 0 ? zero() : load(c + r * width);
        const auto step = [&]<int slot>(int64_t i) __attribute__((always_inline)) {
            constexpr int h = slot % H;
            if (h == 0 && i < behind.blocks) to.write(stream, moves ? slot / H : i, i);
            product.template operator()<(slot + added_behind) % slots>();
            if (i >= part.blocks) return;
            const F scale = load(codes->scales[h]);
#pragma GCC unroll 16
            for (int r = 0; r < R; ++r)
                acc[r] = add_scaled(*codes, 0, h, scale, load_i(products + (slot * R + r) * lanes), blocks[r],
                                    halves[r], acc[r]);
            if (h + 1 == H) ++codes, blocks += height, halves += height;
        };
        for (int64_t i = 0; i < part.blocks; i += slots / H) {
            step.template operator()<0>(i);
            step.template operator()<1>(i + 1 / H);
            step.template operator()<2>(i + 2 / H);
            step.template operator()<3>(i + 3 / H);
            if constexpr (moves) skip(stream, slots / H);
        }
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r) store(c + r * width, acc[r]);
    }

    const MatmulBlock& b_;
    int64_t blocks_;
    Codes* codes_;  // of a part and the next
    int32_t* products_;
    float* sums_;
    TileRegisters registers_;
    Rows rows_[most_tiles];
};

// Goes through the weights of a block as vectors do.
template <class Fmt>
inline void int8_product(const MatmulBlock& b) {
    using Tiles = Int8Tiles<Fmt>;
    Tiles tiles(b, b.scratch);
    each_streams<Fmt>(b, b.scratch + Tiles::bytes, [&](const CodeStreams<Fmt>& streams) {
        for (int64_t r = 0; r < b.m; r += Tiles::most_rows) {
            const int64_t m = b.m - r < Tiles::most_rows ? b.m - r : Tiles::most_rows;
            tiles.multiply(streams.of, r, m);
            streams.results(b, r, m, tiles.sums());
        }
    });
}

inline void multiply_int8(const MatmulBlock& b) {
    visit_codes<short_sums>(b.type->type, [&]<class Fmt>() { int8_product<Fmt>(b); });
}
