// Products that follow each other, and what becomes of queries, keys and values behind them, in one launch
// whose blocks all run at once and wait for each other in between. What a link does is for its Arithmetic to
// say:
//
//   Link                       its arguments, a RowBlockArgs
//   plan(e, link, least, a)    makes them for a grid of `least` blocks or more; returns the grid, 0: it
//   cannot shared_bytes(a)            what it asks of a card run<codes...>(a, i)        the thread block's
//   part of link i, by weights of any of the formats `codes`

#include "ggml/cuda/rope_store.inl"

// In int: arrivals of blocks that have left a link's results, those that have ended, and those of rows that
// are ready. All are zero before and after.
struct ChainCounters {
    int left, ended, ready;
};

template <class Link>
struct ChainArgs {
    Link link[most_links];
    StoreArgs store;
    int32_t links = 0;
    int32_t alike = 0;  // the first of them, by weights of the kernel's first format
    bool stores = false;
    ChainCounters* counters = nullptr;  // of a link alone, which waits for none: null
};

// The whole block; what the blocks wrote that were counted is visible then.
__device__ inline void wait_for_blocks(int* counter, int n) {
    if (thread_index() == 0) wait_for_count(counter, n);
    sync_block();
}
__device__ inline void count_block(int* counter) {
    sync_block();
    if (thread_index() == 0) atomic_add_release(counter, 1);
}

// Until link i can begin: the launches before have ended, or the links before.
template <class Link>
__device__ void wait_for_link(const ChainArgs<Link>& a, int i) {
    if (i == 0)
        wait_for_previous();
    else
        wait_for_blocks(&a.counters->left, i * static_cast<int>(grid_x()));
}

template <class Arithmetic, uint32_t... codes>
__device__ void run_link(const ChainArgs<typename Arithmetic::Link>& a, int i) {
    Arithmetic::template run<codes...>(a, i);
    if (i + 1 < a.links || a.stores) count_block(&a.counters->left);
}

// Of a row a block's warps take so many parts at a time.
__device__ inline int store_turns(const StoreArgs& a) { return (a.warps + block_warps - 1) / block_warps; }
__device__ inline void run_store(const StoreArgs& a) {
    const int each = store_turns(a), all = each * static_cast<int>(a.out.rows);
    for (auto i = static_cast<int>(block_x()); i < all; i += static_cast<int>(grid_x())) {
        const int row = i / each;
        store_tokens<Reads::fours>(a, (i - row * each) * block_warps + warp_index(), row, row + 1, [] {});
    }
}

// The last link may be of other formats, `last`: with them in the loop the compiler would keep, from link to
// link, what each format needs.
template <class Arithmetic, uint32_t code, uint32_t... last>
__global__ void __launch_bounds__(row_block_threads, resident_blocks)
    chain_kernel(const __grid_constant__ ChainArgs<typename Arithmetic::Link> a) {
    static_assert(sizeof a <= 4096, "what a launch can have of arguments");
    for (int i = 0; i < a.alike; ++i) run_link<Arithmetic, code>(a, i);
    if constexpr (sizeof...(last) > 0)
        if (a.alike < a.links) run_link<Arithmetic, last...>(a, a.alike);
    if (a.stores && block_x() < store_turns(a.store) * a.store.out.rows) {
        wait_for_link(a, a.links);
        run_store(a.store);
    }
    // The last to end knows that nobody waits any more.
    if (a.counters && thread_index() == 0 && atomic_add_release(&a.counters->ended, 1) + 1 == grid_x())
        *a.counters = {};
}

template <class Arithmetic>
using ChainKernel = void (*)(ChainArgs<typename Arithmetic::Link>);

// The kernel for links by weights of one format, where it takes the last link's too; null: there is none.
template <class Arithmetic>
ChainKernel<Arithmetic> chain_kernel_for(Type type, bool takes_others) {
    ChainKernel<Arithmetic> kernel = nullptr;
    visit_tile_format(type, [&]<TileFormat f>() {
        constexpr uint32_t code = format_code(f);
        if constexpr (code == q4_k_code)
            kernel = chain_kernel<Arithmetic, code, q4_k_code, q5_k_code, q6_k_code>;
        else if (!takes_others)
            kernel = chain_kernel<Arithmetic, code>;
    });
    return kernel;
}

// Whether all weights of the link have the format.
bool is_of(const ChainLink& link, TileFormat f) {
    return std::ranges::all_of(link.weights(), [&](Type t) { return tiles_of(t) == f; });
}
// Whether it can be the last one of a chain of another format.
bool is_of_others(const ChainLink& link, const RowBlockArgs& planned) {
    return planned.unit_bits == most_unit_bits<q4_k_code, q5_k_code, q6_k_code> &&
           of_k_quants(link.weights());
}

// As multiply_chain() has it; `alone`: the first link by itself.
template <class Arithmetic>
Chained launch_chain(const Exec& e, std::span<const ChainLink> links, std::span<const BoundInstr> behind,
                     bool alone = false) {
    ChainArgs<typename Arithmetic::Link> a;
    // The links that a kernel takes: of one format, then perhaps one of others.
    Type type = links[0].types[0];
    if (!is_of(links[0], tiles_of(type))) type = Type::q4_k;
    const ChainKernel<Arithmetic> with_others = chain_kernel_for<Arithmetic>(type, true);
    int64_t grid = 1;
    for (const ChainLink& link : links) {
        if (link.product.x.rows != links[0].product.x.rows) break;
        const int64_t blocks = Arithmetic::plan(e, link, 1, a.link[a.links]);
        if (blocks == 0) break;
        const bool alike = is_of(link, tiles_of(type));
        if (!alike && !(with_others && is_of_others(link, a.link[a.links]))) break;
        grid = std::max(grid, blocks);
        ++a.links;
        if (!alike) break;
        ++a.alike;
    }
    const auto taken = static_cast<size_t>(a.links);
    const size_t stored = taken == links.size() ? store_at(behind, a.store) : 0;
    a.stores = stored > 0 && a.store.reads != Reads::singly && a.store.out.rows == links[0].product.x.rows;
    if (taken + a.stores < (alone ? 1 : 2)) return {};
    size_t shared = 0;
    for (int i = 0; i < a.links; ++i) {
        (void)Arithmetic::plan(e, links[static_cast<size_t>(i)], grid, a.link[i]);
        shared = std::max(shared, Arithmetic::shared_bytes(a.link[i]));
    }
    const ChainKernel<Arithmetic> kernel =
        with_others ? with_others : chain_kernel_for<Arithmetic>(type, false);
    if (!kernel || shared > e.card->shared_per_block) return {};
    if (!alone) {
        const int64_t room =
            e.stream->blocks_at_once(reinterpret_cast<const void*>(kernel), row_block_threads, shared);
        if (room < grid) return {};
        a.counters = reinterpret_cast<ChainCounters*>(e.counters + attention_counters);
    }
    launch(kernel, Dims{grid, 1, 1, row_block_threads, shared, !alone}, *e.stream, a);
    return {taken, a.stores ? stored : 0};
}
