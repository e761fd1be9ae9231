// Attention of few query rows over caches of 16-bit values: the kernel is attention_stream.inl.
// A row's bits do not depend on how many there are; they are not those of other kernels.
#include <algorithm>

#include "ggml/base/checked.h"
#include "ggml/cuda/attention.h"

namespace nibble::cuda {
namespace {

#include "ggml/cuda/attention_stream.inl"
#include "ggml/cuda/attention_walkers.inl"

template <CacheKind kind, int dim, int columns>
void launch_stream(const Exec& e, const OpArgs& a, AttentionArgs args, std::span<std::byte> scratch) {
    using Attention = StreamAttention<kind, dim, columns>;
    const int64_t tiles = most_tiles(a, args, Attention::rows);
    // All at once: one that began when others had ended would take as long again.
    const int64_t wanted = int64_t{e.card->multiprocessors} * stream_blocks<dim, columns>;
    plan_walkers(e, a, tiles, Attention::rows, wanted / (tiles * args.p.n_kv_heads), true, scratch, args);
    launch_walkers<dim>(e, stream_kernel<kind, dim, columns>, tiles, Attention::rows, Attention::shared_bytes,
                        args);
}

// By eight rows at a time, or sixteen where sequences have more.
template <CacheKind kind, int dim>
void launch_columns(const Exec& e, const OpArgs& a, const AttentionArgs& args, std::span<std::byte> scratch) {
    if (a.in[0].rows == a.in[3].rows && args.cover == Cover::all && args.group <= 8)
        launch_stream<kind, dim, 1>(e, a, args, scratch);
    else
        launch_stream<kind, dim, 2>(e, a, args, scratch);
}

template <CacheKind kind>
void launch_dim(const Exec& e, const OpArgs& a, const AttentionArgs& args, std::span<std::byte> scratch) {
    if (std::max(args.p.head_dim, args.p.v_head_dim) <= 64)
        launch_columns<kind, 64>(e, a, args, scratch);
    else
        launch_columns<kind, 128>(e, a, args, scratch);
}

}  // namespace

bool attention_streams(const Exec& e, const AttentionParams& p, CacheKind kind) {
    return e.gemv && kind != CacheKind::converted && std::max(p.head_dim, p.v_head_dim) <= 128 &&
           p.page_size >= 16;
}

void stream_attention(const Exec& e, const OpArgs& a, CacheKind kind, const AttentionArgs& args,
                      std::span<std::byte> scratch) {
    if (kind == CacheKind::f16)
        launch_dim<CacheKind::f16>(e, a, args, scratch);
    else
        launch_dim<CacheKind::bf16>(e, a, args, scratch);
}

}  // namespace nibble::cuda
