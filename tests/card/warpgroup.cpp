// Products of a warpgroup with A in registers (PTX ISA 9.0, section 9.7.16): of its four warps each computes
// its 16 rows. Sums are there at once, but what a product reads must stay as it is until it is waited for.
#include <unordered_map>

#include "ggml/types/float16.h"
#include "tests/card/machine.h"

namespace nibble::card {
namespace {

constexpr int depth = 16, fragment_registers = 4;

// A matrix in shared memory: rows of 64 elements, whose 16-byte pieces are exchanged by the address, in
// groups of eight ("Matrix Descriptor Format", "Strides", "Swizzling modes"). A row holds a column of B, or,
// for a transposed B, the elements of all of up to 64 columns with one k.
class SharedMatrix {
  public:
    SharedMatrix(uint64_t descriptor, bool transposed)
        : start_(field(descriptor, 0) * 16), stride_(field(descriptor, 32) * 16), transposed_(transposed) {
        if (descriptor >> 62 != 1) throw Fault("a matrix that is not exchanged within 128 bytes");
        if (descriptor >> 49 & 7) throw Fault("a matrix whose pattern does not begin at a multiple of 1024");
    }
    uint64_t address(int column, int k) const {
        const int row = transposed_ ? k : column, element = transposed_ ? column : k;
        const uint64_t plain = start_ + static_cast<uint64_t>(row / 8) * stride_ +
                               static_cast<uint64_t>(row % 8 * 128 + element * 2);
        return plain ^ (plain >> 7 & 7) << 4;
    }

  private:
    static uint64_t field(uint64_t descriptor, int at) { return descriptor >> at & 0x3fff; }
    uint64_t start_, stride_;
    bool transposed_;
};

uint64_t descriptor_of(Machine& m, const Instruction& i) {
    const uint64_t* const cells = m.cells(i.in[fragment_registers]);
    for (int lane = 1; lane < warp_size; ++lane)
        if (cells[lane] != cells[0]) throw Fault("lanes that describe different matrices");
    return cells[0];
}

int columns_of(const Instruction& i) { return static_cast<int>(2 * i.sums.size()); }

SharedMatrix matrix_of(Machine& m, const Instruction& i, uint64_t descriptor) {
    const bool transposed = value<int32_t>(m.cells(i.in[8]), 0) != 0;
    if (transposed && columns_of(i) != 64) throw Fault("a transposed matrix of other than 64 columns");
    return {descriptor, transposed};
}

// Everything that the product reads, fragments first.
std::vector<std::byte> inputs(Machine& m, const Instruction& i, const SharedMatrix& b) {
    std::vector<std::byte> read;
    const auto add = [&](const void* p, size_t bytes) {
        const auto* const from = static_cast<const std::byte*>(p);
        read.insert(read.end(), from, from + bytes);
    };
    for (size_t r = 0; r < fragment_registers; ++r) add(m.cells(i.in[r]), warp_size * sizeof(uint64_t));
    for (int column = 0; column < columns_of(i); ++column)
        for (int k = 0; k < depth; ++k) add(m.in_shared(b.address(column, k), 2), 2);
    return read;
}

template <int columns, bool bf16>
void multiply(Machine& m, const Instruction& i, Lanes) {
    const auto value_of = [](uint16_t bits) { return bf16 ? bf16_to_f32(bits) : f16_to_f32(bits); };
    Warp& w = *m.warp;
    if (!w.registers_ready) throw Fault("a product of a warpgroup whose registers are not ready");
    if (!m.published) throw Fault("a matrix that was not shown to the tensor cores before the barrier");
    if (i.sums.size() != columns / 2) throw Fault("a product with other sums");
    if (!(m.predicate(i.in[5]) & 1)) throw Fault("a product that does not add");
    for (const size_t sign : {size_t{6}, size_t{7}})
        if (value<int32_t>(m.cells(i.in[sign]), 0) != 1) throw Fault("a product with signs");
    const uint64_t descriptor = descriptor_of(m, i);
    const SharedMatrix matrix = matrix_of(m, i, descriptor);
    float a[16][depth], b[depth][columns];
    for (int lane = 0; lane < warp_size; ++lane)
        for (int r = 0; r < fragment_registers; ++r) {
            const auto pair = value<uint32_t>(m.cells(i.in[static_cast<size_t>(r)]), lane);
            for (int half = 0; half < 2; ++half)
                a[lane / 4 + 8 * (r % 2)][lane % 4 * 2 + half + 8 * (r / 2)] =
                    value_of(static_cast<uint16_t>(pair >> 16 * half));
        }
    for (int column = 0; column < columns; ++column)
        for (int element = 0; element < depth; ++element) {
            uint16_t bits;
            std::memcpy(&bits, m.in_shared(matrix.address(column, element), sizeof bits), sizeof bits);
            b[element][column] = value_of(bits);
        }
    for (size_t s = 0; s < i.sums.size(); ++s) {
        uint64_t* const out = m.cells(i.sums[s]);
        for (int lane = 0; lane < warp_size; ++lane) {
            const auto row = static_cast<size_t>(lane / 4) + s / 2 % 2 * 8,
                       column = s / 4 * 8 + static_cast<size_t>(lane % 4 * 2) + s % 2;
            auto sum = value<float>(out, lane);
            for (int n = 0; n < depth; ++n) sum += a[row][n] * b[n][column];
            set_value(out, lane, sum);
        }
    }
    w.products.push_back({&i, w.product_groups, inputs(m, i, matrix), descriptor});
}

void close_group(Machine& m, const Instruction&, Lanes) {
    ++m.warp->product_groups;
    m.warp->registers_ready = false;
}

void wait_for_groups(Machine& m, const Instruction& i, Lanes) {
    std::erase_if(m.warp->products, [&](const PendingProduct& p) {
        const bool due = p.group < m.warp->product_groups - i.add[0];
        if (due && inputs(m, *p.instruction, matrix_of(m, *p.instruction, p.descriptor)) != p.read)
            throw Fault("what a product reads has changed while it was running");
        return due;
    });
}

void registers_ready(Machine& m, const Instruction&, Lanes) { m.warp->registers_ready = true; }

void publish(Machine& m, const Instruction&, Lanes on) { m.warp->unpublished &= ~on; }

}  // namespace

Handler warpgroup_handler(const std::string& name) {
    static const auto* const table = new std::unordered_map<std::string, Handler>{
        {"wgmma.mma_async.m64n256k16.f32.f16.f16", multiply<256, false>},
        {"wgmma.mma_async.m64n128k16.f32.f16.f16", multiply<128, false>},
        {"wgmma.mma_async.m64n64k16.f32.f16.f16", multiply<64, false>},
        {"wgmma.mma_async.m64n32k16.f32.f16.f16", multiply<32, false>},
        {"wgmma.mma_async.m64n64k16.f32.bf16.bf16", multiply<64, true>},
        {"wgmma.commit_group", close_group},
        {"wgmma.wait_group", wait_for_groups},
        {"wgmma.fence", registers_ready},
        {"fence.proxy.async", publish},
    };
    const auto it = table->find(name);
    return it == table->end() ? nullptr : it->second;
}

}  // namespace nibble::card
