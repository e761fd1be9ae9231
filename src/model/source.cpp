// Rearranging what a checkpoint stores otherwise.
// Element types are plain ones (f32, f16, bf16), so that an element is a whole number of bytes.
#include "src/model/source.h"

#include <cstring>

#include "ggml/base/cat.h"
#include "ggml/types/list.h"

namespace nibble {
namespace {

// Where entry `r` of [q, k, v][head][column] stands among `n` entries of [head][q, k, v][column].
int64_t per_head_entry(int64_t r, int64_t n, int32_t heads) {
    const int64_t dim = n / (3 * heads), part = r / (heads * dim), head = r / dim % heads;
    return (head * 3 + part) * dim + r % dim;
}

int64_t element_bytes(const TensorInfo& t) { return info(t.type).block_bytes; }

}  // namespace

Result<void> check_source(const TensorSource& s) {
    if (s.storage == Storage::same) return {};
    const TensorInfo& t = *s.info;
    if (t.foreign() || !info(t.type).decode || info(t.type).block_len != 1)
        return Error{ErrorCode::unsupported, t.name,
                     cat("has the type ", t.type_name(), ", which cannot be rearranged"), ""};
    const int64_t entries = t.rows() == 1 ? t.cols() : t.rows();
    if (s.storage == Storage::heads_qkv && (s.heads <= 0 || entries % (3 * int64_t{s.heads})))
        return Error{ErrorCode::corrupt, t.name,
                     cat(entries, " rows are no queries, keys and values of ", s.heads, " heads"), ""};
    return {};
}

void decode_row(const TensorSource& s, int64_t r, float* out) {
    const TensorInfo& t = *s.info;
    const TypeInfo& type = info(t.type);
    const std::byte* data = t.data.data();
    const int64_t rows = t.rows(), cols = t.cols(), size = element_bytes(t);
    if (s.storage == Storage::transposed) {
        for (int64_t c = 0; c < rows; ++c) type.decode(data + (c * cols + r) * size, out + c, 1);
        return;
    }
    if (s.storage == Storage::heads_qkv && rows == 1) {
        for (int64_t c = 0; c < cols; ++c)
            type.decode(data + per_head_entry(c, cols, s.heads) * size, out + c, 1);
        return;
    }
    const int64_t from = s.storage == Storage::heads_qkv ? per_head_entry(r, rows, s.heads) : r;
    type.decode(data + from * static_cast<int64_t>(*row_bytes(t.type, cols)), out, static_cast<size_t>(cols));
    if (s.storage == Storage::offset_one)
        for (int64_t c = 0; c < cols; ++c) out[c] += 1;
}

std::vector<std::byte> rearranged(const TensorSource& s) {
    const TensorInfo& t = *s.info;
    std::vector<std::byte> out(t.data.size());
    const auto size = static_cast<size_t>(element_bytes(t));
    const int64_t rows = t.rows(), cols = t.cols();
    if (s.storage == Storage::transposed) {
        for (int64_t r = 0; r < rows; ++r)
            for (int64_t c = 0; c < cols; ++c)
                std::memcpy(out.data() + static_cast<size_t>(c * rows + r) * size,
                            t.data.data() + static_cast<size_t>(r * cols + c) * size, size);
        return out;
    }
    const size_t row = static_cast<size_t>(cols) * size;
    for (int64_t r = 0; r < rows; ++r)
        std::memcpy(out.data() + static_cast<size_t>(r) * row,
                    t.data.data() + static_cast<size_t>(per_head_entry(r, rows, s.heads)) * row, row);
    return out;
}

}  // namespace nibble
