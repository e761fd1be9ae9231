// Products of one row with weights of any formats, as fast as memory is: decoding. Those that follow each
// other share a launch, since one takes longer to start than to read its weights. Sums are formed group by
// group and scaled in f32: the bits of matmul_few.cu, not those of matmul.cu.
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
#include "ggml/cuda/matmul_gemv.inl"

struct OneRow {
    using Link = RowBlockArgs;
    static int64_t plan(const Exec& e, const ChainLink& link, int64_t least, Link& a) {
        if (!takes_units(link.product, link.weights())) return 0;
        a = {{link.product}, link.ends_in};
        return plan_row_blocks(e, link.weights(), a, least);
    }
    static size_t shared_bytes(const Link& a) { return gemv_shared_bytes(a); }

    // The link's first weights are on their way before its row is there.
    template <uint32_t... codes>
    __device__ static void run(const ChainArgs<Link>& a, int i) {
        gemv_product<codes...>(a.link[i], BlockGroup(a.link[i]), [&] { wait_for_link(a, i); });
    }
};

}  // namespace

bool multiply_gemv(const Exec& e, const ProductArgs& product, std::span<const Type> types,
                   const UnitArgs& ends_in) {
    if (!e.gemv || product.x.rows != 1) return false;
    ChainLink link{product, {}, {}, ends_in};
    std::ranges::copy(types, link.types.begin());
    return launch_chain<OneRow>(e, {&link, 1}, {}, true).links == 1;
}

Chained multiply_chain(const Exec& e, std::span<const ChainLink> links, std::span<const BoundInstr> behind) {
    if (!e.gemv || links.empty()) return {};
    if (links[0].product.x.rows > 1) return multiply_few_chain(e, links, behind);
    return launch_chain<OneRow>(e, links, behind);
}

}  // namespace nibble::cuda
