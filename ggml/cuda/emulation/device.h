// The vocabulary of device.h on the host: threads of a block are fibers, collectives exchange through memory.
// Slow and strict: asynchronous copies arrive only when waited for, shared memory starts as NaNs and has
// exactly the size asked for, a collective that not all lanes reach ends the program.
#pragma once

#include <cmath>
#include <cstring>

#include "ggml/cuda/emulation/block.h"
#include "ggml/cuda/emulation/warpgroup.h"
#include "ggml/cuda/runtime.h"
#include "ggml/types/float16.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __grid_constant__

namespace nibble::cuda {

inline int thread_index() { return emulation::place.thread; }
inline int64_t block_x() { return emulation::place.x; }
inline int block_y() { return emulation::place.y; }
inline int block_z() { return emulation::place.z; }
inline int lane() { return thread_index() % 32; }
inline int warp_index() { return thread_index() / 32; }
inline int block_threads() { return emulation::place.dims.threads; }
inline int64_t grid_x() { return emulation::place.dims.x; }
inline std::byte* shared_memory() { return emulation::place.shared; }

inline void wait_for_previous() { emulation::wait_for_previous(); }
inline void sync_block() { emulation::wait_for_block(); }
inline void sync_warp() { emulation::wait_for_warp(); }

namespace emulation {
// What each lane of the warp hands over; valid until the lane's next exchange.
template <class T>
struct Handed {
    const Slot* slots;
    T operator[](int l) const {
        T v;
        std::memcpy(&v, slots[l].bytes, sizeof v);
        return v;
    }
};
template <class T>
Handed<T> hand_over(const T& mine) {
    static_assert(sizeof mine <= sizeof(Slot));
    Slot s{};
    std::memcpy(s.bytes, &mine, sizeof mine);
    return {exchange(s)};
}
}  // namespace emulation

template <class T>
T shuffle(T v, int from) {
    static_assert(sizeof(T) == 4);
    return emulation::hand_over(v)[from % 32];
}
template <class T>
T shuffle_xor(T v, int mask) {
    return shuffle(v, lane() ^ mask);
}
inline int warp_sum(int v) {
    const auto all = emulation::hand_over(v);
    int sum = 0;
    for (int l = 0; l < 32; ++l) sum += all[l];
    return sum;
}
inline int lanes_alike(int v, int& before) {
    const auto all = emulation::hand_over(v);
    int alike = before = 0;
    for (int l = 0; l < 32; ++l)
        if (all[l] == v) {
            ++alike;
            before += l < lane();
        }
    return alike;
}

namespace emulation {
template <class T>
T aligned_load(const void* p) {
    if (reinterpret_cast<uintptr_t>(p) % sizeof(T) != 0) fail("a load is not aligned to its size");
    T v;
    std::memcpy(&v, p, sizeof v);
    return v;
}
}  // namespace emulation

inline uint32_t shared_address(const void* p) {
    return static_cast<uint32_t>(static_cast<const std::byte*>(p) - shared_memory());
}
inline uint32_t load_shared(uint32_t address) {
    return emulation::aligned_load<uint32_t>(shared_memory() + address);
}
inline Words4 load16(const void* p) { return emulation::aligned_load<Words4>(p); }
inline Words4 read16(const void* p) { return emulation::aligned_load<Words4>(p); }
inline Words2 load8(const void* p) { return emulation::aligned_load<Words2>(p); }
inline uint32_t load4(const void* p) { return emulation::aligned_load<uint32_t>(p); }

inline void copy_async16(void* shared, const void* global, bool on) {
    emulation::queue_copy(shared, on ? global : nullptr);
}
inline void copy_commit() { emulation::commit_copies(); }
template <int n>
void copy_wait() {
    emulation::finish_copies(n);
}

namespace emulation {
// The rows that the lanes name, after all have named theirs.
inline Handed<const std::byte*> matrix_rows(const void* mine) {
    if (reinterpret_cast<uintptr_t>(mine) % 16 != 0) fail("a row of a matrix is not aligned to 16 bytes");
    return hand_over(static_cast<const std::byte*>(mine));
}
}  // namespace emulation

inline void load_matrix4(uint32_t (&r)[4], const void* p) {
    const auto rows = emulation::matrix_rows(p);
    for (int i = 0; i < 4; ++i) std::memcpy(&r[i], rows[8 * i + lane() / 4] + lane() % 4 * 4, 4);
}
inline void load_matrix4_transposed(uint32_t (&r)[4], const void* p) {
    const auto rows = emulation::matrix_rows(p);
    for (int i = 0; i < 4; ++i) {
        uint16_t v[2];
        for (int j = 0; j < 2; ++j) std::memcpy(&v[j], rows[8 * i + lane() % 4 * 2 + j] + lane() / 4 * 2, 2);
        r[i] = v[0] | static_cast<uint32_t>(v[1]) << 16;
    }
}

inline int atomic_add(int* p, int v) { return emulation::atomic_add(p, v); }
inline int atomic_add_release(int* p, int v) { return emulation::atomic_add_release(p, v); }
inline int atomic_add_acquire_release(int* p, int v) { return emulation::atomic_add_acquire_release(p, v); }
inline void fence() { emulation::fence(); }

inline float fused(float a, float b, float c) { return std::fma(a, b, c); }
namespace emulation {
inline float flushed(float x) { return std::fabs(x) < 0x1p-126f ? 0 : x; }
}  // namespace emulation
inline float exp2_or_zero(float x) { return emulation::flushed(std::exp2(x)); }
inline float reciprocal(float x) { return emulation::flushed(1 / emulation::flushed(x)); }
inline uint32_t float_bits(float x) { return std::bit_cast<uint32_t>(x); }
inline float bits_float(uint32_t b) { return std::bit_cast<float>(b); }
inline float half_to_float(uint16_t h) { return f16_to_f32(h); }
inline uint16_t float_to_half(float x) { return f32_to_f16(x); }
inline float bf16_to_float(uint16_t h) { return bf16_to_f32(h); }
inline uint16_t float_to_bf16(float x) { return f32_to_bf16(x); }
inline uint32_t half2(float lo, float hi) {
    return float_to_half(lo) | static_cast<uint32_t>(float_to_half(hi)) << 16;
}
inline uint32_t bf162(float lo, float hi) {
    return float_to_bf16(lo) | static_cast<uint32_t>(float_to_bf16(hi)) << 16;
}

namespace emulation {
inline float low_half(uint32_t v) { return half_to_float(static_cast<uint16_t>(v)); }
inline float high_half(uint32_t v) { return half_to_float(static_cast<uint16_t>(v >> 16)); }
}  // namespace emulation

inline uint32_t half2_sub(uint32_t a, uint32_t b) {
    return half2(emulation::low_half(a) - emulation::low_half(b),
                 emulation::high_half(a) - emulation::high_half(b));
}
inline uint32_t half2_mul(uint32_t a, uint32_t b) {
    return half2(emulation::low_half(a) * emulation::low_half(b),
                 emulation::high_half(a) * emulation::high_half(b));
}
inline uint32_t half2_fma(uint32_t a, uint32_t b, uint32_t c) {
    using namespace emulation;
    return half2(std::fma(low_half(a), low_half(b), low_half(c)),
                 std::fma(high_half(a), high_half(b), high_half(c)));
}

inline uint32_t and_or(uint32_t a, uint32_t mask, uint32_t bits) { return (a & mask) | bits; }
inline uint32_t byte_perm(uint32_t a, uint32_t b, uint32_t selector) {
    const uint64_t both = static_cast<uint64_t>(b) << 32 | a;
    uint32_t d = 0;
    for (int i = 0; i < 4; ++i)
        d |= static_cast<uint32_t>(both >> (selector >> (4 * i) & 7) * 8 & 0xff) << (8 * i);
    return d;
}

namespace emulation {

struct MmaOperands {
    float a[4][2], b[2][2];  // of each word the lower half and the upper one
};

// Every lane computes its four sums from the fragments of all lanes; value(h) is that of a half of a word.
template <class Value>
void mma(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], Value value) {
    MmaOperands mine;
    const auto unpack = [&](float(&to)[2], uint32_t w) {
        to[0] = value(static_cast<uint16_t>(w)), to[1] = value(static_cast<uint16_t>(w >> 16));
    };
    for (int i = 0; i < 4; ++i) unpack(mine.a[i], a[i]);
    for (int i = 0; i < 2; ++i) unpack(mine.b[i], b[i]);
    const auto operands = hand_over(mine);
    const int g = lane() / 4, t = lane() % 4;
    for (int quarter = 0; quarter < 4; ++quarter) {
        const MmaOperands row = operands[4 * g + quarter];
        for (int column = 0; column < 2; ++column) {
            const MmaOperands col = operands[4 * (2 * t + column) + quarter];
            for (int half = 0; half < 2; ++half)
                for (int i = 0; i < 2; ++i)
                    for (int k = 0; k < 2; ++k) d[2 * half + column] += row.a[half + 2 * i][k] * col.b[i][k];
        }
    }
}

}  // namespace emulation

inline void mma_f16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    emulation::mma(d, a, b, [](uint16_t h) { return half_to_float(h); });
}
inline void mma_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    emulation::mma(d, a, b, [](uint16_t h) { return bf16_to_float(h); });
}

inline std::byte* shared_at(uint32_t address) { return shared_memory() + address; }
inline Words4 load_shared16(uint32_t address) {
    return emulation::aligned_load<Words4>(shared_memory() + address);
}
inline Words2 load_shared8(uint32_t address) {
    return emulation::aligned_load<Words2>(shared_memory() + address);
}
inline void barrier_begin(uint32_t barrier, int arrivals) { emulation::begin_barrier(barrier, arrivals); }
inline void publish_barriers() { emulation::publish_barriers(); }
inline void barrier_arrive(uint32_t barrier) { emulation::arrive(barrier, 0); }
inline void barrier_expect(uint32_t barrier, int bytes) { emulation::arrive(barrier, bytes); }
inline void copy_bulk(uint32_t to, const void* from, int bytes, uint32_t barrier) {
    emulation::queue_bulk(to, from, bytes, barrier, false);
}
inline void copy_bulk_weights(uint32_t to, const void* from, int bytes, uint32_t barrier) {
    emulation::queue_bulk(to, from, bytes, barrier, true);
}
inline void barrier_wait(uint32_t barrier, uint32_t turn) { emulation::wait_for_turn(barrier, turn); }

inline bool has_warpgroups() { return true; }
inline void publish_shared() { emulation::publish_shared(); }
inline void warpgroup_begin() { emulation::products().begin(); }
namespace emulation {
inline void request_product(float (*d)[4], const uint32_t (&a)[4], const std::byte* tile, int step,
                            TileKind kind) {
    FragmentA mine;
    std::memcpy(mine.a, a, sizeof mine.a);
    const auto all = hand_over(mine);
    WarpgroupProduct product{d[0], a, {}, tile, step, lane() % 4, kind};
    for (int i = 0; i < 4; ++i) product.rows[i] = all[lane() / 4 * 4 + i];
    products().request(product);
}
}  // namespace emulation
inline void warpgroup_multiply32(float (*d)[4], const uint32_t (&a)[4], const std::byte* tile, int step) {
    emulation::request_product(d, a, tile, step, {32, false, false});
}
inline void warpgroup_multiply128(float (*d)[4], const uint32_t (&a)[4], const std::byte* tile, int step) {
    emulation::request_product(d, a, tile, step, {128, false, false});
}
inline void warpgroup_multiply256(float (*d)[4], const uint32_t (&a)[4], const std::byte* tile, int step) {
    emulation::request_product(d, a, tile, step, {256, false, false});
}
template <bool bf16>
void warpgroup_multiply64(float (*d)[4], const uint32_t (&a)[4], const std::byte* tile, int step) {
    emulation::request_product(d, a, tile, step, {64, bf16, false});
}
template <bool bf16>
void warpgroup_multiply64_rows(float (*d)[4], const uint32_t (&a)[4], const std::byte* tile, int step) {
    emulation::request_product(d, a, tile, step, {64, bf16, true});
}
inline void warpgroup_commit() { emulation::products().commit(); }
template <int n>
void warpgroup_wait() {
    emulation::products().finish(n);
}
inline void warpgroup_after(float) {}
template <int n8>
void warpgroup_results(float (*)[4]) {}

template <class... P, class... A>
void launch(void (*kernel)(P...), const Dims& dims, Stream& stream, A&&... args) {
    stream.emulate(dims, [kernel, ... bound = static_cast<P>(args)] { kernel(bound...); });
}

}  // namespace nibble::cuda
