// For vocabularies that multiply by one activation row at a time though a relative takes pairs.
// See dot_rows in kernels/matmul_int8.inl.
constexpr int dot_rows = 1;
