// The vocabulary of device.h for nvcc: thin wrappers over built-ins and PTX.
// Compute capability 7.5 lacks asynchronous copies, m16n8k16 and bf16 products; they are composed there.
#pragma once

#include <cstring>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "ggml/cuda/runtime.h"
#include "ggml/cuda/warpgroup_nvcc.h"

namespace nibble::cuda {

__device__ inline int thread_index() { return static_cast<int>(threadIdx.x); }
__device__ inline int64_t block_x() { return blockIdx.x; }
__device__ inline int block_y() { return static_cast<int>(blockIdx.y); }
__device__ inline int block_z() { return static_cast<int>(blockIdx.z); }
__device__ inline int lane() { return static_cast<int>(threadIdx.x % 32); }
__device__ inline int warp_index() { return static_cast<int>(threadIdx.x / 32); }
__device__ inline int block_threads() { return static_cast<int>(blockDim.x); }
__device__ inline int64_t grid_x() { return gridDim.x; }

__device__ inline std::byte* shared_memory() {
    extern __shared__ __align__(1024) unsigned char nibble_shared[];
    return reinterpret_cast<std::byte*>(nibble_shared);
}

// Lets the next launch begin too: its blocks come in as those of this one leave room.
__device__ inline void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ inline void sync_block() { __syncthreads(); }
__device__ inline void sync_warp() { __syncwarp(); }
template <class T>
__device__ inline T shuffle(T v, int from) {
    return __shfl_sync(0xffffffffu, v, from);
}
template <class T>
__device__ inline T shuffle_xor(T v, int mask) {
    return __shfl_xor_sync(0xffffffffu, v, mask);
}
__device__ inline int warp_sum(int v) {
#if __CUDA_ARCH__ >= 800
    return __reduce_add_sync(0xffffffffu, v);
#else
    for (int m = 16; m > 0; m /= 2) v += shuffle_xor(v, m);
    return v;
#endif
}
#if __CUDA_ARCH__ >= 800  // before, device.h's does for these, too
__device__ inline uint32_t warp_max(uint32_t v) { return __reduce_max_sync(0xffffffffu, v); }
#endif
__device__ inline int lanes_alike(int v, int& before) {
    const unsigned alike = __match_any_sync(0xffffffffu, v);
    before = __popc(alike & ((1u << lane()) - 1));
    return __popc(alike);
}

__device__ inline uint32_t shared_address(const void* p) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
__device__ inline uint32_t load_shared(uint32_t address) {
    uint32_t v;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(address));
    return v;
}
__device__ inline Words4 load16(const void* p) {
    Words4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3])
                 : "l"(p));
    return v;
}
__device__ inline Words4 read16(const void* p) {
    Words4 v;
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3])
                 : "l"(p)
                 : "memory");
    return v;
}
__device__ inline Words2 load8(const void* p) {
    Words2 v;
    asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];" : "=r"(v.w[0]), "=r"(v.w[1]) : "l"(p));
    return v;
}
__device__ inline uint32_t load4(const void* p) {
    uint32_t v;
    asm volatile("ld.global.nc.L1::no_allocate.u32 %0, [%1];" : "=r"(v) : "l"(p));
    return v;
}

__device__ inline void copy_async16(void* shared, const void* global, bool on) {
#if __CUDA_ARCH__ >= 800
    const auto to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(global), "r"(on ? 16 : 0)
                 : "memory");
#else
    *static_cast<Words4*>(shared) = on ? *static_cast<const Words4*>(global) : Words4{};
#endif
}
__device__ inline void copy_commit() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
template <int n>
__device__ inline void copy_wait() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory");
#endif
}

__device__ inline void load_matrix4(uint32_t (&r)[4], const void* p) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(static_cast<unsigned>(__cvta_generic_to_shared(p)))
                 : "memory");
}
__device__ inline void load_matrix4_transposed(uint32_t (&r)[4], const void* p) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(static_cast<unsigned>(__cvta_generic_to_shared(p)))
                 : "memory");
}

__device__ inline int atomic_add(int* p, int v) { return atomicAdd(p, v); }
__device__ inline int atomic_add_release(int* p, int v) {
    int old;
    asm volatile("atom.add.release.gpu.global.s32 %0, [%1], %2;" : "=r"(old) : "l"(p), "r"(v) : "memory");
    return old;
}
__device__ inline int atomic_add_acquire_release(int* p, int v) {
    int old;
    asm volatile("atom.add.acq_rel.gpu.global.s32 %0, [%1], %2;" : "=r"(old) : "l"(p), "r"(v) : "memory");
    return old;
}
__device__ inline void fence() { __threadfence(); }

__device__ inline float fused(float a, float b, float c) { return __fmaf_rn(a, b, c); }
__device__ inline float exp2_or_zero(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
__device__ inline float reciprocal(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
__device__ inline uint32_t float_bits(float x) { return __float_as_uint(x); }
__device__ inline float bits_float(uint32_t b) { return __uint_as_float(b); }
__device__ inline float half_to_float(uint16_t h) { return __half2float(__ushort_as_half(h)); }
__device__ inline uint16_t float_to_half(float x) { return __half_as_ushort(__float2half_rn(x)); }
__device__ inline float bf16_to_float(uint16_t h) { return __uint_as_float(static_cast<uint32_t>(h) << 16); }
__device__ inline uint16_t float_to_bf16(float x) { return __bfloat16_as_ushort(__float2bfloat16_rn(x)); }
__device__ inline uint32_t half2(float lo, float hi) {
    return float_to_half(lo) | static_cast<uint32_t>(float_to_half(hi)) << 16;
}
__device__ inline uint32_t bf162(float lo, float hi) {
    return float_to_bf16(lo) | static_cast<uint32_t>(float_to_bf16(hi)) << 16;
}
__device__ inline uint32_t half2_sub(uint32_t a, uint32_t b) {
    uint32_t d;
    asm("sub.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    return d;
}
__device__ inline uint32_t half2_mul(uint32_t a, uint32_t b) {
    uint32_t d;
    asm("mul.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    return d;
}
__device__ inline uint32_t half2_fma(uint32_t a, uint32_t b, uint32_t c) {
    uint32_t d;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
}
__device__ inline uint32_t and_or(uint32_t a, uint32_t mask, uint32_t bits) {
    uint32_t d;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(d) : "r"(a), "r"(mask), "r"(bits));
    return d;
}
__device__ inline uint32_t byte_perm(uint32_t a, uint32_t b, uint32_t selector) {
    return __byte_perm(a, b, selector);
}

__device__ inline void mma_f16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
#if __CUDA_ARCH__ >= 800
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
    for (int i = 0; i < 2; ++i)
        asm volatile(
            "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a[2 * i]), "r"(a[2 * i + 1]), "r"(b[i]));
#endif
}

__device__ inline void mma_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
#if __CUDA_ARCH__ >= 800
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
    // No bf16 products: f16 has more precision and, for weights and scaled activations, enough range.
    const auto to_half2 = [](uint32_t v) {
        return half2(__uint_as_float(v << 16), __uint_as_float(v & 0xffff0000u));
    };
    const uint32_t ha[4] = {to_half2(a[0]), to_half2(a[1]), to_half2(a[2]), to_half2(a[3])};
    const uint32_t hb[2] = {to_half2(b[0]), to_half2(b[1])};
    mma_f16(d, ha, hb);
#endif
}

// Errors of a launch stay in the stream and are returned by its next synchronize().
template <class... P, class... A>
void launch(void (*kernel)(P...), const Dims& dims, Stream& stream, A&&... args) {
    if (dims.x == 0 || dims.y == 0 || dims.z == 0) return;
    if (!stream.enter(reinterpret_cast<const void*>(kernel), dims.shared)) return;
    cudaLaunchAttribute overlapped{};
    overlapped.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlapped.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim =
        dim3(static_cast<unsigned>(dims.x), static_cast<unsigned>(dims.y), static_cast<unsigned>(dims.z));
    config.blockDim = dim3(static_cast<unsigned>(dims.threads));
    config.dynamicSmemBytes = dims.shared;
    config.stream = static_cast<cudaStream_t>(stream.handle());
    config.attrs = &overlapped;
    config.numAttrs = stream.overlaps() ? 1 : 0;
    const cudaError_t error = cudaLaunchKernelEx(&config, kernel, static_cast<P>(args)...);
    if (error == cudaSuccess) return;
    (void)cudaGetLastError();
    stream.failed(cudaGetErrorString(error));
}

}  // namespace nibble::cuda
