// Blocks with float activations, by another instruction set: namespace borrowed says whose.
// For those that differ from it in how bytes are multiplied.

inline void real_block(const MatmulBlock& b) { borrowed::matmul.block(b); }
inline size_t real_scratch(const TypeInfo& type, int64_t k, bool packed) {
    return borrowed::matmul.scratch(type, k, packed);
}
