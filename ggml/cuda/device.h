// The vocabulary of kernels: every thread index, collective, copy and tensor-core product they may use.
// Two definitions: nvcc's (device_nvcc.h) and a host emulation (emulation/device.h) that the tests run.
//
// Kernels are `__global__ void` functions, launched only through launch(). A block has a multiple of 32
// threads in one dimension and up to three block indices. Shared memory is one dynamic array, given by
// shared_memory() and sized in Dims; there are no static __shared__ variables. Collectives are called by all
// 32 lanes of a warp, sync_block() by all threads of the block.
//
//   thread_index() block_x() block_y() block_z() lane() warp_index() block_threads() grid_x()
//   shared_memory()                   std::byte*, aligned to 1024
//   wait_for_previous()               every thread of every kernel calls it once. Cards from 9.0 on begin a
//                                     launch before the last one has ended; what launches leave may be read,
//                                     and written, from here on. Weights and a step's inputs, which none
//                                     writes, may be read before, by load16() and its like
//   sync_block() sync_warp()
//   shuffle(v, lane) shuffle_xor(v, mask)   of any 4-byte type; warp_sum(x) warp_max(x) over all lanes, in
//                                     the fixed order of a butterfly; of whole numbers warp_sum(i) and
//                                     warp_max(u), which take one instruction from 8.0 on, and
//                                     warp_sum_up_to(i)
//   lanes_alike(v, before)            how many lanes have this lane's int; `before`: of those before it
//   shared_address(p) load_shared(a)  a place in shared memory as a number, and the word there: an address
//                                     that is made from a number takes one instruction
//   load16(p) load8(p) load4(p)       reads of global memory that will not be read again soon (streaming)
//   read16(p)                         reads global memory in its place: what is used under a condition alone
//                                     is otherwise read behind that, and in pieces
//   copy_async16(shared, global, on)  16 bytes, zeros unless `on`; copy_commit() closes a group of copies,
//                                     copy_wait<n>() waits until at most n groups are under way
//   load_matrix4(r, p)                four 8 x 8 matrices of 16-bit values from shared memory: lane l names
//                                     row l % 8 of matrix l / 8 (16 bytes, aligned); r[i]: of matrix i the
//                                     values (row lane / 4, columns 2 (lane % 4) and the next);
//   load_matrix4_transposed(r, p)     of the transposed matrices
//   atomic_add(int*, int)             returns the old value
//   fence()                           orders the thread's writes before it and its reads after it, for the
//                                     whole device; empties the multiprocessor's L1 cache
//   atomic_add_release(int*, int)     the same as atomic_add, after the thread's writes, and those that a
//                                     barrier put before it, are visible; empties no cache
//   atomic_add_acquire_release(int*, int)   that, and what others have released there is visible after it;
//                                     empties the L1 cache, but orders less than fence()
//   float_bits bits_float             the pattern of an f32
//   exp2_or_zero(x) reciprocal(x)     2^x and 1 / x in one instruction; results below 2^-126 are zero
//   fused(a, b, c)                    a b + c, rounded once; nothing else is contracted to that
//   half_to_float bf16_to_float float_to_half float_to_bf16   round to nearest even; 16-bit patterns
//   half2(lo, hi) bf162(lo, hi)       two rounded values in a word; half2_sub half2_fma half2_mul
//   and_or(a, mask, bits)             a & mask | bits in one instruction
//   byte_perm(a, b, selector)         PRMT: byte i of the result is byte (selector >> 4i & 7) of b:a
//   mma_f16(d, a, b) mma_bf16(d, a, b)   d[4] += A B of a warp: m16n8k16 with f32 sums; fragments below
//
// Fragments of m16n8k16 (PTX ISA, "Matrix Fragments for mma.m16n8k16"), g = lane / 4, t = lane % 4:
//   a[0]: row g, k 2t, 2t+1    a[1]: row g+8, same k    a[2]: row g, k 2t+8, 2t+9    a[3]: row g+8, those k
//   b[0]: k 2t, 2t+1, column g     b[1]: k 2t+8, 2t+9, column g
//   d[0], d[1]: row g, columns 2t, 2t+1     d[2], d[3]: row g+8
//
// Generation 9.0 alone, where warpgroups_built() says that the kernels were compiled for it: products of a
// warpgroup, four warps of which the first is a multiple of four. They run beside what follows.
//   has_warpgroups()                  a constant: elsewhere kernels that need them are left empty
//   publish_shared()                  what the thread wrote to shared memory, or waited for, is there for the
//                                     products that come after the next barrier
//   warpgroup_begin()                 the registers of the products to come are ready
//   warpgroup_multiply128(d, a, tile, step)   d[16][4] += A B with 16 rows per warp, 128 columns and k 16: a
//                                     as in m16n8k16, d[j] as its d for columns 8 j ..; B from shared memory:
//                                     16 `step` .. of 64 f16 of each column, a column 128 bytes, whose
//                                     16-byte pieces i of column c lie at i ^ (c % 8). `tile` is aligned to
//                                     1024; neither it nor a or d may be touched until waited for
//   warpgroup_multiply256(d, a, tile, step)   the same with 256 columns, d[32][4]
//   warpgroup_multiply32(d, a, tile, step)    the same with 32 columns, d[4][4]
//   warpgroup_multiply64<bf16>(d, a, tile, step)   the same with 64 columns, d[8][4], of f16 or bf16
//   warpgroup_multiply64_rows<bf16>(d, a, tile, step)   B as rows of 64 columns: 16 `step` .. are its k
//   warpgroup_commit()                closes a group of products; warpgroup_wait<n>() waits until at most n
//                                     groups run; warpgroup_results<n>(d[n][4]) comes before d is
//                                     read
//   warpgroup_after(x)                x, which is never negative, is made before what is waited for next:
//                                     compilers would have it wait first
// And copies in one piece, which such products read without publish_shared(). Shared memory goes by
// shared_address(), shared_at() is the pointer to it again.
//   load_shared16(a) load_shared8(a)   as load_shared(): what such a copy brought, once it was waited for
//   barrier_begin(b, n)               makes the 8 bytes (barrier_bytes) at b a barrier: a turn is complete
//                                     with n arrivals and all bytes that were expected in it
//   publish_barriers()                comes after that, and before the next barrier of the block
//   barrier_arrive(b)                 one arrival; what the thread's products read may then be written
//   barrier_expect(b, bytes)          the same, and so many bytes are to come in this turn
//   copy_bulk(to, from, bytes, b)     a multiple of 16 bytes, aligned to 16, of which b is told
//   copy_bulk_weights(...)            the same of weights, which may be asked for before wait_for_previous()
//   barrier_wait(b, i)                waits for the end of the turn, if the one that runs is even (i = 0) or
//                                     odd (1)
#pragma once

#include <cstddef>
#include <cstdint>

#include "ggml/cuda/dims.h"

namespace nibble::cuda {

constexpr int barrier_bytes = 8;

struct alignas(16) Words4 {
    uint32_t w[4];
};
struct alignas(8) Words2 {
    uint32_t w[2];
};

}  // namespace nibble::cuda

#ifdef __CUDACC__
#include "ggml/cuda/device_nvcc.h"
#else
#include "ggml/cuda/emulation/device.h"
#endif

namespace nibble::cuda {

__device__ inline float warp_sum(float x) {
    for (int m = 16; m > 0; m /= 2) x += shuffle_xor(x, m);
    return x;
}

template <class T>
__device__ T warp_max(T x) {
    for (int m = 16; m > 0; m /= 2) {
        const T y = shuffle_xor(x, m);
        x = y > x ? y : x;
    }
    return x;
}

// Of this lane and those before it.
__device__ inline int warp_sum_up_to(int v) {
    for (int d = 1; d < 32; d *= 2) {
        const int before = shuffle(v, (lane() + 32 - d) % 32);
        if (lane() >= d) v += before;
    }
    return v;
}

// Sum over the block in a fixed order; `partial` is shared memory for one float per warp. Every thread gets
// the result; the memory may be reused after the next sync_block().
__device__ inline float block_sum(float x, float* partial) {
    x = warp_sum(x);
    sync_block();
    if (lane() == 0) partial[warp_index()] = x;
    sync_block();
    float total = 0;
    for (int w = 0; w < block_threads() / 32; ++w) total += partial[w];
    return total;
}

// Of this thread and those before it; `total`: of all. `partial` as above, of ints.
__device__ inline int block_sum_up_to(int v, int& total, int* partial) {
    v = warp_sum_up_to(v);
    sync_block();
    if (lane() == 31) partial[warp_index()] = v;
    sync_block();
    total = 0;
    for (int w = 0; w < block_threads() / 32; ++w) {
        if (w < warp_index()) v += partial[w];
        total += partial[w];
    }
    return v;
}

__device__ inline float block_max(float x, float* partial) {
    x = warp_max(x);
    sync_block();
    if (lane() == 0) partial[warp_index()] = x;
    sync_block();
    float most = partial[0];
    for (int w = 1; w < block_threads() / 32; ++w) most = partial[w] > most ? partial[w] : most;
    return most;
}

}  // namespace nibble::cuda
