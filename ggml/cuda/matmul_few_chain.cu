// Products of two to eight rows that follow each other, in one launch: some users, or guessed tokens. The
// bits are those of matmul_few.cu and rope_store.cu.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "ggml/base/checked.h"
#include "ggml/cuda/product.h"
#include "ggml/cuda/tile_codes.h"

namespace nibble::cuda {
namespace {

#include "ggml/cuda/gated.inl"
#include "ggml/cuda/matmul.inl"
#include "ggml/cuda/matmul_blocks.inl"
#include "ggml/cuda/matmul_chain.inl"
#include "ggml/cuda/matmul_few_blocks.inl"

struct SomeRows {
    using Link = FewArgs;
    static int64_t plan(const Exec& e, const ChainLink& link, int64_t least, Link& a) {
        const View& x = link.product.x;
        if (!few_applies(e, x.rows, x.cols)) return 0;
        return plan_few(e, link.product, link.weights(), link.memory, link.ends_in, std::max(least, x.rows),
                        a);
    }
    static size_t shared_bytes(const Link& a) {
        return std::max(few_shared_bytes(a), few_row_shared_bytes(a));
    }

    // The last blocks, which have the fewest row blocks, make the rows ready; the others have their first
    // weights on their way by then.
    template <uint32_t... codes>
    __device__ static void run(const ChainArgs<Link>& a, int i) {
        const Link& link = a.link[i];
        const auto rows = static_cast<int>(link.x.rows),
                   row = static_cast<int>(grid_x()) - 1 - static_cast<int>(block_x());
        if (row < rows) {
            wait_for_link(a, i);
            prepare_few_row(link, row);
            count_block(&a.counters->ready);
        }
        few_product<codes...>(link, [&] {
            if (i == 0 && row >= rows) wait_for_previous();
            wait_for_blocks(&a.counters->ready, (i + 1) * rows);
        });
    }
};

}  // namespace

Chained multiply_few_chain(const Exec& e, std::span<const ChainLink> links,
                           std::span<const BoundInstr> behind) {
    return launch_chain<SomeRows>(e, links, behind);
}

}  // namespace nibble::cuda
