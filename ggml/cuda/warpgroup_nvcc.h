// Products of warpgroups for nvcc: the part of device.h that only generation 9.0 has (compute_90a).
// Included by device_nvcc.h alone; kernels are not launched where these do nothing.
#pragma once

#include <cstddef>
#include <cstdint>

namespace nibble::cuda {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
__device__ inline constexpr bool has_warpgroups() { return true; }
__device__ inline void publish_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
__device__ inline void warpgroup_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void warpgroup_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int n>
__device__ inline void warpgroup_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(n) : "memory");
}
// A store that never happens, but that ptxas leaves where it is, behind what makes x and before any wait.
__device__ inline void warpgroup_after(float x) {
    asm volatile(
        "{.reg .pred never; setp.lt.f32 never, %0, 0f00000000; @never st.shared.f32 [%1], %0;}" ::"f"(x),
        "r"(0)
        : "memory");
}

__device__ inline std::byte* shared_at(uint32_t address) {
    return static_cast<std::byte*>(__cvta_shared_to_generic(address));
}
__device__ inline Words4 load_shared16(uint32_t address) {
    Words4 v;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3])
                 : "r"(address)
                 : "memory");
    return v;
}
__device__ inline Words2 load_shared8(uint32_t address) {
    Words2 v;
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(v.w[0]), "=r"(v.w[1]) : "r"(address) : "memory");
    return v;
}
__device__ inline void barrier_begin(uint32_t barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
__device__ inline void publish_barriers() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    publish_shared();
}
__device__ inline void barrier_arrive(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ inline void barrier_expect(uint32_t barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
}
__device__ inline void copy_bulk(uint32_t to, const void* from, int bytes, uint32_t barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
        "l"(from), "r"(bytes), "r"(barrier)
        : "memory");
}
// They pass through the L2 cache as what leaves it first (the policy of createpolicy.fractional with
// evict_first and all of it).
__device__ inline void copy_bulk_weights(uint32_t to, const void* from, int bytes, uint32_t barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, "
        "[%3], %4;" ::"r"(to),
        "l"(from), "r"(bytes), "r"(barrier), "l"(0x12f0000000000000)
        : "memory");
}
__device__ inline void barrier_wait(uint32_t barrier, uint32_t turn) {
    uint32_t complete;
    do {
        asm volatile(
            "{.reg .pred complete; mbarrier.try_wait.parity.shared::cta.b64 complete, [%1], %2;\n"
            "selp.u32 %0, 1, 0, complete;}"
            : "=r"(complete)
            : "r"(barrier), "r"(turn)
            : "memory");
    } while (!complete);
}

// The tile as the instruction wants it (PTX ISA, "Matrix Descriptor Format"): address, the distance of eight
// columns or rows, 1024 bytes, both in 16 bytes, and the exchange of pieces that goes by 128 bytes.
__device__ inline uint64_t tile_descriptor(const std::byte* tile, int offset) {
    const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(tile));
    const uint32_t low = (address & 0x3ffff) >> 4 | 1u << 16;
    return (low + static_cast<uint32_t>(offset / 16)) | uint64_t{1024 >> 4 | 1u << 30} << 32;
}

__device__ __forceinline__ void warpgroup_multiply32(float (*d)[4], const uint32_t (&a)[4],
                                                     const std::byte* tile, int step) {
    const uint64_t b = tile_descriptor(tile, step * 32);
    asm volatile(
        "{.reg .pred add; setp.ne.b32 add, 1, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 "
        "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, "
        "{%16,%17,%18,%19}, %20, add, 1, 1, 0;}"
        : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]), "+f"(d[1][1]),
          "+f"(d[1][2]), "+f"(d[1][3]), "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3]),
          "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]), "+f"(d[3][3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)
        : "memory");
}

__device__ __forceinline__ void warpgroup_multiply128(float (*d)[4], const uint32_t (&a)[4],
                                                      const std::byte* tile, int step) {
    const uint64_t b = tile_descriptor(tile, step * 32);
    asm volatile(
        "{.reg .pred add; setp.ne.b32 add, 1, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 "
        "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,"
        "%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,"
        "%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,"
        "%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}, "
        "{%64,%65,%66,%67}, %68, add, 1, 1, 0;}"
        : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]), "+f"(d[1][1]),
          "+f"(d[1][2]), "+f"(d[1][3]), "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3]),
          "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]), "+f"(d[3][3]), "+f"(d[4][0]), "+f"(d[4][1]),
          "+f"(d[4][2]), "+f"(d[4][3]), "+f"(d[5][0]), "+f"(d[5][1]), "+f"(d[5][2]), "+f"(d[5][3]),
          "+f"(d[6][0]), "+f"(d[6][1]), "+f"(d[6][2]), "+f"(d[6][3]), "+f"(d[7][0]), "+f"(d[7][1]),
          "+f"(d[7][2]), "+f"(d[7][3]), "+f"(d[8][0]), "+f"(d[8][1]), "+f"(d[8][2]), "+f"(d[8][3]),
          "+f"(d[9][0]), "+f"(d[9][1]), "+f"(d[9][2]), "+f"(d[9][3]), "+f"(d[10][0]), "+f"(d[10][1]),
          "+f"(d[10][2]), "+f"(d[10][3]), "+f"(d[11][0]), "+f"(d[11][1]), "+f"(d[11][2]), "+f"(d[11][3]),
          "+f"(d[12][0]), "+f"(d[12][1]), "+f"(d[12][2]), "+f"(d[12][3]), "+f"(d[13][0]), "+f"(d[13][1]),
          "+f"(d[13][2]), "+f"(d[13][3]), "+f"(d[14][0]), "+f"(d[14][1]), "+f"(d[14][2]), "+f"(d[14][3]),
          "+f"(d[15][0]), "+f"(d[15][1]), "+f"(d[15][2]), "+f"(d[15][3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)
        : "memory");
}

__device__ __forceinline__ void warpgroup_multiply256(float (*d)[4], const uint32_t (&a)[4],
                                                      const std::byte* tile, int step) {
    const uint64_t b = tile_descriptor(tile, step * 32);
    asm volatile(
        "{.reg .pred add; setp.ne.b32 add, 1, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 "
        "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,"
        "%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,"
        "%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,"
        "%54,%55,%56,%57,%58,%59,%60,%61,%62,%63,%64,%65,%66,%67,%68,%69,%70,%71,"
        "%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,"
        "%90,%91,%92,%93,%94,%95,%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,"
        "%108,%109,%110,%111,%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,"
        "%126,%127}, "
        "{%128,%129,%130,%131}, %132, add, 1, 1, 0;}"
        : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]), "+f"(d[1][1]),
          "+f"(d[1][2]), "+f"(d[1][3]), "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3]),
          "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]), "+f"(d[3][3]), "+f"(d[4][0]), "+f"(d[4][1]),
          "+f"(d[4][2]), "+f"(d[4][3]), "+f"(d[5][0]), "+f"(d[5][1]), "+f"(d[5][2]), "+f"(d[5][3]),
          "+f"(d[6][0]), "+f"(d[6][1]), "+f"(d[6][2]), "+f"(d[6][3]), "+f"(d[7][0]), "+f"(d[7][1]),
          "+f"(d[7][2]), "+f"(d[7][3]), "+f"(d[8][0]), "+f"(d[8][1]), "+f"(d[8][2]), "+f"(d[8][3]),
          "+f"(d[9][0]), "+f"(d[9][1]), "+f"(d[9][2]), "+f"(d[9][3]), "+f"(d[10][0]), "+f"(d[10][1]),
          "+f"(d[10][2]), "+f"(d[10][3]), "+f"(d[11][0]), "+f"(d[11][1]), "+f"(d[11][2]), "+f"(d[11][3]),
          "+f"(d[12][0]), "+f"(d[12][1]), "+f"(d[12][2]), "+f"(d[12][3]), "+f"(d[13][0]), "+f"(d[13][1]),
          "+f"(d[13][2]), "+f"(d[13][3]), "+f"(d[14][0]), "+f"(d[14][1]), "+f"(d[14][2]), "+f"(d[14][3]),
          "+f"(d[15][0]), "+f"(d[15][1]), "+f"(d[15][2]), "+f"(d[15][3]), "+f"(d[16][0]), "+f"(d[16][1]),
          "+f"(d[16][2]), "+f"(d[16][3]), "+f"(d[17][0]), "+f"(d[17][1]), "+f"(d[17][2]), "+f"(d[17][3]),
          "+f"(d[18][0]), "+f"(d[18][1]), "+f"(d[18][2]), "+f"(d[18][3]), "+f"(d[19][0]), "+f"(d[19][1]),
          "+f"(d[19][2]), "+f"(d[19][3]), "+f"(d[20][0]), "+f"(d[20][1]), "+f"(d[20][2]), "+f"(d[20][3]),
          "+f"(d[21][0]), "+f"(d[21][1]), "+f"(d[21][2]), "+f"(d[21][3]), "+f"(d[22][0]), "+f"(d[22][1]),
          "+f"(d[22][2]), "+f"(d[22][3]), "+f"(d[23][0]), "+f"(d[23][1]), "+f"(d[23][2]), "+f"(d[23][3]),
          "+f"(d[24][0]), "+f"(d[24][1]), "+f"(d[24][2]), "+f"(d[24][3]), "+f"(d[25][0]), "+f"(d[25][1]),
          "+f"(d[25][2]), "+f"(d[25][3]), "+f"(d[26][0]), "+f"(d[26][1]), "+f"(d[26][2]), "+f"(d[26][3]),
          "+f"(d[27][0]), "+f"(d[27][1]), "+f"(d[27][2]), "+f"(d[27][3]), "+f"(d[28][0]), "+f"(d[28][1]),
          "+f"(d[28][2]), "+f"(d[28][3]), "+f"(d[29][0]), "+f"(d[29][1]), "+f"(d[29][2]), "+f"(d[29][3]),
          "+f"(d[30][0]), "+f"(d[30][1]), "+f"(d[30][2]), "+f"(d[30][3]), "+f"(d[31][0]), "+f"(d[31][1]),
          "+f"(d[31][2]), "+f"(d[31][3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)
        : "memory");
}

// 64 columns; `rows`: whether the tile has a row of all of them for each k.
template <bool bf16, int rows>
__device__ __forceinline__ void warpgroup_product64(float (*d)[4], const uint32_t (&a)[4], uint64_t b) {
    if constexpr (bf16)
        asm volatile(
            "{.reg .pred add; setp.ne.b32 add, 1, 0;\n"
            "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
            "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,"
            "%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, "
            "{%32,%33,%34,%35}, %36, add, 1, 1, %37;}"
            : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]), "+f"(d[1][1]),
              "+f"(d[1][2]), "+f"(d[1][3]), "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3]),
              "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]), "+f"(d[3][3]), "+f"(d[4][0]), "+f"(d[4][1]),
              "+f"(d[4][2]), "+f"(d[4][3]), "+f"(d[5][0]), "+f"(d[5][1]), "+f"(d[5][2]), "+f"(d[5][3]),
              "+f"(d[6][0]), "+f"(d[6][1]), "+f"(d[6][2]), "+f"(d[6][3]), "+f"(d[7][0]), "+f"(d[7][1]),
              "+f"(d[7][2]), "+f"(d[7][3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(rows)
            : "memory");
    else
        asm volatile(
            "{.reg .pred add; setp.ne.b32 add, 1, 0;\n"
            "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
            "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,"
            "%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, "
            "{%32,%33,%34,%35}, %36, add, 1, 1, %37;}"
            : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]), "+f"(d[1][1]),
              "+f"(d[1][2]), "+f"(d[1][3]), "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3]),
              "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]), "+f"(d[3][3]), "+f"(d[4][0]), "+f"(d[4][1]),
              "+f"(d[4][2]), "+f"(d[4][3]), "+f"(d[5][0]), "+f"(d[5][1]), "+f"(d[5][2]), "+f"(d[5][3]),
              "+f"(d[6][0]), "+f"(d[6][1]), "+f"(d[6][2]), "+f"(d[6][3]), "+f"(d[7][0]), "+f"(d[7][1]),
              "+f"(d[7][2]), "+f"(d[7][3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(rows)
            : "memory");
}
template <bool bf16>
__device__ __forceinline__ void warpgroup_multiply64(float (*d)[4], const uint32_t (&a)[4],
                                                     const std::byte* tile, int step) {
    warpgroup_product64<bf16, 0>(d, a, tile_descriptor(tile, 0) + step * 32 / 16);
}
template <bool bf16>
__device__ __forceinline__ void warpgroup_multiply64_rows(float (*d)[4], const uint32_t (&a)[4],
                                                          const std::byte* tile, int step) {
    warpgroup_product64<bf16, 1>(d, a, tile_descriptor(tile, 0) + step * 2048 / 16);
}
#else
__device__ inline constexpr bool has_warpgroups() { return false; }
__device__ inline void publish_shared() {}
__device__ inline std::byte* shared_at(uint32_t) { return nullptr; }
__device__ inline Words4 load_shared16(uint32_t) { return {}; }
__device__ inline Words2 load_shared8(uint32_t) { return {}; }
__device__ inline void barrier_begin(uint32_t, int) {}
__device__ inline void publish_barriers() {}
__device__ inline void barrier_arrive(uint32_t) {}
__device__ inline void barrier_expect(uint32_t, int) {}
__device__ inline void copy_bulk(uint32_t, const void*, int, uint32_t) {}
__device__ inline void copy_bulk_weights(uint32_t, const void*, int, uint32_t) {}
__device__ inline void barrier_wait(uint32_t, uint32_t) {}
__device__ inline void warpgroup_begin() {}
__device__ inline void warpgroup_commit() {}
template <int n>
__device__ inline void warpgroup_wait() {}
__device__ inline void warpgroup_after(float) {}
__device__ inline void warpgroup_multiply32(float (*)[4], const uint32_t (&)[4], const std::byte*, int) {}
__device__ inline void warpgroup_multiply128(float (*)[4], const uint32_t (&)[4], const std::byte*, int) {}
__device__ inline void warpgroup_multiply256(float (*)[4], const uint32_t (&)[4], const std::byte*, int) {}
template <bool bf16>
__device__ inline void warpgroup_multiply64(float (*)[4], const uint32_t (&)[4], const std::byte*, int) {}
template <bool bf16>
__device__ inline void warpgroup_multiply64_rows(float (*)[4], const uint32_t (&)[4], const std::byte*, int) {
}
#endif
// Keeps the compiler from reading sums earlier: to it they are those of the last product already.
template <int n8>
__device__ inline void warpgroup_results(float (*d)[4]) {
#pragma unroll
    for (int i = 0; i < 4 * n8; ++i) asm volatile("" : "+f"(d[i / 4][i % 4])::"memory");
}

}  // namespace nibble::cuda
