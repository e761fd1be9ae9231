// Rearranging what a checkpoint stores otherwise.
// Element types are plain ones (f32, f16, bf16), so that an element is a whole number of bytes.
#include "src/model/source.h"

#include <algorithm>
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

// Where row `r` of all gates, or of all ups, stands in [expert][gate, up].
int64_t half_row(const TensorSource& s, int64_t r) {
    const int64_t n = s.info->ne[1] / 2;
    return (r / n * 2 + (s.storage == Storage::up_half ? 1 : 0)) * n + r % n;
}

int64_t element_bytes(const TensorInfo& t) { return info(t.type).block_bytes; }

}  // namespace

std::vector<int64_t> TensorSource::dims() const {
    std::vector<int64_t> d(info->ne.begin(), info->ne.begin() + std::max(1, info->n_dims));
    if (storage == Storage::transposed) d = {cols(), rows()};
    if (storage == Storage::expert) d = {cols(), info->rows(), static_cast<int64_t>(parts.size())};
    if (is_half()) d[1] /= 2;
    return d;
}

size_t TensorSource::file_bytes() const {
    if (storage == Storage::expert) return info->data.size() * parts.size();
    return is_half() ? info->data.size() / 2 : info->data.size();
}

Result<void> check_source(const TensorSource& s) {
    if (s.storage == Storage::same) return {};
    const TensorInfo& t = *s.info;
    for (const TensorInfo* part : s.parts)
        if (part->ne != t.ne || part->type != t.type || part->dtype != t.dtype)
            return Error{ErrorCode::corrupt, part->name, cat("is of another shape or type than ", t.name),
                         ""};
    if (s.is_half() && (t.n_dims != 3 || t.ne[1] % 2))
        return Error{ErrorCode::corrupt, t.name,
                     cat("of ", t.n_dims, " dimensions and ", t.ne[1], " rows is no gate and up of experts"),
                     ""};
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
    if (s.storage == Storage::expert) {
        const std::byte* const part = s.parts[static_cast<size_t>(r / rows)]->data.data();
        type.decode(part + r % rows * cols * size, out, static_cast<size_t>(cols));
        return;
    }
    if (s.storage == Storage::heads_qkv && rows == 1) {
        for (int64_t c = 0; c < cols; ++c)
            type.decode(data + per_head_entry(c, cols, s.heads) * size, out + c, 1);
        return;
    }
    int64_t from = s.storage == Storage::heads_qkv ? per_head_entry(r, rows, s.heads) : r;
    if (s.is_half()) from = half_row(s, r);
    type.decode(data + from * static_cast<int64_t>(*row_bytes(t.type, cols)), out, static_cast<size_t>(cols));
    if (s.storage == Storage::offset_one)
        for (int64_t c = 0; c < cols; ++c) out[c] += 1;
}

std::vector<std::byte> rearranged(const TensorSource& s) {
    const TensorInfo& t = *s.info;
    std::vector<std::byte> out(s.file_bytes());
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
    if (s.storage == Storage::expert) {
        for (size_t e = 0; e < s.parts.size(); ++e)
            std::memcpy(out.data() + e * t.data.size(), s.parts[e]->data.data(), t.data.size());
        return out;
    }
    for (int64_t r = 0; r < s.rows(); ++r) {
        const int64_t from = s.is_half() ? half_row(s, r) : per_head_entry(r, rows, s.heads);
        std::memcpy(out.data() + static_cast<size_t>(r) * row,
                    t.data.data() + static_cast<size_t>(from) * row, row);
    }
    return out;
}

}  // namespace nibble
