// The safetensors header parser and the sharded index.
// Every number in the header is checked against the file before it becomes a span.
#include "ggml/file/safetensors.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <unordered_set>
#include <utility>

#include <nlohmann/json.hpp>

#include "ggml/base/byte_reader.h"
#include "ggml/base/cat.h"
#include "ggml/base/checked.h"
#include "ggml/base/mapped_file.h"
#include "ggml/file/json.h"
#include "ggml/file/quote.h"

namespace nibble {
namespace {

using nlohmann::json;

constexpr uint64_t max_header_bytes = 100'000'000;  // the limit of the specification
constexpr size_t max_index_bytes = 256u << 20;
constexpr size_t max_rank = 64;

struct Dtype {
    std::string_view name;
    uint32_t bits;
    Type type;
    bool foreign;  // `type` only has the same width
};

constexpr Dtype dtypes[] = {
    {"F64", 64, Type::f64, false},      {"F32", 32, Type::f32, false},  {"F16", 16, Type::f16, false},
    {"BF16", 16, Type::bf16, false},    {"I64", 64, Type::i64, false},  {"I32", 32, Type::i32, false},
    {"I16", 16, Type::i16, false},      {"I8", 8, Type::i8, false},     {"U64", 64, Type::i64, true},
    {"U32", 32, Type::i32, true},       {"U16", 16, Type::i16, true},   {"U8", 8, Type::i8, true},
    {"BOOL", 8, Type::i8, true},        {"C64", 64, Type::i64, true},   {"F8_E4M3", 8, Type::i8, true},
    {"F8_E5M2", 8, Type::i8, true},     {"F8_E8M0", 8, Type::i8, true}, {"F8_E4M3FNUZ", 8, Type::i8, true},
    {"F8_E5M2FNUZ", 8, Type::i8, true}, {"F6_E2M3", 6, Type::i8, true}, {"F6_E3M2", 6, Type::i8, true},
    {"F4", 4, Type::i8, true},
};

const Dtype* find_dtype(std::string_view name) {
    for (const Dtype& d : dtypes)
        if (d.name == name) return &d;
    return nullptr;
}

Error corrupt(const std::string& where, std::string what) {
    return {ErrorCode::corrupt, where, std::move(what), "the file is damaged; download it again"};
}

struct Placed {
    TensorInfo info;
    uint64_t begin, end;  // within the data section
};

// A field of the header that must be an array of unsigned integers below 2^63.
std::optional<std::vector<int64_t>> sizes(const json& object, const char* key) {
    const auto it = object.find(key);
    if (it == object.end() || !it->is_array() || it->size() > max_rank) return {};
    std::vector<int64_t> out;
    for (const json& v : *it) {
        if (!v.is_number_unsigned() || v.get<uint64_t>() > uint64_t{INT64_MAX}) return {};
        out.push_back(v.get<int64_t>());
    }
    return out;
}

// Row-major shape to ne. Types narrower than a byte become rows of bytes, or one row if bytes straddle rows.
// Nothing when the dimensions overflow or do not make whole bytes.
std::optional<std::array<int64_t, 4>> to_ne(const std::vector<int64_t>& shape, const Dtype& dtype) {
    std::array<int64_t, 4> ne{1, 1, 1, 1};
    int64_t product = 1;
    for (const int64_t n : shape)
        if (!checked_mul<int64_t>(product, std::max<int64_t>(n, 1), product)) return {};
    for (size_t i = 0; i < shape.size(); ++i) ne[std::min<size_t>(i, 3)] *= shape[shape.size() - 1 - i];
    if (dtype.bits >= 8) return ne;

    const int64_t rows = ne[1] * ne[2] * ne[3];
    int64_t row_bits = 0, all_bits = 0;
    if (!checked_mul<int64_t>(ne[0], dtype.bits, row_bits) ||
        !checked_mul<int64_t>(row_bits, rows, all_bits) || all_bits % 8 != 0)
        return {};
    if (row_bits % 8 == 0)
        ne[0] = row_bits / 8;
    else
        ne = {all_bits / 8, 1, 1, 1};
    return ne;
}

Result<Placed> parse_tensor(const std::string& name, const json& entry, std::span<const std::byte> data,
                            const std::string& where) {
    const auto fail = [&](const std::string& what) {
        return corrupt(where, cat("tensor ", quote(name), " ", what));
    };
    if (!entry.is_object()) return fail("is not described by a JSON object");
    const auto dtype_name = entry.find("dtype");
    if (dtype_name == entry.end() || !dtype_name->is_string()) return fail("has no dtype");
    const auto& dtype_text = dtype_name->get_ref<const std::string&>();
    const Dtype* dtype = find_dtype(dtype_text);
    if (!dtype)
        return Error{ErrorCode::unsupported, where,
                     cat("tensor ", quote(name), " has unknown dtype ", quote(dtype_text)),
                     "the file may be newer than this program"};
    const auto shape = sizes(entry, "shape");
    if (!shape) return fail(cat("has no valid shape (an array of at most ", max_rank, " sizes)"));
    const auto offsets = sizes(entry, "data_offsets");
    if (!offsets || offsets->size() != 2 || (*offsets)[0] > (*offsets)[1])
        return fail("has no valid data_offsets");

    Placed t;
    t.info.name = name;
    t.info.type = dtype->type;
    if (dtype->foreign) t.info.dtype = dtype->name;
    const auto ne = to_ne(*shape, *dtype);
    const auto bytes = ne ? tensor_bytes(dtype->type, *ne) : std::nullopt;
    if (!bytes) return fail(cat("has an impossible shape for dtype ", dtype->name));
    t.info.ne = *ne;
    t.info.n_dims = static_cast<int>(std::min<size_t>(shape->size(), 4));
    t.begin = static_cast<uint64_t>((*offsets)[0]);
    t.end = static_cast<uint64_t>((*offsets)[1]);
    if (t.end > data.size())
        return fail(cat("ends at byte ", t.end, " of the data, which has ", data.size()));
    if (t.end - t.begin != *bytes)
        return fail(cat("has ", t.end - t.begin, " bytes, its shape and dtype need ", *bytes));
    t.info.data = data.subspan(t.begin, *bytes);
    return t;
}

// No gap and no overlap from the first byte of the data to the last: nothing hides in the file.
Result<void> check_contiguous(std::span<const Placed> sorted, size_t data_bytes, const std::string& where) {
    uint64_t at = 0;
    for (const Placed& t : sorted) {
        if (t.begin != at)
            return corrupt(where, cat("tensor ", quote(t.info.name), " starts at byte ", t.begin,
                                      " of the data, the one before ends at ", at));
        at = t.end;
    }
    if (at != data_bytes)
        return corrupt(where, cat("the tensors end at byte ", at, " of the data, which has ", data_bytes));
    return {};
}

Result<std::string_view> read_header(ByteReader& r, std::span<const std::byte> file) {
    const std::string_view head(reinterpret_cast<const char*>(file.data()),
                                std::min<size_t>(file.size(), 64));
    if (head.starts_with("version https://git-lfs"))
        return Error{ErrorCode::corrupt, r.where(), "is a Git LFS pointer, not the file itself",
                     "run `git lfs pull` or download the file"};
    const uint64_t n = NIBBLE_TRY(r.read<uint64_t>("header length"));
    if (n > max_header_bytes)
        return corrupt(r.where(), cat("is not a safetensors file: its header would have ", n,
                                      " bytes, at most ", max_header_bytes, " are allowed"));
    const auto bytes = NIBBLE_TRY(r.bytes(n, "header"));
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (!text.starts_with('{'))
        return corrupt(r.where(), "is not a safetensors file: its header is no JSON object");
    return text;
}

}  // namespace

Result<std::vector<TensorInfo>> parse_safetensors(std::span<const std::byte> file, const std::string& where) {
    ByteReader r(file, where);
    const std::string_view text = NIBBLE_TRY(read_header(r, file));
    const json header = NIBBLE_TRY(parse_json(text, cat(where, " header"), {.unique_top_keys = true}));
    if (!header.is_object()) return corrupt(where, "its header is no JSON object");
    const auto data = file.subspan(r.offset());

    std::vector<Placed> placed;
    for (const auto& [name, entry] : header.items()) {
        if (name != "__metadata__") {
            placed.push_back(NIBBLE_TRY(parse_tensor(name, entry, data, where)));
            continue;
        }
        const auto is_text = [](const json& v) { return v.is_string(); };
        if (!entry.is_object() || !std::all_of(entry.begin(), entry.end(), is_text))
            return corrupt(where, "its __metadata__ is not a map from strings to strings");
    }
    std::sort(placed.begin(), placed.end(), [](const Placed& a, const Placed& b) {
        return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
    });
    NIBBLE_TRY(check_contiguous(placed, data.size(), where));
    std::vector<TensorInfo> tensors;
    tensors.reserve(placed.size());
    for (Placed& t : placed) tensors.push_back(std::move(t.info));
    return tensors;
}

namespace {

struct Shard {
    std::vector<TensorInfo> tensors;
    uint64_t bytes = 0;
    std::shared_ptr<const void> owner;
};

Result<Shard> open_shard(const std::filesystem::path& path) {
    auto mapped = std::make_shared<MappedFile>(NIBBLE_TRY(MappedFile::open(path)));
    const auto bytes = mapped->bytes();
    return Shard{NIBBLE_TRY(parse_safetensors(bytes, path.string())), bytes.size(), std::move(mapped)};
}

bool plain_file_name(std::string_view name) {
    return !name.empty() && name != "." && name != ".." &&
           name.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos;
}

// File name → names of its tensors. Views point into `index`.
using ShardMap = std::map<std::string_view, std::vector<std::string_view>>;

Result<ShardMap> shard_map(const json& index, const std::string& where) {
    const auto map = index.find("weight_map");
    if (map == index.end() || !map->is_object() || map->empty())
        return corrupt(where, "has no weight_map from tensor names to file names");
    ShardMap shards;
    for (auto it = map->begin(); it != map->end(); ++it) {
        const auto* file = it->get_ptr<const std::string*>();
        if (!file || !plain_file_name(*file))
            return corrupt(where, cat("weight_map places tensor ", quote(it.key()), " in ",
                                      file ? quote(*file) : std::string("something"),
                                      ", which is no file name within the folder"));
        shards[*file].push_back(it.key());
    }
    return shards;
}

Result<void> check_present(const ShardMap& shards, const std::filesystem::path& folder) {
    size_t missing = 0;
    std::string_view first;
    for (const auto& [file, names] : shards) {
        std::error_code ignored;
        if (std::filesystem::exists(folder / file, ignored)) continue;
        if (missing++ == 0) first = file;
    }
    if (missing == 0) return {};
    return Error{ErrorCode::not_found, (folder / first).string(),
                 cat("is missing (", missing, " of ", shards.size(), " shards are)"),
                 "download all files of the model into one folder"};
}

// Moves the tensors that the index lists for this shard to the end of `out`, in file order.
Result<void> take_listed(std::vector<TensorInfo>& shard, const std::vector<std::string_view>& names,
                         const std::string& where, std::vector<TensorInfo>& out) {
    std::unordered_set<std::string_view> due(names.begin(), names.end());
    for (TensorInfo& t : shard)
        if (due.erase(t.name) > 0) out.push_back(std::move(t));
    if (due.empty()) return {};
    return Error{ErrorCode::corrupt, where,
                 cat("lacks tensor ", quote(*due.begin()), ", which the index places in it"),
                 "download the index and the shards again"};
}

}  // namespace

Result<SafetensorsModel> open_safetensors(const std::filesystem::path& file) {
    Shard s = NIBBLE_TRY(open_shard(file));
    SafetensorsModel m;
    m.tensors = NIBBLE_TRY(TensorList::build(std::move(s.tensors), file.string()));
    m.file_bytes = s.bytes;
    m.owners.push_back(std::move(s.owner));
    return m;
}

Result<SafetensorsModel> open_safetensors_index(const std::filesystem::path& index_path) {
    const json index = NIBBLE_TRY(read_json_object(index_path, max_index_bytes));
    const ShardMap shards = NIBBLE_TRY(shard_map(index, index_path.string()));
    const auto folder = index_path.parent_path();
    NIBBLE_TRY(check_present(shards, folder));

    SafetensorsModel m;
    std::vector<TensorInfo> tensors;
    for (const auto& [file, names] : shards) {
        const auto path = folder / file;
        Shard s = NIBBLE_TRY(open_shard(path));
        NIBBLE_TRY(take_listed(s.tensors, names, path.string(), tensors));
        m.file_bytes += s.bytes;
        m.owners.push_back(std::move(s.owner));
    }
    m.tensors = NIBBLE_TRY(TensorList::build(std::move(tensors), index_path.string()));
    return m;
}

}  // namespace nibble
