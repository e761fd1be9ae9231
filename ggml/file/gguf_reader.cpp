// The GGUF parser: header, key-values, tensor infos, each checked against the end of the file.
// No count is trusted for an allocation before the bytes that it promises are known to exist.
#include "ggml/file/gguf_reader.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "ggml/base/byte_reader.h"
#include "ggml/base/cat.h"
#include "ggml/base/checked.h"
#include "ggml/file/gguf_layout.h"
#include "ggml/file/quote.h"

namespace nibble {
namespace {

static_assert(std::endian::native == std::endian::little, "files are little-endian and are used in place");

constexpr int max_array_depth = 4;
constexpr size_t max_key_bytes = 65535;  // the limit of the specification
constexpr size_t max_name_bytes = 1024;  // ggml writes at most 63

struct Context {
    ByteReader& reader;
    const std::shared_ptr<const void>& owner;
    std::string field;  // names the key in error messages
};

Error bad_header(const std::string& where, ErrorCode code, std::string what, std::string fix) {
    return {code, where, std::move(what), std::move(fix)};
}

// What a file without the magic is, as far as its first bytes tell.
Error not_gguf(std::span<const std::byte> bytes, const std::string& where) {
    const std::string_view head(reinterpret_cast<const char*>(bytes.data()),
                                std::min<size_t>(bytes.size(), 64));
    if (head.empty()) return bad_header(where, ErrorCode::corrupt, "is empty", "download it again");
    if (head.starts_with("version https://git-lfs"))
        return bad_header(where, ErrorCode::corrupt, "is a Git LFS pointer, not the file itself",
                          "run `git lfs pull` or download the file");
    for (const std::string_view old : {"lmgg", "fmgg", "tjgg"})
        if (head.starts_with(old))
            return bad_header(where, ErrorCode::unsupported, "is a GGML file from before GGUF",
                              "convert the original model again with a current tool");
    return bad_header(where, ErrorCode::corrupt, "is not a GGUF file: it does not start with 'GGUF'",
                      "give a GGUF file or a Hugging Face folder with safetensors");
}

Result<uint32_t> read_version(ByteReader& r, std::span<const std::byte> all) {
    if (all.size() < 4 || std::memcmp(all.data(), "GGUF", 4) != 0) return not_gguf(all, r.where());
    (void)NIBBLE_TRY(r.bytes(4, "magic"));
    const uint32_t version = NIBBLE_TRY(r.read<uint32_t>("version"));
    if (version == 2 || version == 3) return version;
    if (version == 1)
        return bad_header(r.where(), ErrorCode::unsupported, "is GGUF version 1, which has 32-bit counts",
                          "convert the original model again; versions 2 and 3 are read");
    if (version != 0 && (version & 0xffff) == 0)
        return bad_header(r.where(), ErrorCode::unsupported, "is a big-endian GGUF file",
                          "get the little-endian file of this model");
    return bad_header(r.where(), ErrorCode::unsupported, cat("is GGUF version ", version),
                      "versions 2 and 3 are read; the file may be damaged or newer than this program");
}

template <class T>
Result<std::vector<T>> read_numbers(Context& c, uint64_t count) {
    if (count > c.reader.remaining() / sizeof(T))
        return c.reader.corrupt(c.field, cat("claims ", count, " elements of ", sizeof(T), " bytes, ",
                                             c.reader.remaining(), " bytes are left in the file"));
    const auto bytes = NIBBLE_TRY(c.reader.bytes(count * sizeof(T), c.field));
    std::vector<T> out(count);
    if (count > 0) std::memcpy(out.data(), bytes.data(), bytes.size());
    return out;
}

Result<std::vector<bool>> read_flags(Context& c, uint64_t count) {
    const auto bytes = NIBBLE_TRY(read_numbers<uint8_t>(c, count));
    std::vector<bool> out(count);
    for (size_t i = 0; i < out.size(); ++i) {
        if (bytes[i] > 1) return c.reader.corrupt(c.field, cat("holds ", bytes[i], " where 0 or 1 must be"));
        out[i] = bytes[i] == 1;
    }
    return out;
}

Result<MetaArray> read_array(Context& c, int depth);

Result<MetaArray> read_nested(Context& c, uint64_t count, int depth) {
    if (depth >= max_array_depth)
        return c.reader.corrupt(c.field, cat("nests arrays deeper than ", max_array_depth, " levels"));
    std::vector<MetaArray> out;  // grows with the elements that really are there
    for (uint64_t i = 0; i < count; ++i) out.push_back(NIBBLE_TRY(read_array(c, depth + 1)));
    return MetaArray(std::move(out));
}

template <class Items>
Result<MetaArray> read_items(Context& c, uint64_t count, int depth) {
    if constexpr (std::is_same_v<Items, std::vector<MetaArray>>) {
        return read_nested(c, count, depth);
    } else if constexpr (std::is_same_v<Items, StringList>) {
        return MetaArray(StringList(NIBBLE_TRY(c.reader.strings(count, c.field)), c.owner));
    } else if constexpr (std::is_same_v<Items, std::vector<bool>>) {
        return MetaArray(NIBBLE_TRY(read_flags(c, count)));
    } else {
        return MetaArray(NIBBLE_TRY(read_numbers<typename Items::value_type>(c, count)));
    }
}

Result<uint32_t> read_meta_type(Context& c) {
    const uint32_t id = NIBBLE_TRY(c.reader.read<uint32_t>(c.field));
    if (id < meta_type_count) return id;
    return c.reader.corrupt(c.field, cat("has value type ", id, ", types end at ", meta_type_count - 1));
}

Result<MetaArray> read_array(Context& c, int depth) {
    const uint32_t type = NIBBLE_TRY(read_meta_type(c));
    const uint64_t count = NIBBLE_TRY(c.reader.read<uint64_t>(c.field));
    constexpr auto readers = []<size_t... I>(std::index_sequence<I...>) {
        return std::array{&read_items<std::variant_alternative_t<I, MetaArray::Items>>...};
    }
    (std::make_index_sequence<meta_type_count>());
    return readers[type](c, count, depth);
}

template <class T>
Result<MetaValue> read_scalar(Context& c) {
    if constexpr (std::is_same_v<T, MetaArray>) {
        return MetaValue(NIBBLE_TRY(read_array(c, 1)));
    } else if constexpr (std::is_same_v<T, std::string>) {
        return MetaValue(std::string(NIBBLE_TRY(c.reader.string(c.field))));
    } else if constexpr (std::is_same_v<T, bool>) {
        return MetaValue(static_cast<bool>(NIBBLE_TRY(read_flags(c, 1))[0]));
    } else {
        return MetaValue(NIBBLE_TRY(c.reader.read<T>(c.field)));
    }
}

Result<MetaValue> read_value(Context& c) {
    const uint32_t type = NIBBLE_TRY(read_meta_type(c));
    constexpr auto readers = []<size_t... I>(std::index_sequence<I...>) {
        return std::array{&read_scalar<std::variant_alternative_t<I, MetaValue>>...};
    }
    (std::make_index_sequence<meta_type_count>());
    return readers[type](c);
}

Result<void> read_metadata(ByteReader& r, uint64_t count, const std::shared_ptr<const void>& owner,
                           Metadata& out) {
    for (uint64_t i = 0; i < count; ++i) {
        const std::string_view key = NIBBLE_TRY(r.string("metadata key"));
        if (key.empty() || key.size() > max_key_bytes)
            return r.corrupt("metadata key", cat("number ", i + 1, " has ", key.size(), " bytes"));
        Context c{r, owner, printable(key)};
        MetaValue value = NIBBLE_TRY(read_value(c));
        if (!out.insert(std::string(key), std::move(value))) return r.corrupt(c.field, "occurs twice");
    }
    return {};
}

Result<size_t> read_alignment(const Metadata& metadata) {
    const uint32_t a = NIBBLE_TRY(metadata.get_or<uint32_t>(gguf::alignment_key, gguf::default_alignment));
    if (std::has_single_bit(a)) return size_t{a};
    return Error{ErrorCode::corrupt, metadata.where(),
                 cat("general.alignment is ", a, ", not a power of two"),
                 "the file is damaged or was written wrongly"};
}

struct RawTensor {
    TensorInfo info;
    uint64_t offset;  // from the start of the data section
};

Result<RawTensor> read_tensor_info(ByteReader& r) {
    const std::string_view name = NIBBLE_TRY(r.string("tensor name"));
    if (name.empty() || name.size() > max_name_bytes)
        return r.corrupt("tensor name", cat("has ", name.size(), " bytes"));
    RawTensor t;
    t.info.name = std::string(name);
    const std::string field = cat("tensor ", printable(name));
    const uint32_t n_dims = NIBBLE_TRY(r.read<uint32_t>(field));
    if (n_dims > 4) return r.corrupt(field, cat("has ", n_dims, " dimensions, at most 4 are possible"));
    t.info.n_dims = static_cast<int>(n_dims);
    for (uint32_t d = 0; d < n_dims; ++d) t.info.ne[d] = NIBBLE_TRY(r.read<int64_t>(field));
    const uint32_t id = NIBBLE_TRY(r.read<uint32_t>(field));
    t.offset = NIBBLE_TRY(r.read<uint64_t>(field));
    auto type = type_from_id(id);
    if (!type) {
        Error e = std::move(type).error();
        return Error{e.code, r.where(), cat("tensor ", quote(name), ": ", e.where, " ", e.what), e.fix};
    }
    t.info.type = *type;
    return t;
}

// Gives the tensor its bytes; `data` is the data section.
Result<void> place(RawTensor& t, std::span<const std::byte> data, size_t alignment,
                   const std::string& where) {
    const auto fail = [&](const std::string& what, std::string_view fix) {
        return Error{ErrorCode::corrupt, where, cat("tensor ", quote(t.info.name), " ", what),
                     std::string(fix)};
    };
    const auto bytes = tensor_bytes(t.info.type, t.info.ne);
    if (!bytes)
        return fail(
            cat("has impossible dimensions ", shape_text(t.info), " for type ", info(t.info.type).name,
                ", whose rows are multiples of ", info(t.info.type).block_len),
            "the file is damaged");
    if (t.offset % alignment != 0)
        return fail(cat("starts at offset ", t.offset, ", not a multiple of ", alignment),
                    "the file is damaged");
    if (t.offset > data.size() || *bytes > data.size() - t.offset)
        return fail(
            cat("needs ", *bytes, " bytes at offset ", t.offset, " of the data, which has ", data.size()),
            "the file is incomplete; download or convert it again");
    t.info.data = data.subspan(t.offset, *bytes);
    return {};
}

// No byte belongs to two tensors.
Result<void> check_apart(const TensorList& tensors, const std::string& where) {
    std::vector<const TensorInfo*> order;
    for (const TensorInfo& t : tensors.all())
        if (!t.data.empty()) order.push_back(&t);
    std::ranges::sort(order, {}, [](const TensorInfo* t) { return t->data.data(); });
    for (size_t i = 1; i < order.size(); ++i)
        if (order[i]->data.data() < order[i - 1]->data.data() + order[i - 1]->data.size())
            return Error{ErrorCode::corrupt, where,
                         cat("tensor ", quote(order[i]->name), " overlaps ", quote(order[i - 1]->name)),
                         "the file is damaged or was written wrongly"};
    return {};
}

}  // namespace

Result<GgufFile> GgufFile::parse(std::span<const std::byte> bytes, std::shared_ptr<const void> owner,
                                 const std::string& where) {
    ByteReader r(bytes, where);
    GgufFile f;
    f.metadata = Metadata(where);
    f.file_bytes = bytes.size();
    f.version = NIBBLE_TRY(read_version(r, bytes));
    const uint64_t n_tensors = NIBBLE_TRY(r.read<uint64_t>("tensor count"));
    const uint64_t n_keys = NIBBLE_TRY(r.read<uint64_t>("metadata count"));
    // The smallest key-value and tensor info there can be; a larger claim is refused by name, not by reading
    // on.
    if (n_keys > r.remaining() / gguf::min_key_value_bytes)
        return r.corrupt("metadata count", cat(n_keys, " do not fit the file"));
    if (n_tensors > r.remaining() / gguf::min_tensor_info_bytes)
        return r.corrupt("tensor count", cat(n_tensors, " do not fit the file"));
    NIBBLE_TRY(read_metadata(r, n_keys, owner, f.metadata));
    f.alignment = NIBBLE_TRY(read_alignment(f.metadata));

    std::vector<RawTensor> raw;
    for (uint64_t i = 0; i < n_tensors; ++i) raw.push_back(NIBBLE_TRY(read_tensor_info(r)));
    std::vector<TensorInfo> tensors;
    tensors.reserve(raw.size());
    const size_t start = std::min(round_up(r.offset(), f.alignment), bytes.size());
    for (RawTensor& t : raw) {
        NIBBLE_TRY(place(t, bytes.subspan(start), f.alignment, where));
        tensors.push_back(std::move(t.info));
    }
    f.tensors = NIBBLE_TRY(TensorList::build(std::move(tensors), where));
    NIBBLE_TRY(check_apart(f.tensors, where));
    f.owners.push_back(std::move(owner));
    return f;
}

}  // namespace nibble
