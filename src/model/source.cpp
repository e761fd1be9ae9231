// Rearranging what a checkpoint stores otherwise.
// Element types are plain ones (f32, f16, bf16), so that an element is a whole number of bytes, MXFP4, or any
// where whole rows move.
#include "src/model/source.h"

#include <algorithm>
#include <cmath>
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
    if (s.in_turns()) return 2 * r + (s.storage == Storage::odd_up ? 1 : 0);
    const int64_t n = s.info->ne[1] / 2;
    return (r / n * 2 + (s.storage == Storage::up_half ? 1 : 0)) * n + r % n;
}

// Row `r` of all values stands behind the keys of its head.
int64_t latent_value_row(const TensorSource& s, int64_t r) {
    const int64_t values = s.info->rows() / s.heads - s.keys;
    return r / values * (values + s.keys) + s.keys + r % values;
}

// Row `r` of all queries, keys and values, or of all z, stands among those of its key head.
int64_t key_head_row(const TensorSource& s, int64_t r) {
    const int64_t keys = s.keys, values = s.values, head_rows = 2 * (keys + values),
                  all_keys = s.heads * keys;
    if (s.storage == Storage::head_z) return r / values * head_rows + 2 * keys + values + r % values;
    if (r < 2 * all_keys) return r % all_keys / keys * head_rows + r / all_keys * keys + r % keys;
    r -= 2 * all_keys;
    return r / values * head_rows + 2 * keys + r % values;
}

// Where entry `e` of value heads stands. The first `keys` entries, where there are others, stay.
int64_t value_entry(const TensorSource& s, int64_t e, int64_t n) {
    const bool behind = s.storage == Storage::value_taps || s.storage == Storage::qkv_rows;
    const int64_t first = behind ? s.keys : 0, dim = (n - first) / s.values;
    if (e < first) return e;
    const int64_t head = (e - first) / dim, ratio = s.values / s.heads;
    return first + (head % s.heads * ratio + head / s.heads) * dim + (e - first) % dim;
}

Result<void> check_value_heads(const TensorSource& s) {
    const TensorInfo& t = *s.info;
    const bool behind = s.storage == Storage::value_taps || s.storage == Storage::qkv_rows;
    const bool columns = s.storage == Storage::value_columns || t.rows() == 1;
    const int64_t n = (columns ? t.cols() : t.rows()) - (behind ? s.keys : 0);
    const bool decay = s.storage == Storage::value_decay && t.rows() != 1;
    if (!decay && !t.foreign() && info(t.type).decode && info(t.type).block_len == 1 && s.heads > 0 &&
        s.values > 0 && s.keys >= 0 && s.values % s.heads == 0 && n > 0 && n % s.values == 0)
        return {};
    return Error{ErrorCode::corrupt, t.name,
                 cat("of ", t.rows(), " x ", t.cols(), " (", t.type_name(), ") is not of ", s.values,
                     " value heads and ", s.heads, " key heads"),
                 ""};
}

// Where a canonical row lies in the file: a row as it is stored, one element of each of several rows, or the
// elements of a row in another order.
struct StoredRow {
    const std::byte* data;
    // If there is a stride in bytes: element `column` of this row and of those that follow.
    int64_t stride = 0, column = 0;
    // If there is an order: canonical column c is the row's column order(c).
    int64_t (*order)(const TensorSource&, int64_t c) = nullptr;

    bool is_whole() const { return stride == 0 && !order; }
    const std::byte* row_of(int64_t c) const { return data + c * stride; }
    int64_t column_of(const TensorSource& s, int64_t c) const { return order ? order(s, c) : column; }
};

StoredRow stored_row(const TensorSource& s, int64_t r) {
    const TensorInfo& t = s.file_tensor();
    const auto stride = static_cast<int64_t>(*row_bytes(t.type, t.cols()));
    const int64_t rows = t.rows();
    const auto row = [&](int64_t i) { return t.data.data() + i * stride; };
    const auto in_order = [&](int64_t i, int64_t (*order)(const TensorSource&, int64_t)) {
        return StoredRow{row(i), 0, 0, order};
    };
    if (s.is_half()) return s.in_columns() ? in_order(r, half_row) : StoredRow{row(half_row(s, r))};
    if (s.has_value_heads()) {
        // Elements of a single row are entries, too.
        if (s.storage != Storage::value_columns && rows != 1) return {row(value_entry(s, r, rows))};
        return in_order(r,
                        [](const TensorSource& v, int64_t c) { return value_entry(v, c, v.info->cols()); });
    }
    if (s.of_key_heads()) return {row(key_head_row(s, r))};
    if (s.is_turned()) {
        const int64_t n = s.turned_rows(), first = s.storage == Storage::turned_up ? n : 0;
        return {row(r / n * t.ne[1]), stride, first + r % n};
    }
    if (s.storage == Storage::transposed) return {row(0), stride, r};
    if (s.storage == Storage::expert)
        return {s.parts[static_cast<size_t>(r / rows)]->data.data() + r % rows * stride};
    if (s.storage == Storage::latent_keys)
        return {row(r / t.cols() * (rows / s.heads)), stride, r % t.cols()};
    if (s.storage == Storage::latent_values) return {row(latent_value_row(s, r))};
    if (s.storage == Storage::heads_qkv && rows == 1)
        return in_order(
            0, [](const TensorSource& v, int64_t c) { return per_head_entry(c, v.info->cols(), v.heads); });
    if (s.storage == Storage::heads_qkv) return {row(per_head_entry(r, rows, s.heads))};
    return {row(r)};
}

float element(const TypeInfo& type, const std::byte* row, int64_t column) {
    float block[256];  // no type has longer ones
    const int64_t n = type.block_len;
    if (n == 1) {
        type.decode(row + column * type.block_bytes, block, 1);
        return block[0];
    }
    type.decode(row + column / n * type.block_bytes, block, static_cast<size_t>(n));
    return block[column % n];
}

// Whether canonical elements are other numbers than those of the file.
bool changes_values(Storage storage) {
    return storage == Storage::offset_one || storage == Storage::decay || storage == Storage::row_decay ||
           storage == Storage::value_decay;
}

// Canonical row r of MXFP4 from codes in their order, two to a byte, and scales: GGUF has a block's second
// half in the upper halves of its bytes.
void join_row(const TensorSource& s, int64_t r, std::byte* out) {
    if (s.is_half()) r = half_row(s, r);
    const int64_t blocks = s.info->cols() / 32;
    const auto* codes = reinterpret_cast<const uint8_t*>(s.info->data.data()) + r * blocks * 16;
    const auto* scales = reinterpret_cast<const uint8_t*>(s.scales->data.data()) + r * blocks;
    auto* to = reinterpret_cast<uint8_t*>(out);
    for (int64_t b = 0; b < blocks; ++b, codes += 16, to += 17) {
        to[0] = scales[b];
        for (int i = 0; i < 8; ++i) {
            to[1 + 2 * i] = static_cast<uint8_t>((codes[i] & 15) | (codes[i + 8] & 15) << 4);
            to[2 + 2 * i] = static_cast<uint8_t>(codes[i] >> 4 | (codes[i + 8] & 0xf0));
        }
    }
}

Result<void> check_scales(const TensorSource& s) {
    const TensorInfo &t = *s.info, &scales = *s.scales;
    const bool fits = scales.dtype == "U8" && scales.ne[0] * 32 == t.ne[0] && scales.ne[1] == t.ne[1] &&
                      scales.ne[2] == t.ne[2];
    if (fits && scales.ne[3] == 1 && (s.storage == Storage::same || s.in_turns())) return {};
    return Error{ErrorCode::corrupt, scales.name, cat("are no scales for the blocks of ", t.name), ""};
}

Result<void> check_latent(const TensorSource& s) {
    const TensorInfo& t = s.file_tensor();
    if (t.foreign() || !info(t.type).decode || !info(s.info->type).encode)
        return Error{ErrorCode::unsupported, t.name,
                     cat("has the type ", t.type_name(), ", which cannot be rearranged"), ""};
    if (s.heads > 0 && s.keys > 0 && t.n_dims <= 2 && t.rows() % s.heads == 0 && t.rows() / s.heads > s.keys)
        return {};
    return Error{ErrorCode::corrupt, t.name,
                 cat("of ", t.rows(), " rows has no keys of ", s.keys, " and values for ", s.heads, " heads"),
                 ""};
}

Result<void> check_key_heads(const TensorSource& s) {
    const TensorInfo& t = *s.info;
    const int64_t head_rows = 2 * (int64_t{s.keys} + s.values);
    if (s.heads > 0 && s.keys > 0 && s.values > 0 && t.n_dims == 2 && t.rows() == s.heads * head_rows &&
        !t.foreign() && info(t.type).decode)
        return {};
    return Error{ErrorCode::corrupt, t.name,
                 cat("of ", t.rows(), " rows (", t.type_name(), ") is not of ", s.heads, " key heads with ",
                     s.keys, " keys and ", s.values, " values each"),
                 ""};
}

}  // namespace

std::vector<int64_t> TensorSource::dims() const {
    std::vector<int64_t> d(info->ne.begin(), info->ne.begin() + std::max(1, info->n_dims));
    if (storage == Storage::transposed) d = {cols(), rows()};
    if (storage == Storage::expert) d = {cols(), info->rows(), static_cast<int64_t>(parts.size())};
    if (storage == Storage::latent_keys || storage == Storage::latent_values)
        d = {cols(), rows() / heads, heads};
    if (of_key_heads()) d = {cols(), rows()};
    if (is_turned()) d = {cols(), turned_rows(), info->ne[2]};
    if (is_half()) d[in_columns() ? 0 : 1] /= 2;
    if (storage == Storage::column || storage == Storage::decay) d = {1, info->cols()};
    if (storage == Storage::groups) d = {info->cols() / heads, heads};
    if ((storage == Storage::taps || storage == Storage::value_taps) && info->rows() > 1)
        d = {cols(), rows()};
    return d;
}

size_t TensorSource::bytes() const {
    if (info->data.empty()) return 0;
    return static_cast<size_t>(rows()) * row_bytes(info->type, cols()).value_or(0);
}

Result<void> check_source(const TensorSource& s) {
    if (s.scales) NIBBLE_TRY(check_scales(s));
    if (s.storage == Storage::same) return {};
    const TensorInfo& t = *s.info;
    if (s.storage == Storage::latent_keys || s.storage == Storage::latent_values) return check_latent(s);
    if (s.has_value_heads()) return check_value_heads(s);
    if (s.of_key_heads()) return check_key_heads(s);
    if (s.is_turned() && (t.n_dims != 3 || (s.storage != Storage::turned && t.cols() % 2)))
        return Error{ErrorCode::corrupt, t.name, cat(t.cols(), " columns are no gates and ups"), ""};
    if ((s.storage == Storage::column || s.storage == Storage::decay || s.storage == Storage::groups) &&
        t.n_dims != 1)
        return Error{ErrorCode::corrupt, t.name, cat("of ", t.n_dims, " dimensions is no row"), ""};
    if (s.storage == Storage::groups && (s.heads <= 0 || t.cols() % s.heads))
        return Error{ErrorCode::corrupt, t.name, cat(t.cols(), " elements are not of ", s.heads, " groups"),
                     ""};
    for (const TensorInfo* part : s.parts)
        if (part->ne != t.ne || part->type != t.type || part->dtype != t.dtype)
            return Error{ErrorCode::corrupt, part->name, cat("is of another shape or type than ", t.name),
                         ""};
    if (s.is_half() && !s.in_columns() && (t.n_dims < 2 || t.n_dims > 3 || t.ne[1] % 2))
        return Error{ErrorCode::corrupt, t.name,
                     cat("of ", t.n_dims, " dimensions and ", t.ne[1], " rows is no gate and up"), ""};
    if (s.in_columns() && t.ne[0] % 2)
        return Error{ErrorCode::corrupt, t.name, cat(t.ne[0], " columns are no gates and ups"), ""};
    const bool whole_rows = s.is_half() && !s.in_columns();
    if (!s.scales && (t.foreign() || !info(t.type).decode || (info(t.type).block_len != 1 && !whole_rows)))
        return Error{ErrorCode::unsupported, t.name,
                     cat("has the type ", t.type_name(), ", which cannot be rearranged"), ""};
    const int64_t entries = t.rows() == 1 ? t.cols() : t.rows();
    if (s.storage == Storage::heads_qkv && (s.heads <= 0 || entries % (3 * int64_t{s.heads})))
        return Error{ErrorCode::corrupt, t.name,
                     cat(entries, " rows are no queries, keys and values of ", s.heads, " heads"), ""};
    return {};
}

void decode_row(const TensorSource& s, int64_t r, float* out) {
    const TypeInfo& type = info(s.file_tensor().type);
    const int64_t cols = s.cols();
    if (s.scales) {
        std::vector<std::byte> row(*row_bytes(s.info->type, cols));
        join_row(s, r, row.data());
        return type.decode(row.data(), out, static_cast<size_t>(cols));
    }
    const StoredRow row = stored_row(s, r);
    if (row.is_whole())
        type.decode(row.data, out, static_cast<size_t>(cols));
    else
        for (int64_t c = 0; c < cols; ++c) out[c] = element(type, row.row_of(c), row.column_of(s, c));
    if (s.storage == Storage::offset_one)
        for (int64_t c = 0; c < cols; ++c) out[c] += 1;
    else if (changes_values(s.storage))
        for (int64_t c = 0; c < cols; ++c) out[c] = -std::exp(out[c]);
}

void copy_row(const TensorSource& s, int64_t r, std::byte* to) {
    if (s.scales) return join_row(s, r, to);
    const TypeInfo& type = info(s.info->type);
    const auto cols = static_cast<size_t>(s.cols()), size = static_cast<size_t>(type.block_bytes);
    if (changes_values(s.storage) || s.file_tensor().type != s.info->type) {
        std::vector<float> values(cols);
        decode_row(s, r, values.data());
        return type.encode(values.data(), to, cols);
    }
    const StoredRow row = stored_row(s, r);
    if (row.is_whole()) {
        std::memcpy(to, row.data, *row_bytes(s.info->type, s.cols()));
        return;
    }
    for (int64_t c = 0; c < s.cols(); ++c)
        std::memcpy(to + static_cast<size_t>(c) * size,
                    row.row_of(c) + row.column_of(s, c) * type.block_bytes, size);
}

std::vector<std::byte> rearranged(const TensorSource& s) {
    const auto stride = *row_bytes(s.info->type, s.cols());
    std::vector<std::byte> out(s.bytes());
    if (out.empty()) return out;
    for (int64_t r = 0; r < s.rows(); ++r) copy_row(s, r, out.data() + static_cast<size_t>(r) * stride);
    return out;
}

}  // namespace nibble
