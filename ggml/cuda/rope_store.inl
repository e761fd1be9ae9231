// What becomes of queries, keys and values between their products and attention: as a kernel of its own, and
// as the end of a chain of products. A warp rotates up to 128 columns of one head of one token, four to a
// lane, and writes them to the queries or into the cache. A value's partner in the rotation is read a second
// time rather than exchanged: all that a lane needs is on its way at once, whichever columns are rotated with
// which. Keys and values are rounded to the cache's type as the format's own encode() does.

#include "ggml/cuda/norm.inl"

constexpr int head_part_columns = 128;  // that a warp takes

// How a lane reads its columns: in fours, where what they are rotated with lies in fours too.
enum class Reads : uint8_t { singly, fours };

// The norm that each head passes before it is rotated; a warp has all of it.
struct HeadNorm {
    const float* weight = nullptr;  // may be absent
    float eps = 0;
    bool on = false;
};

struct StoreArgs {
    View q, k, v, table, slots, k_cache, v_cache, out;
    RopeStoreParams p;
    Type k_type, v_type;
    int key_parts, value_parts;  // of a head, a warp each
    int warps;                   // of a token
    float scale;                 // of the Hadamard transform
    Reads reads;
    HeadNorm norm[2];  // of queries and keys
};

constexpr int parts_of(int dim) { return (dim + head_part_columns - 1) / head_part_columns; }

__device__ void read_four(const float* from, float (&v)[4]) {
    floats_of(*reinterpret_cast<const Words4*>(from), v);
}

// What turns columns c .. c + 3 of a head of a token, whichever head it is: cosines and sines, from `cs`
// unless that is null. No load depends on a condition: where there is nothing to read, something else is
// read.
struct Turn {
    bool on = false, half = false, upper = false;
    int partner = 0;    // where the columns are that these are rotated with, unless they are among them
    float pairs[2][4];  // as they were read

    __device__ Turn() {}
    // `any`: four numbers to be read.
    __device__ Turn(const float* cs, const float* any, int c, const RopeStoreParams& p)
        : on(cs && c < p.rot_dim), half(p.style == RopeStyle::half), upper(c >= p.rot_dim / 2) {
        const int apart = p.rot_dim / 2, lower = upper ? c - apart : c;
        partner = upper ? lower : c + apart;
        const float* const at = on ? cs + (half ? 2 * lower : c) : any;
        floats_of(read16(at), pairs[0]);
        floats_of(read16(on && half ? at + 4 : at), pairs[1]);
    }
    // Column c + j, times the first plus its partner times the second.
    __device__ float cosine(int j) const { return half ? pairs[j / 2][j % 2 * 2] : pairs[0][j / 2 * 2]; }
    __device__ float sine(int j) const {
        const float of = half ? pairs[j / 2][j % 2 * 2 + 1] : pairs[0][j / 2 * 2 + 1];
        return (half ? !upper : j % 2 == 0) ? -of : of;
    }
};

// Columns c .. c + 3 of a head on their way; then normed and turned. Where c is behind the last they are
// others.
struct HeadFour {
    float own[4], partner[4];

    // `turns`: whether the head does at all.
    __device__ void load(const float* head, int dim, int c, const Turn& turn, bool turns) {
        const int at = c < dim ? c : 0;
        floats_of(read16(head + at), own);
        floats_of(read16(head + (turns && turn.on && turn.half ? turn.partner : at)), partner);
    }
    __device__ float squares(int dim, int c) const { return with_squares<true>(0, own, dim, c, 0); }
    // With the bits of the norm by itself.
    __device__ void norm(const HeadNorm& norm, float factor, int dim, int c, const Turn& turn) {
        norm_four(norm, factor, c < dim ? c : 0, own);
        if (turn.on && turn.half) norm_four(norm, factor, turn.partner, partner);
    }
    __device__ void turn_by(const Turn& turn) {
        if (!turn.on) return;
        float other[4];
        for (int j = 0; j < 4; ++j) other[j] = turn.half ? partner[j] : own[j ^ 1];
        for (int j = 0; j < 4; ++j) own[j] = own[j] * turn.cosine(j) + other[j] * turn.sine(j);
    }

  private:
    __device__ static void norm_four(const HeadNorm& norm, float factor, int c, float (&v)[4]) {
        float weight[4] = {1, 1, 1, 1};
        if (norm.weight) read_four(norm.weight + c, weight);
        for (int j = 0; j < 4; ++j) v[j] = norm.weight ? v[j] * factor * weight[j] : v[j] * factor;
    }
};

// Columns c .. c + 3 of a head, normed, and rotated by `cs` unless that is null; zeros behind the last. The
// whole warp.
template <Reads reads>
__device__ void read_columns(const float* head, int dim, int c, const float* cs, const RopeStoreParams& p,
                             const HeadNorm& norm, float (&v)[4]) {
    if constexpr (reads == Reads::singly) {
        const int apart = p.rot_dim / 2;
        const bool turned = cs && c < p.rot_dim;
        for (int j = 0; j < 4; ++j) {
            const int at = c + j;
            v[j] = at < dim ? head[at] : 0;
            if (!turned || at >= p.rot_dim) continue;
            const bool half = p.style == RopeStyle::half, upper = half ? at >= apart : at % 2 != 0;
            const int i = !half ? at / 2 : upper ? at - apart : at, step = half ? apart : 1;
            const float partner = head[upper ? at - step : at + step] * cs[2 * i + 1];
            v[j] = upper ? v[j] * cs[2 * i] + partner : v[j] * cs[2 * i] - partner;
        }
    } else {
        const Turn turn(cs, head, c, p);
        HeadFour four;
        four.load(head, dim, c, turn, true);
        if (norm.on) {
            const float factor = factor_of_squares(warp_sum(four.squares(dim, c)), dim, norm.eps);
            four.norm(norm, factor, dim, c, turn);
        }
        four.turn_by(turn);
        for (int j = 0; j < 4; ++j) v[j] = four.own[j];
    }
}

// Every function below is called by the whole warp: a lane has the columns from 4 lane() on, or zeros.

// Of every n columns, or of all if those are more; not yet scaled.
__device__ inline void hadamard(float (&v)[4], int n) {
    for (int step = 1; step < 4 && step < n; step *= 2) {
        const float u[4] = {v[0], v[1], v[2], v[3]};
        for (int j = 0; j < 4; ++j) v[j] = j & step ? u[j ^ step] - u[j] : u[j] + u[j ^ step];
    }
#pragma unroll 1
    for (int m = 1; m < 32 && 4 * m < n; m *= 2)
        for (int j = 0; j < 4; ++j) {
            const float other = shuffle_xor(v[j], m);
            v[j] = lane() & m ? other - v[j] : v[j] + other;
        }
}

// Of every a.p.hadamard columns; `v` is of part `part` of a head. Where there are more of them than a warp
// has, the transform is of the sums and differences of their parts.
template <Reads reads>
__device__ void transform(const StoreArgs& a, const float* head, int part, const float* cs, float (&v)[4]) {
    const int n = a.p.hadamard, joined = n > head_part_columns ? n / head_part_columns : 1,
              mine = part % joined;
    const auto odd = [](int bits) {
        bool is = false;
        for (; bits; bits &= bits - 1) is = !is;
        return is;
    };
    if (odd(mine))
        for (int j = 0; j < 4; ++j) v[j] = -v[j];
    for (int other = 0; other < joined; ++other) {
        if (other == mine) continue;
        float u[4];
        const int c = (part - mine + other) * head_part_columns + 4 * lane();
        read_columns<reads>(head, a.p.head_dim, c, cs, a.p, {}, u);
        for (int j = 0; j < 4; ++j) v[j] = odd(other & mine) ? v[j] - u[j] : v[j] + u[j];
    }
    hadamard(v, n);
    for (int j = 0; j < 4; ++j) v[j] *= a.scale;
}

__device__ void limited_half(float d, std::byte* to) {
    d = d > 65504.0f ? 65504.0f : d < -65504.0f ? -65504.0f : d;
    *reinterpret_cast<uint16_t*>(to) = float_to_half(d);
}

// Codes of a block lie behind its scale, which two bytes are aligned to.
__device__ void put_codes(uint32_t codes, std::byte* to) {
    auto* const halves = reinterpret_cast<uint16_t*>(to);
    halves[0] = static_cast<uint16_t>(codes);
    halves[1] = static_cast<uint16_t>(codes >> 16);
}

// Blocks of 32 values, eight lanes each: scale = largest magnitude / 127, halves away from zero.
__device__ inline void encode_q8_0(const float (&v)[4], bool there, std::byte* to) {
    float most = 0;
    for (int j = 0; j < 4; ++j) most = fabsf(v[j]) > most ? fabsf(v[j]) : most;
    for (int m = 1; m < 8; m *= 2) {
        const float other = shuffle_xor(most, m);
        most = other > most ? other : most;
    }
    const float d = most / 127;
    const float inverse = d != 0 ? 1 / d : 0;
    uint32_t codes = 0;
    for (int j = 0; j < 4; ++j) {
        const float x = v[j] * inverse;
        const auto q = static_cast<int>(x + copysignf(0x1.fffffep-2f, x));
        codes |= (static_cast<uint32_t>(q) & 255) << (8 * j);
    }
    if (!there) return;
    to += lane() / 8 * 34;
    put_codes(codes, to + 2 + lane() % 8 * 4);
    if (lane() % 8 == 0) limited_half(d, to);
}

// The value of largest magnitude, the first among equals, becomes level -8.
__device__ inline void encode_q4_0(const float (&v)[4], bool there, std::byte* to) {
    float extreme = v[0];
    for (int j = 1; j < 4; ++j) extreme = fabsf(v[j]) > fabsf(extreme) ? v[j] : extreme;
    for (int m = 1; m < 8; m *= 2) {
        const float other = shuffle_xor(extreme, m), a = fabsf(extreme), b = fabsf(other);
        if (b > a || (b == a && (lane() & m))) extreme = other;
    }
    const float d = extreme / -8;
    const float inverse = d != 0 ? 1 / d : 0;
    uint32_t codes = 0;
    for (int j = 0; j < 4; ++j) {
        int q = static_cast<int>(v[j] * inverse + 8.5f);
        q = q > 15 ? 15 : q < 0 ? 0 : q;
        codes |= static_cast<uint32_t>(q) << (8 * j);
    }
    const uint32_t high = shuffle_xor(codes, 4);  // of the columns 16 behind
    if (!there) return;
    to += lane() / 8 * 18;
    if (lane() % 8 < 4) put_codes(codes | high << 4, to + 2 + lane() % 8 * 4);
    if (lane() % 8 == 0) limited_half(d, to);
}

template <bool fours>
__device__ void store_floats(const float (&v)[4], int n, float* to) {
    if (n <= 0) return;
    if constexpr (fours)
        *reinterpret_cast<Words4*>(to) = words_of(v);
    else
        for (int j = 0; j < 4 && j < n; ++j) to[j] = v[j];
}

template <bool fours>
__device__ void store_halves(uint32_t low, uint32_t high, int n, std::byte* to) {
    if (n <= 0) return;
    if constexpr (fours)
        *reinterpret_cast<Words2*>(to) = {{low, high}};
    else
        for (int j = 0; j < 4 && j < n; ++j)
            reinterpret_cast<uint16_t*>(to)[j] = static_cast<uint16_t>((j < 2 ? low : high) >> (j % 2 * 16));
}

// Part `part` of a row of `dim` columns.
template <bool fours>
__device__ void encode(Type type, const float (&v)[4], int part, int dim, std::byte* row) {
    const int first = part * head_part_columns, c = first + 4 * lane(), left = dim - c;
    switch (type) {
        case Type::q8_0:
            return encode_q8_0(v, left > 0, row + first / 32 * 34);
        case Type::q4_0:
            return encode_q4_0(v, left > 0, row + first / 32 * 18);
        case Type::f16:
            return store_halves<fours>(half2(v[0], v[1]), half2(v[2], v[3]), left, row + 2 * c);
        case Type::bf16:
            return store_halves<fours>(bf162(v[0], v[1]), bf162(v[2], v[3]), left, row + 2 * c);
        default:
            return store_floats<fours>(v, left, reinterpret_cast<float*>(row) + c);
    }
}

// Warp `w` of those for a token, of the tokens `first` .. `behind`. ready() returns once what is read is
// there.
template <Reads reads, class Ready>
__device__ void store_tokens(const StoreArgs& a, int w, int64_t first, int64_t behind, const Ready& ready) {
    constexpr bool fours = reads != Reads::singly;
    const RopeStoreParams& p = a.p;
    const int keys = p.n_heads * a.key_parts, values = keys + p.n_kv_heads * a.key_parts;
    const bool query = w < keys, value = w >= values;
    const int parts = value ? a.value_parts : a.key_parts;
    const int i = query ? w : value ? w - values : w - keys;
    const int head = parts > 1 ? i / parts : i, part = i - head * parts;
    const int dim = value ? p.v_head_dim : p.head_dim, c = part * head_part_columns + 4 * lane();
    const View& from = query ? a.q : value ? a.v : a.k;
    const HeadNorm norm = value ? HeadNorm{} : a.norm[query ? 0 : 1];
    const bool rotates = a.table && !value, stores = !query && a.slots;
    // Of the first token; those of the next ones are a row on.
    const float* in = from.row(first) + head * dim;
    const float* cs = rotates ? a.table.row(first) : nullptr;
    const int32_t* slots = stores ? a.slots.row<int32_t>(first) : nullptr;
    const int64_t step = from.stride / 4, cs_step = rotates ? a.table.stride / 4 : 0,
                  slots_step = stores ? a.slots.stride / 4 : 0;
    ready();
    if (w >= a.warps) return;
    for (int64_t t = first; t < behind && t < a.out.rows;
         ++t, in += step, cs += cs_step, slots += slots_step) {
        const int slot = slots ? *slots : -1;
        float v[4];
        read_columns<reads>(in, dim, c, cs, p, norm, v);
        if (p.hadamard && !value) transform<reads>(a, in, part, cs, v);
        if (query) {
            store_floats<fours>(v, dim - c, a.out.row(t) + head * dim + c);
            continue;
        }
        if (slot < 0) continue;
        const int page = slot / p.page_size;
        const int64_t row = (int64_t{page} * p.n_kv_heads + head) * p.page_size + (slot - page * p.page_size);
        if (row >= a.k_cache.rows) continue;
        if (value)
            encode<fours>(a.v_type, v, part, dim, a.v_cache.row<std::byte>(row));
        else
            encode<fours>(a.k_type, v, part, dim, a.k_cache.row<std::byte>(row));
    }
}

// Whether four neighbours of any head can be read, and written in the tensor's type, at once.
bool in_fours(const Tensor& t) {
    const auto bytes = static_cast<uintptr_t>(t.type == Type::f32                           ? 16
                                              : t.type == Type::f16 || t.type == Type::bf16 ? 8
                                                                                            : 2);
    return !t || (reinterpret_cast<uintptr_t>(t.data) % bytes == 0 &&
                  static_cast<uintptr_t>(t.stride) % bytes == 0);
}

StoreArgs store_args(const OpArgs& a) {
    const auto& p = a.params->as<RopeStoreParams>();
    const int key_parts = parts_of(p.head_dim), value_parts = parts_of(p.v_head_dim);
    const int warps = (p.n_heads + p.n_kv_heads) * key_parts + (a.in[6] ? p.n_kv_heads * value_parts : 0);
    const float scale = p.hadamard ? 1 / std::sqrt(static_cast<float>(p.hadamard)) : 1;
    const bool half = p.style == RopeStyle::half;
    bool fours =
        p.head_dim % 4 == 0 && p.v_head_dim % 4 == 0 && p.rot_dim % (half ? 8 : 4) == 0 && in_fours(a.out[0]);
    for (const size_t i : {0, 1, 2, 3, 5, 6}) fours = fours && in_fours(a.in[i]);
    const Reads reads = fours ? Reads::fours : Reads::singly;
    return {a.in[0],      a.in[1],      a.in[2],   a.in[3],     a.in[4], a.in[5], a.in[6], a.out[0], p,
            a.in[5].type, a.in[6].type, key_parts, value_parts, warps,   scale,   reads,   {}};
}

// Takes the norm of queries or keys into the store, which is the `behind`-th instruction after it: false, it
// cannot be.
bool add_head_norm(const BoundInstr& norm, const OpArgs& store, int64_t behind, StoreArgs& s) {
    const OpArgs n = norm.args();
    const auto& p = n.params->as<NormParams>();
    const Tensor &x = n.in[0], &q = store.in[0], &k = store.in[1], &result = n.out[0];
    if (norm.instr->read_until != behind || q.data == k.data) return false;
    const int which = result.data == q.data ? 0 : 1;
    if (which == 1 && result.data != k.data) return false;
    if (s.norm[which].on || p.group != s.p.head_dim || p.subtract_mean || p.by_column || n.in[2] || n.in[3])
        return false;
    if (s.reads == Reads::singly || s.key_parts > 1 || !in_fours(x) || !in_fours(n.in[1])) return false;
    // What it reads must still be there: its own memory may already be the store's.
    if (overlap(x, store.out[0]) || x.rows != store.out[0].rows) return false;
    (which == 0 ? s.q : s.k) = x;
    s.norm[which] = {reinterpret_cast<const float*>(n.in[1].data), p.eps, true};
    return true;
}

// The store that the instructions begin with, and norms of heads before it, as one. Returns how many they
// are; 0: there is none.
size_t store_at(std::span<const BoundInstr> instrs, StoreArgs& s) {
    size_t norms = 0;
    while (norms < 2 && is_at(instrs, norms, norm_op)) ++norms;
    if (!is_at(instrs, norms, rope_store_op)) return 0;
    const OpArgs store = instrs[norms].args();
    s = store_args(store);
    for (size_t i = 0; i < norms; ++i)
        if (!add_head_norm(instrs[i], store, static_cast<int64_t>(norms - i), s)) return 0;
    return norms + 1;
}
