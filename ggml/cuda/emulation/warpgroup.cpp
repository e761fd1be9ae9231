// Four warps multiply as the PTX ISA says of wgmma.m64n128k16: A from registers, B from shared memory.
// Every lane computes its own 64 sums.
#include "ggml/cuda/emulation/warpgroup.h"

#include <cstring>
#include <utility>

#include "ggml/cuda/emulation/block.h"
#include "ggml/types/float16.h"

namespace nibble::cuda::emulation {
namespace {

constexpr int depth = 16, row_bytes = 128, piece_bytes = 16;

float value(uint16_t bits, bool bf16) { return bf16 ? bf16_to_f32(bits) : f16_to_f32(bits); }

// Element k of a column: rows of 64 values, whose pieces are exchanged by the row's number.
float element(const WarpgroupProduct& p, int k, int column) {
    const int row = p.kind.rows ? p.step * depth + k : column;
    const int at = p.kind.rows ? column : p.step * depth + k;
    uint16_t bits;
    std::memcpy(&bits, p.tile + row * row_bytes + ((at / 8) ^ (row % 8)) * piece_bytes + at % 8 * 2,
                sizeof bits);
    return value(bits, p.kind.bf16);
}

void multiply(const WarpgroupProduct& p) {
    if (std::memcmp(p.mine, p.rows[p.quarter].a, sizeof p.rows[0].a) != 0)
        fail("a fragment was changed while its product was running");
    float a[2][depth];
    for (int half = 0; half < 2; ++half)
        for (int i = 0; i < depth; ++i) {
            const uint32_t pair = p.rows[i % 8 / 2].a[half + i / 8 * 2];
            a[half][i] = value(static_cast<uint16_t>(pair >> (i % 2 * 16)), p.kind.bf16);
        }
    for (int c = 0; c < p.kind.columns; ++c) {
        if (c % 8 / 2 != p.quarter) continue;
        float b[depth];
        for (int i = 0; i < depth; ++i) b[i] = element(p, i, c);
        for (int half = 0; half < 2; ++half) {
            float& sum = p.sums[c / 8 * 4 + half * 2 + c % 2];
            for (int i = 0; i < depth; ++i) sum += a[half][i] * b[i];
        }
    }
}

}  // namespace

void WarpgroupProducts::request(const WarpgroupProduct& p) {
    if (!begun_) fail("a product of a warpgroup without warpgroup_begin()");
    if (place.dims.threads % 128 != 0) fail("a warpgroup has 128 threads");
    if (reinterpret_cast<uintptr_t>(p.tile) % 1024 != 0) fail("a tile is not aligned to 1024 bytes");
    if (!shared_is_published()) fail("a tile is multiplied that was not published before the barrier");
    open_.push_back(p);
}

void WarpgroupProducts::commit() {
    begun_ = false;
    groups_.push_back(std::exchange(open_, {}));
}

void WarpgroupProducts::finish(int running) {
    for (; groups_.size() > static_cast<size_t>(running); groups_.pop_front())
        for (const WarpgroupProduct& p : groups_.front()) multiply(p);
}

}  // namespace nibble::cuda::emulation
