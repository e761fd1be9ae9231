// Products of a warpgroup in the emulation: done when they are waited for, and no sooner.
// What they were made from must still be there then.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

namespace nibble::cuda::emulation {

struct FragmentA {
    uint32_t a[4];
};

// B in shared memory: so many columns, in f16 or bf16, each in one piece, or all of a row of k.
struct TileKind {
    int columns;
    bool bf16, rows;
};

// A lane's share: two rows of A, of which it has a quarter, by a quarter of the columns of B.
struct WarpgroupProduct {
    float* sums;
    const uint32_t* mine;
    FragmentA rows[4];  // of the four lanes that have these rows
    const std::byte* tile;
    int step, quarter;
    TileKind kind;
};

// Of one thread.
class WarpgroupProducts {
  public:
    void begin() { begun_ = true; }
    void request(const WarpgroupProduct& p);
    void commit();
    // Waits until at most so many groups run.
    void finish(int running);
    bool idle() const { return open_.empty() && groups_.empty(); }

  private:
    bool begun_ = false;
    std::vector<WarpgroupProduct> open_;
    std::deque<std::vector<WarpgroupProduct>> groups_;
};

// The running thread's.
WarpgroupProducts& products();

}  // namespace nibble::cuda::emulation
