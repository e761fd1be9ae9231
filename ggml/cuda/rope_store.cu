// rope_store: a warp rotates one head of one token and writes it to the queries or into the cache.
// Keys and values are rounded to the cache's type as the format's own encode() does.
#include "ggml/cuda/exec.h"
#include "ggml/cuda/view.h"

namespace nibble::cuda {
namespace {

struct StoreArgs {
    View q, k, v, table, slots, k_cache, v_cache, out;
    RopeStoreParams p;
    Type k_type, v_type;
};

// Every function below is called by the whole warp with a head in shared memory.
__device__ void rotate(float* head, const float* cs, const RopeStoreParams& p) {
    for (int i = lane(); i < p.rot_dim / 2; i += 32) {
        const bool half = p.style == RopeStyle::half;
        const int lo = half ? i : 2 * i, hi = half ? i + p.rot_dim / 2 : 2 * i + 1;
        const float c = cs[2 * i], s = cs[2 * i + 1], u = head[lo], v = head[hi];
        head[lo] = u * c - v * s;
        head[hi] = u * s + v * c;
    }
    sync_warp();
}

__device__ void hadamard(float* head, int dim, int n) {
    for (int step = 1; step < n; step *= 2) {
        for (int i = lane(); i < dim / 2; i += 32) {
            const int lo = i / step * 2 * step + i % step, hi = lo + step;
            const float u = head[lo], v = head[hi];
            head[lo] = u + v;
            head[hi] = u - v;
        }
        sync_warp();
    }
    const float scale = 1 / sqrtf(static_cast<float>(n));
    for (int i = lane(); i < dim; i += 32) head[i] *= scale;
    sync_warp();
}

__device__ float limited_half(float d, uint16_t& bits) {
    d = d > 65504.0f ? 65504.0f : d < -65504.0f ? -65504.0f : d;
    bits = float_to_half(d);
    return d;
}

// One block of 32 values, a lane each: scale = largest magnitude / 127, halves away from zero.
__device__ void encode_q8_0(float x, std::byte* to) {
    const float d = warp_max(fabsf(x)) / 127;
    const float inverse = d != 0 ? 1 / d : 0;
    const float v = x * inverse;
    const auto q = static_cast<int>(v + copysignf(0x1.fffffep-2f, v));
    reinterpret_cast<int8_t*>(to)[2 + lane()] = static_cast<int8_t>(q);
    if (lane() == 0) limited_half(d, *reinterpret_cast<uint16_t*>(to));
}

// The value of largest magnitude, the first among equals, becomes level -8.
__device__ void encode_q4_0(float x, std::byte* to) {
    float extreme = x;
    int at = lane();
    for (int m = 16; m > 0; m /= 2) {
        const float other = shuffle_xor(extreme, m);
        const int other_at = shuffle_xor(at, m);
        const float a = fabsf(extreme), b = fabsf(other);
        if (b > a || (b == a && other_at < at)) {
            extreme = other;
            at = other_at;
        }
    }
    const float d = extreme / -8;
    const float inverse = d != 0 ? 1 / d : 0;
    int q = static_cast<int>(x * inverse + 8.5f);
    q = q > 15 ? 15 : q < 0 ? 0 : q;
    const int high = shuffle(q, lane() + 16);
    if (lane() < 16) reinterpret_cast<uint8_t*>(to)[2 + lane()] = static_cast<uint8_t>(q | high << 4);
    if (lane() == 0) limited_half(d, *reinterpret_cast<uint16_t*>(to));
}

__device__ void encode(Type type, const float* head, int dim, std::byte* to) {
    switch (type) {
        case Type::q8_0:
            for (int i = 0; i < dim; i += 32) encode_q8_0(head[i + lane()], to + i / 32 * 34);
            break;
        case Type::q4_0:
            for (int i = 0; i < dim; i += 32) encode_q4_0(head[i + lane()], to + i / 32 * 18);
            break;
        case Type::f16:
            for (int i = lane(); i < dim; i += 32)
                reinterpret_cast<uint16_t*>(to)[i] = float_to_half(head[i]);
            break;
        case Type::bf16:
            for (int i = lane(); i < dim; i += 32)
                reinterpret_cast<uint16_t*>(to)[i] = float_to_bf16(head[i]);
            break;
        default:
            for (int i = lane(); i < dim; i += 32) reinterpret_cast<float*>(to)[i] = head[i];
    }
}

// Block x is the token; block y one of its heads: queries, then keys, then values.
__global__ void rope_store_kernel(StoreArgs a) {
    wait_for_previous();
    auto* const head = reinterpret_cast<float*>(shared_memory());
    const RopeStoreParams& p = a.p;
    const int64_t t = block_x();
    const int h = block_y();
    const bool query = h < p.n_heads, value = h >= p.n_heads + p.n_kv_heads;
    const int kv_head = value ? h - p.n_heads - p.n_kv_heads : h - p.n_heads;
    const int dim = value ? p.v_head_dim : p.head_dim;
    const float* const in = query   ? a.q.row(t) + h * dim
                            : value ? a.v.row(t) + kv_head * dim
                                    : a.k.row(t) + kv_head * dim;
    const int64_t slot = a.slots ? *a.slots.row<int32_t>(t) : -1;
    const int64_t row = (slot / p.page_size * p.n_kv_heads + kv_head) * p.page_size + slot % p.page_size;
    if (!query && (slot < 0 || row >= a.k_cache.rows)) return;
    for (int i = lane(); i < dim; i += 32) head[i] = in[i];
    sync_warp();
    if (!value) {
        if (a.table) rotate(head, a.table.row(t), p);
        if (p.hadamard) hadamard(head, dim, p.hadamard);
    }
    if (query)
        for (int i = lane(); i < dim; i += 32) a.out.row(t)[h * dim + i] = head[i];
    else if (value)
        encode(a.v_type, head, dim, a.v_cache.row<std::byte>(row));
    else
        encode(a.k_type, head, dim, a.k_cache.row<std::byte>(row));
}

}  // namespace

void run_rope_store(const Exec& e, const OpArgs& a, std::span<std::byte>) {
    const auto& p = a.params->as<RopeStoreParams>();
    const StoreArgs args{a.in[0], a.in[1],  a.in[2], a.in[3],      a.in[4],     a.in[5],
                         a.in[6], a.out[0], p,       a.in[5].type, a.in[6].type};
    const int32_t largest = p.head_dim > p.v_head_dim ? p.head_dim : p.v_head_dim;
    const int32_t stored = a.in[6] ? 2 * p.n_kv_heads : p.n_kv_heads;
    const Dims dims{a.out[0].rows, p.n_heads + stored, 1, 32, static_cast<size_t>(largest) * sizeof(float)};
    launch(rope_store_kernel, dims, *e.stream, args);
}

}  // namespace nibble::cuda
