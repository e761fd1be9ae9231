// For simd/avx512_dot.inl: a sum of AVX-512 that is computed where it stands.
// Left to itself, GCC makes all products first and keeps them in memory.
inline I settled(I sums) {
    asm("" : "+v"(sums));
    return sums;
}
