// Instructions of a whole warp: shuffles and products of matrices (PTX ISA 9.0, sections 9.7.9.6 and 9.7.15).
// Fragments are placed as its figures for mma.m16n8k8 and mma.m16n8k16 with 16-bit elements show them.
#include <algorithm>
#include <bit>
#include <unordered_map>

#include "ggml/types/float16.h"
#include "tests/card/machine.h"

namespace nibble::card {
namespace {

enum class Shuffle { up, down, xor_, index };

template <Shuffle mode>
void shuffle(Machine& m, const Instruction& i, Lanes on) {
    const uint64_t *from = m.cells(i.in[0]), *by = m.cells(i.in[1]), *clamp = m.cells(i.in[2]);
    std::array<uint32_t, warp_size> result{};
    Lanes in_range = 0;
    each_lane(on, [&](int lane) {
        if (value<uint32_t>(m.cells(i.in[3]), lane) != all_lanes) throw Fault("a shuffle of some lanes");
        const auto l = static_cast<uint32_t>(lane);
        const uint32_t b = value<uint32_t>(by, lane) & 31, c = value<uint32_t>(clamp, lane);
        const uint32_t segment = c >> 8 & 31, first = l & segment, last = first | (c & 31 & ~segment);
        uint32_t source = first | (b & ~segment);
        if (mode == Shuffle::up) source = l - b;
        if (mode == Shuffle::down) source = l + b;
        if (mode == Shuffle::xor_) source = l ^ b;
        const bool in =
            mode == Shuffle::up ? static_cast<int32_t>(source) >= static_cast<int32_t>(last) : source <= last;
        result[l] = value<uint32_t>(from, static_cast<int>(in ? source : l));
        in_range |= static_cast<Lanes>(in) << lane;
    });
    each_lane(on, [&](int lane) {
        set_value<uint32_t>(m.cells(i.out[0]), lane, result[static_cast<size_t>(lane)]);
    });
    if (i.elements == 2) m.predicate(i.out[1]) = in_range;
}

void ballot(Machine& m, const Instruction& i, Lanes on) {
    const Lanes votes = m.predicate(i.in[0]) & on;
    each_lane(on, [&](int lane) { set_value<uint32_t>(m.cells(i.out[0]), lane, votes); });
}

// The lanes that have the value of each.
void match_any(Machine& m, const Instruction& i, Lanes on) {
    const uint64_t* const from = m.cells(i.in[0]);
    std::array<Lanes, warp_size> alike{};
    each_lane(on, [&](int lane) {
        if (value<uint32_t>(m.cells(i.in[1]), lane) != all_lanes) throw Fault("a match of some lanes");
        each_lane(on, [&](int other) {
            const bool same = value<uint32_t>(from, lane) == value<uint32_t>(from, other);
            alike[static_cast<size_t>(lane)] |= static_cast<Lanes>(same) << other;
        });
    });
    each_lane(on, [&](int lane) {
        set_value<uint32_t>(m.cells(i.out[0]), lane, alike[static_cast<size_t>(lane)]);
    });
}

enum class Reduction : uint8_t { add, max };
template <Reduction how>
void reduce(Machine& m, const Instruction& i, Lanes on) {
    uint32_t result = 0;
    each_lane(on, [&](int lane) {
        if (value<uint32_t>(m.cells(i.in[1]), lane) != all_lanes) throw Fault("a reduction of some lanes");
        const auto v = value<uint32_t>(m.cells(i.in[0]), lane);
        result = how == Reduction::add ? result + v : std::max(result, v);
    });
    each_lane(on, [&](int lane) { set_value<uint32_t>(m.cells(i.out[0]), lane, result); });
}

// D = A B + C with A [16 x k], B [k x 8], C and D [16 x 8]. Registers hold two elements. Sums are of f32,
// from the first product to the last; a tensor core orders and cuts off otherwise.
template <int k, bool bf16>
void multiply_matrices(Machine& m, const Instruction& i, Lanes on) {
    constexpr size_t a_registers = k / 4, b_registers = k / 8;
    float a[16][k], b[k][8];
    const auto element = [&](size_t operand, int lane, int half) {
        const auto bits = static_cast<uint16_t>(value<uint32_t>(m.cells(i.in[operand]), lane) >> 16 * half);
        return bf16 ? bf16_to_f32(bits) : f16_to_f32(bits);
    };
    each_lane(on, [&](int lane) {
        const int group = lane / 4, column = lane % 4 * 2;
        for (size_t r = 0; r < a_registers; ++r)  // rows g and g + 8, then the same of the next 8 columns
            for (int half = 0; half < 2; ++half)
                a[group + 8 * (r % 2)][column + half + 8 * (r / 2)] = element(r, lane, half);
        for (size_t r = 0; r < b_registers; ++r)
            for (int half = 0; half < 2; ++half)
                b[column + half + 8 * r][group] = element(a_registers + r, lane, half);
    });
    float d[16][8] = {};
    for (int row = 0; row < 16; ++row)
        for (int n = 0; n < k; ++n)
            for (int col = 0; col < 8; ++col) d[row][col] += a[row][n] * b[n][col];
    for (size_t r = 0; r < 4; ++r) {  // two elements of row g, two of row g + 8
        uint64_t* const out = m.cells(i.out[r]);
        const uint64_t* const c = m.cells(i.in[a_registers + b_registers + r]);
        each_lane(on, [&](int lane) {
            set_value(out, lane, d[lane / 4 + 8 * (r / 2)][lane % 4 * 2 + r % 2] + value<float>(c, lane));
        });
    }
}

}  // namespace

Handler warp_handler(const std::string& name) {
    static const auto* const table = new std::unordered_map<std::string, Handler>{
        {"shfl.up.b32", shuffle<Shuffle::up>},
        {"shfl.down.b32", shuffle<Shuffle::down>},
        {"shfl.bfly.b32", shuffle<Shuffle::xor_>},
        {"shfl.idx.b32", shuffle<Shuffle::index>},
        {"vote.ballot.b32", ballot},
        {"match.any.b32", match_any},
        {"redux.add.s32", reduce<Reduction::add>},
        {"redux.max.u32", reduce<Reduction::max>},
        {"mma.m16n8k16.row.col.f32.f16.f16.f32", multiply_matrices<16, false>},
        {"mma.m16n8k16.row.col.f32.bf16.bf16.f32", multiply_matrices<16, true>},
        {"mma.m16n8k8.row.col.f32.f16.f16.f32", multiply_matrices<8, false>},
    };
    const auto it = table->find(name);
    return it == table->end() ? nullptr : it->second;
}

}  // namespace nibble::card
