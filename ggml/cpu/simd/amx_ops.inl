// The instructions of AMX, by the numbers of tile registers. Tests replace this file by one in plain C++.
// Assembly, because GCC 12's intrinsics take register numbers as text only and do not say what they read.

inline void tile_configure(const void* config) {
    struct Bytes {
        std::byte data[64];
    };
    asm volatile("ldtilecfg %0" : : "m"(*static_cast<const Bytes*>(config)));
}
inline void tile_release() { asm volatile("tilerelease"); }

template <int tile>
inline void tile_zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(tile));
}
// Rows of the tile are `stride` bytes apart, the first is `at` bytes behind the pointer.
template <int tile, int at = 0>
inline void tile_load(const void* from, int64_t stride) {
    asm volatile("tileloadd %c3(%1,%2,1), %%tmm%c0"
                 :
                 : "i"(tile), "r"(from), "r"(stride), "i"(at)
                 : "memory");
}
template <int tile, int at = 0>
inline void tile_store(void* to, int64_t stride) {
    asm volatile("tilestored %%tmm%c0, %c3(%1,%2,1)" : : "i"(tile), "r"(to), "r"(stride), "i"(at) : "memory");
}
// sum += a b: of bf16 pairs into f32.
template <int sum, int a, int b>
inline void tile_dot_bf16() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(sum), "i"(a), "i"(b));
}
// The same of quadruples of signed bytes into int32.
template <int sum, int a, int b>
inline void tile_dot_int8() {
    asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(sum), "i"(a), "i"(b));
}

// Stores that leave no trace in the caches, 64-byte aligned; before others read them they have to be awaited.
inline void store_past_cache(float* p, F v) { _mm512_stream_ps(p, v); }
inline void await_stores() { _mm_sfence(); }
