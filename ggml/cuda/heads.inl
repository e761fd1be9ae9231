// Heads of queries, keys and values between their products and attention: what norms and rotates four columns
// of one, and which instructions that is. A value's partner in the rotation is read a second time rather than
// exchanged: all that a lane needs is on its way at once, whichever columns are rotated with which.

#include "ggml/cuda/norm.inl"

constexpr int head_part_columns = 128;  // that a warp takes

// How a lane reads its columns: in fours, where what they are rotated with lies in fours too.
enum class Reads : uint8_t { singly, fours };

// The norm that each head passes before it is rotated; all of it is a warp's, or half a warp's.
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

    // Where a head of keys or values is in the cache, for a token's slot; null: beyond it.
    __device__ std::byte* cached(const View& cache, int slot, int head) const {
        const int page = slot / p.page_size;
        const int64_t row = (int64_t{page} * p.n_kv_heads + head) * p.page_size + (slot - page * p.page_size);
        return row < k_cache.rows ? cache.row<std::byte>(row) : nullptr;
    }
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
