// rope_store: queries, keys and values of a step's tokens, normed, rotated and stored. A warp has up to 128
// columns of one head, four to a lane, and writes them to the queries or, rounded as the format's own
// encode() does, into the cache.
#include <cmath>

#include "ggml/cuda/exec.h"
#include "ggml/cuda/view.h"

namespace nibble::cuda {
namespace {

#include "ggml/cuda/heads.inl"

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
__device__ void hadamard(float (&v)[4], int n) {
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
__device__ void encode_q8_0(const float (&v)[4], bool there, std::byte* to) {
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
__device__ void encode_q4_0(const float (&v)[4], bool there, std::byte* to) {
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

constexpr int store_warps = 4;  // of a block

// Block x: tokens; block y: warps of each of them.
template <Reads reads>
__global__ void __launch_bounds__(32 * store_warps) rope_store_kernel(StoreArgs a, int tokens) {
    const int w = block_y() * store_warps + warp_index();
    const int64_t first = block_x() * tokens, behind = first + tokens;
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
    wait_for_previous();
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
        std::byte* const row = a.cached(value ? a.v_cache : a.k_cache, slot, head);
        if (row) encode<fours>(value ? a.v_type : a.k_type, v, part, dim, row);
    }
}

void launch_store(const Exec& e, const StoreArgs& args) {
    const int64_t rows = args.out.rows;
    // Many tokens leave enough blocks for a warp to take several, which share the way to where they are.
    const auto tokens = static_cast<int>(std::clamp<int64_t>(rows / 512, 1, 8));
    const Dims dims{blocks_for(rows, tokens), static_cast<int32_t>(blocks_for(args.warps, store_warps)), 1,
                    32 * store_warps};
    launch(args.reads == Reads::singly ? rope_store_kernel<Reads::singly> : rope_store_kernel<Reads::fours>,
           dims, *e.stream, args, tokens);
}

}  // namespace

void run_rope_store(const Exec& e, const OpArgs& a, std::span<std::byte>) { launch_store(e, store_args(a)); }

size_t run_joined_store(const Exec& e, std::span<const BoundInstr> instrs) {
    StoreArgs args;
    const size_t n = store_at(instrs, args);
    if (n < 2) return 0;
    launch_store(e, args);
    return n;
}

}  // namespace nibble::cuda
