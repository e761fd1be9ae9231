// Packing by another instruction set, whose layout is this one's too: namespace borrowed says whose.
// For weights that are used in place; those packed at load never come here.

inline size_t packed_group_bytes(const TypeInfo& type, int64_t k) {
    return borrowed::pack.group_bytes(type, k);
}
inline void pack_group(const TypeInfo& type, const std::byte* w, int64_t stride, int64_t n, int64_t k,
                       std::byte* out) {
    borrowed::pack.pack_group(type, w, stride, n, k, out);
}
