// What the products of a step bring to a block of streaming attention: queries, and the key and value of a
// token where they are not in the cache yet. Then the rotation and storing share attention's launch.
//
// Warps norm and rotate heads, as rope_store does, and leave them in shared memory: queries for the products,
// a key and a value, rounded to the cache's type, to be taken in place of what the cache has at the token's
// position. They go there once nobody in the block reads the cache any more; no other block reads that row.

#include "ggml/cuda/heads.inl"

struct StreamArgs : AttentionArgs {
    // Where queries are and how they are normed and rotated; with `stores` keys and values, too, and where
    // these go. A sequence has one token then.
    StoreArgs store;
    bool stores = false;
};

template <bool bf16, int dim, int rows, int warps>
class Brought {
    static constexpr int at_once = 2 * warps, turns = (rows + 2 + at_once - 1) / at_once;
    static constexpr int fours = dim / 64;  // columns of a head that a lane has, times four
    __device__ static int column(int f) { return 64 * f + 4 * (lane() % 16); }
    __device__ static int first() { return 2 * warp_index(); }  // of the warp's two heads of a turn
    __device__ int queries() const {
        const int left = tile_.rows - tile_.row;
        return left < rows ? left : rows;
    }
    __device__ int items() const { return queries() + (slot_ >= 0 ? 2 : 0); }

    // One of what half a warp takes at a time.
    struct Head {
        const float* from;
        int cols, kind, row;  // a query (0) for that row, the key (1) or the value (2)
        bool there;
        HeadFour four[fours];

        // The i-th: the queries come first.
        __device__ void find(const Brought& b, int i) {
            const StoreArgs& s = b.a_.store;
            there = i < b.items(), row = there ? i : 0;
            kind = row < b.queries() ? 0 : row == b.queries() ? 1 : 2;
            cols = kind == 2 ? s.p.v_head_dim : s.p.head_dim;
            const int r = b.tile_.row + row, later = r / b.a_.group;  // tokens
            const int of_head = kind == 0 ? b.kv_head_ * b.a_.group + r - later * b.a_.group : b.kv_head_;
            const View& x = kind == 0 ? s.q : kind == 1 ? s.k : s.v;
            from = x.row(b.tile_.first + (kind == 0 ? later : 0)) + of_head * cols;
        }
    };

  public:
    // What is on its way.
    struct Asked {
        Turn turn[fours];
        Head head[turns];
    };

    static constexpr int stride = dim + 4;  // floats: of a query, so that rows begin in different banks
    static constexpr int bytes = (rows * stride + dim) * 4;

    // `shared`: `bytes` of shared memory.
    __device__ Brought(const StreamArgs& a, const QueryTile& tile, int kv_head, std::byte* shared)
        : a_(a), tile_(tile), kv_head_(kv_head), shared_(shared) {}

    // Whether the cache lacks the tile's last position, and where its row is there. `last`: the block that
    // attends to it. Of the step's inputs alone, so before the launches before are waited for.
    __device__ void find_slot(const Reach& reach, bool last) {
        if (!a_.stores || !last) return;
        slot_ = input(a_.store.slots.row<int32_t>(tile_.first));
        const int page = input(a_.page_table.row<int32_t>(tile_.sequence) + (reach.last >> a_.page_shift));
        const int in_page = reach.last & ((1 << a_.page_shift) - 1);
        fresh_ = slot_ >= 0 && reach.last == reach.position && slot_ == (page << a_.page_shift) + in_page;
    }
    __device__ bool fresh() const { return fresh_; }

    // Half a warp takes a head, so that there is seldom a second turn; no turn's loads wait for another's.
    __device__ Asked ask() const {
        Asked asked;
        const View& table = a_.store.table;
        const float* const any = a_.store.q.row(tile_.first);
        const float* const cs = table ? table.row(tile_.first) : nullptr;
        for (int f = 0; f < fours; ++f) asked.turn[f] = Turn(cs, any, column(f), a_.store.p);
#pragma unroll
        for (int t = 0; t < turns; ++t) {
            Head& h = asked.head[t];
            h.find(*this, t * at_once + first() + lane() / 16);
            for (int f = 0; f < fours; ++f)
                h.four[f].load(h.from, h.cols, column(f), asked.turn[f], h.kind < 2);
        }
        return asked;
    }
    // Makes it ready; the whole block, which then waits for itself.
    __device__ void take(Asked& asked) const {
#pragma unroll
        for (int t = 0; t < turns; ++t) {
            if (items() <= t * at_once + first()) break;
            finish(asked.head[t], asked.turn);
        }
        sync_block();
    }
    __device__ float* query(int row) const { return reinterpret_cast<float*>(shared_) + row * stride; }
    // The key (0) or value (1) of the token.
    __device__ std::byte* row(int which) const { return shared_ + (rows * stride + which * dim / 2) * 4; }

    // The key and the value into the cache, a warp each.
    __device__ void put() const {
        const int which = warp_index(), c = 4 * lane();
        if (slot_ < 0 || which > 1) return;
        const StoreArgs& s = a_.store;
        std::byte* const to = s.cached(which == 0 ? s.k_cache : s.v_cache, slot_, kv_head_);
        if (!to || c >= (which == 0 ? s.p.head_dim : s.p.v_head_dim)) return;
        *reinterpret_cast<Words2*>(to + 2 * c) = *reinterpret_cast<const Words2*>(row(which) + 2 * c);
    }

  private:
    __device__ void finish(Head& h, const Turn (&turn)[fours]) const {
        const HeadNorm(&norms)[2] = a_.store.norm;
        if (norms[0].on || norms[1].on) {
            // Summed in the order that a warp has of which each lane has a four.
            float squares = h.four[0].squares(h.cols, column(0));
            if constexpr (fours == 2) squares += h.four[1].squares(h.cols, column(1));
            for (int m = 8; m > 0; m /= 2) squares += shuffle_xor(squares, m);
            const HeadNorm& norm = norms[h.kind == 0 ? 0 : 1];
            if (h.kind < 2 && norm.on) {
                const float factor = factor_of_squares(squares, h.cols, norm.eps);
                for (int f = 0; f < fours; ++f) h.four[f].norm(norm, factor, h.cols, column(f), turn[f]);
            }
        }
        for (int f = 0; f < fours; ++f) {
            if (h.kind < 2) h.four[f].turn_by(turn[f]);
            if (!h.there || column(f) >= h.cols) continue;
            const float(&v)[4] = h.four[f].own;
            if (h.kind == 0)
                *reinterpret_cast<Words4*>(query(h.row) + column(f)) = words_of(v);
            else
                *reinterpret_cast<Words2*>(row(h.kind - 1) + 2 * column(f)) =
                    bf16 ? Words2{{bf162(v[0], v[1]), bf162(v[2], v[3])}}
                         : Words2{{half2(v[0], v[1]), half2(v[2], v[3])}};
        }
    }

    const StreamArgs& a_;
    const QueryTile tile_;
    const int kv_head_;
    std::byte* const shared_;
    int slot_ = -1;
    bool fresh_ = false;
};
