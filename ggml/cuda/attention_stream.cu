// Attention of few query rows over caches of 16-bit values: the kernel is attention_stream.inl.
// A row's bits do not depend on how many there are; they are not those of other kernels.
#include <algorithm>
#include <cmath>

#include "ggml/base/checked.h"
#include "ggml/cuda/attention.h"

namespace nibble::cuda {
namespace {

#include "ggml/cuda/attention_stream.inl"
#include "ggml/cuda/attention_walkers.inl"

template <CacheKind kind, int dim, int columns>
void launch_stream(const Exec& e, const OpArgs& a, StreamArgs args, std::span<std::byte> scratch) {
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
void launch_columns(const Exec& e, const OpArgs& a, const StreamArgs& args, std::span<std::byte> scratch) {
    if (a.in[0].rows == a.in[3].rows && args.cover == Cover::all && args.group <= 8)
        launch_stream<kind, dim, 1>(e, a, args, scratch);
    else
        launch_stream<kind, dim, 2>(e, a, args, scratch);
}

template <CacheKind kind>
void launch_dim(const Exec& e, const OpArgs& a, const StreamArgs& args, std::span<std::byte> scratch) {
    if (std::max(args.p.head_dim, args.p.v_head_dim) <= 64)
        launch_columns<kind, 64>(e, a, args, scratch);
    else
        launch_columns<kind, 128>(e, a, args, scratch);
}

void launch_kind(const Exec& e, const OpArgs& a, CacheKind kind, const StreamArgs& args,
                 std::span<std::byte> scratch) {
    if (kind == CacheKind::f16)
        launch_dim<CacheKind::f16>(e, a, args, scratch);
    else
        launch_dim<CacheKind::bf16>(e, a, args, scratch);
}

// Whether what the store leaves, the last of the instructions, is for this attention alone, of one token per
// sequence, and nothing that they read lies where the attention writes.
bool brings(std::span<const BoundInstr> instrs, const StoreArgs& store, const OpArgs& a,
            std::span<std::byte> scratch) {
    const auto& p = a.params->as<AttentionParams>();
    const RopeStoreParams& s = store.p;
    const int64_t tokens = a.in[0].rows;
    const bool same_cache = store.k_cache && store.v_cache && store.k_cache.data == a.in[1].data &&
                            store.v_cache.data == a.in[2].data && store.k_cache.stride == a.in[1].stride &&
                            store.v_cache.stride == a.in[2].stride;
    const bool same_heads = s.n_heads == p.n_heads && s.n_kv_heads == p.n_kv_heads &&
                            s.head_dim == p.head_dim && s.v_head_dim == p.v_head_dim &&
                            s.page_size == p.page_size;
    if (instrs.back().instr->read_until != 1 || store.out.data != a.in[0].data || !same_cache || !same_heads)
        return false;
    if (!store.k || !store.v || !store.slots || store.reads == Reads::singly || s.hadamard) return false;
    if (tokens != a.in[3].rows || tokens > most_few || p.n_heads / p.n_kv_heads > narrow_rows) return false;
    return std::ranges::none_of(instrs, [&](const BoundInstr& i) {
        return std::ranges::any_of(
            i.in, [&](const Tensor& x) { return overlap(a.out[0], x) || overlap(x, scratch); });
    });
}

}  // namespace

bool attention_streams(const Exec& e, const OpArgs& a, CacheKind kind) {
    const auto& p = a.params->as<AttentionParams>();
    return e.gemv && in_fours(a.in[0]) && kind != CacheKind::converted &&
           std::max(p.head_dim, p.v_head_dim) <= 128 && p.page_size >= 16;
}

void stream_attention(const Exec& e, const OpArgs& a, CacheKind kind, const AttentionArgs& args,
                      std::span<std::byte> scratch) {
    StreamArgs stream{args, {}};
    stream.store.q = args.q;
    stream.store.p.head_dim = args.p.head_dim;
    stream.store.reads = Reads::fours;
    launch_kind(e, a, kind, stream, scratch);
}

size_t run_joined_attention(const Exec& e, std::span<const BoundInstr> instrs) {
    StoreArgs store;
    const size_t n = store_at(instrs, store);
    if (n == 0 || !is_at(instrs, n, attention_op)) return 0;
    const OpArgs a = instrs[n].args();
    CacheKind kind;
    if (!brings(instrs.first(n), store, a, instrs[n].scratch) || !has_tiles(a, kind) ||
        !attention_streams(e, a, kind))
        return 0;
    launch_kind(e, a, kind, {attention_args(a), store, true}, instrs[n].scratch);
    return n + 1;
}

}  // namespace nibble::cuda
