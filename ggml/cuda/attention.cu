// attention: which kernel serves a step, the joining of a context's parts, and a plain kernel for odd shapes.
// Launches depend on numbers of rows alone; sequences, positions and pages are read on the device.
#include <algorithm>

#include "ggml/base/checked.h"
#include "ggml/cuda/attention.h"
#include "ggml/cuda/exec.h"

namespace nibble::cuda {
namespace {

#include "ggml/cuda/attention_plain.inl"
#include "ggml/cuda/attention_tile.inl"
#include "ggml/cuda/attention_walkers.inl"
#include "ggml/cuda/attention_warpgroup.inl"

constexpr size_t largest_scratch = size_t{64} << 20;
constexpr int largest_dim = 512;

bool convertible(Type t) { return t == Type::f16 || t == Type::q8_0 || t == Type::q4_0; }

// Whether values are columns of the keys that the tile kernel reads as such.
bool has_latents(const OpArgs& a) {
    const auto& p = a.params->as<AttentionParams>();
    const Tensor &k = a.in[1], &v = a.in[2];
    return p.head_dim == latent_dim && p.v_head_dim == latent_v_dim && v.type == k.type &&
           v.stride == k.stride && v.data == k.data + *row_bytes(k.type, latent_dim - latent_v_dim);
}

template <CacheKind kind, int dim, int row_groups>
bool launch_tiles(const Exec& e, const OpArgs& a, AttentionArgs args, std::span<std::byte> scratch) {
    using Shape = TileShape<kind, dim, row_groups>;
    const auto shared = [&](int stages) {
        return static_cast<size_t>(Shape::shared_bytes(stages, a.in[1].stride, a.in[2].stride));
    };
    args.stages = shared(2) <= e.card->shared_per_block ? 2 : 1;
    if (shared(args.stages) > e.card->shared_per_block) return false;
    // Enough blocks to fill the card; but every tile of a step that has many walks its context alone.
    const int64_t tiles = most_tiles(a, args, Shape::rows),
                  wanted = int64_t{e.card->multiprocessors} * (row_groups == 1 ? 3 : 2);
    plan_walkers(e, a, tiles, Shape::rows, ceil_div(wanted, tiles * args.p.n_kv_heads), row_groups == 1,
                 scratch, args);
    launch_walkers<Shape::v_dim>(e, tile_kernel<kind, dim, row_groups>, tiles, Shape::rows,
                                 shared(args.stages), args);
    return true;
}

// A block of these goes through its context alone, so where there are few of them and contexts may be long,
// others that share theirs are faster.
template <CacheKind kind, int dim>
bool launch_warpgroups(const Exec& e, const OpArgs& a, const AttentionArgs& args) {
    using Attention = WarpgroupAttention<kind, dim>;
    using Shape = typename Attention::Shape;
    const int64_t blocks = most_tiles(a, args, Shape::rows) * args.p.n_kv_heads;
    const auto shared =
        static_cast<size_t>(Shape::shared_bytes(Attention::stages_held, a.in[1].stride, a.in[2].stride));
    if (blocks * 4 < e.card->multiprocessors && split_begin(args.splits) > 1024) return false;
    if (shared > e.card->shared_per_block || !(args.p.scale > 0)) return false;
    launch(warpgroup_kernel<kind, dim>, Dims{blocks, 1, 1, Shape::threads, shared}, *e.stream, args);
    return true;
}

// Sequences of few rows and those of many, each with the tiles that suit them.
template <CacheKind kind, int dim>
bool launch_covers(const Exec& e, const OpArgs& a, AttentionArgs args, std::span<std::byte> scratch) {
    constexpr int wide_groups = dim <= 128 ? 4 : dim == 256 ? 2 : 1;
    const int64_t tokens = a.in[0].rows, sequences = a.in[3].rows, rows = tokens * args.group;
    const bool streams = attention_streams(e, a, kind);
    const auto launch_narrow = [&] {
        if (streams) return stream_attention(e, a, kind, args, scratch), true;
        return launch_tiles<kind, dim, 1>(e, a, args, scratch);
    };
    if ((streams && tokens <= most_few) ||
        (rows <= sequences * narrow_rows && (sequences == 1 || tokens == sequences)))
        return launch_narrow();
    const bool mixed = sequences > 1 && args.group <= narrow_rows;
    if (mixed) {
        args.cover = Cover::narrow;
        if (!launch_narrow()) return false;
        args.cover = Cover::wide;
    }
    if constexpr (dim <= 128)
        if (warpgroups_apply(e, tokens) && launch_warpgroups<kind, dim>(e, a, args)) return true;
    return launch_tiles<kind, dim, wide_groups>(e, a, args, scratch) ||
           launch_tiles<kind, dim, 1>(e, a, args, scratch);
}

template <CacheKind kind>
bool launch_kind(const Exec& e, const OpArgs& a, const AttentionArgs& args, std::span<std::byte> scratch) {
    if (has_latents(a)) return launch_covers<kind, latent_dim>(e, a, args, scratch);
    const int32_t dim = std::max(args.p.head_dim, args.p.v_head_dim);
    if (dim <= 64) return launch_covers<kind, 64>(e, a, args, scratch);
    if (dim <= 128) return launch_covers<kind, 128>(e, a, args, scratch);
    if (dim <= 256) return launch_covers<kind, 256>(e, a, args, scratch);
    return launch_covers<kind, 512>(e, a, args, scratch);
}

}  // namespace

bool attention_supported(const AttentionParams& p, Type k_type, Type v_type) {
    const auto readable = [](Type t) { return convertible(t) || t == Type::bf16 || t == Type::f32; };
    return readable(k_type) && readable(v_type) && p.head_dim <= 2048 && p.v_head_dim <= 2048;
}

bool has_tiles(const OpArgs& a, CacheKind& kind) {
    const auto& p = a.params->as<AttentionParams>();
    const Tensor &q = a.in[0], &k = a.in[1], &v = a.in[2];
    if (reinterpret_cast<uintptr_t>(q.data) % 8 != 0 || q.stride % 8 != 0) return false;  // read in pairs
    const bool latents = has_latents(a);
    const auto even = [&](const Tensor& t) {
        return reinterpret_cast<uintptr_t>(t.data) % 16 == 0 && t.cols % 16 == 0 &&
               (t.cols <= largest_dim || latents) && t.stride * p.page_size <= INT32_MAX / p.n_kv_heads &&
               t.stride % (t.type == Type::f16 || t.type == Type::bf16 ? 16 : 2) == 0;
    };
    if (!even(k) || (!latents && !even(v)) || p.page_size < 8 || (p.page_size & (p.page_size - 1)) != 0)
        return false;
    // Runs of rows that are converted are fetched whole, with what lies between them.
    const auto apart = [](const Tensor& t) { return size_t(t.stride) != row_bytes(t.type, t.cols); };
    if (k.type != Type::f16 && k.type != Type::bf16 && (apart(k) || (!latents && apart(v)))) return false;
    kind = k.type == Type::bf16                         ? CacheKind::bf16
           : k.type == Type::f16 && v.type == Type::f16 ? CacheKind::f16
                                                        : CacheKind::converted;
    return kind == CacheKind::bf16 ? v.type == Type::bf16 : convertible(k.type) && convertible(v.type);
}

AttentionArgs attention_args(const OpArgs& a) {
    const auto& p = a.params->as<AttentionParams>();
    AttentionArgs args{a.in[0],
                       a.in[1],
                       a.in[2],
                       a.in[3],
                       a.in[4],
                       a.in[5],
                       a.in[6],
                       a.out[0],
                       p,
                       a.in[1].type,
                       a.in[2].type,
                       Cover::all,
                       p.n_heads / p.n_kv_heads,
                       0,
                       1,
                       1,
                       nullptr,
                       nullptr,
                       splits_of(a),
                       nullptr};
    while (1 << args.page_shift < p.page_size) ++args.page_shift;
    return args;
}

size_t attention_scratch(const Exec&, const OpArgs& a) {
    CacheKind kind;
    if (!has_tiles(a, kind)) return 0;
    // What fewer tokens need of it is less; steps that would need more do without.
    const int64_t group =
        a.params->as<AttentionParams>().n_heads / a.params->as<AttentionParams>().n_kv_heads;
    const int64_t rows = std::max(a.in[0].rows * group, a.in[3].rows * narrow_rows);
    return std::min(largest_scratch, partial_bytes(a, rows));
}

void run_attention(const Exec& e, const OpArgs& a, std::span<std::byte> scratch) {
    const auto& p = a.params->as<AttentionParams>();
    if (a.in[0].rows == 0 || a.in[3].rows == 0) return;
    const AttentionArgs args = attention_args(a);
    CacheKind kind;
    bool launched = false;
    if (has_tiles(a, kind))
        launched = kind == CacheKind::f16    ? launch_kind<CacheKind::f16>(e, a, args, scratch)
                   : kind == CacheKind::bf16 ? launch_kind<CacheKind::bf16>(e, a, args, scratch)
                                             : launch_kind<CacheKind::converted>(e, a, args, scratch);
    if (launched) return;
    const Dims dims{a.in[0].rows, p.n_heads, 1, plain_threads, plain_shared_bytes(p)};
    launch(plain_kernel, dims, *e.stream, args);
}

}  // namespace nibble::cuda
