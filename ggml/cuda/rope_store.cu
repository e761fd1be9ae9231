// rope_store: queries, keys and values of a step's tokens, normed, rotated and stored (rope_store.inl).
// A launch of its own for any number of rows; chains of products end in the same code.
#include <cmath>

#include "ggml/cuda/exec.h"
#include "ggml/cuda/view.h"

namespace nibble::cuda {
namespace {

#include "ggml/cuda/rope_store.inl"

constexpr int store_warps = 4;  // of a block

// Block x: tokens; block y: warps of each of them.
template <Reads reads>
__global__ void __launch_bounds__(32 * store_warps) rope_store_kernel(StoreArgs a, int tokens) {
    const int64_t first = block_x() * tokens;
    store_tokens<reads>(a, block_y() * store_warps + warp_index(), first, first + tokens,
                        [] { wait_for_previous(); });
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
