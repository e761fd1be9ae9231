// Opening GGUF files from disk: one file, or all parts of a split model merged into one.
// Part names are PREFIX-00001-of-0000N.gguf; each part repeats the split.* keys.
#include <optional>
#include <utility>

#include "ggml/base/cat.h"
#include "ggml/base/mapped_file.h"
#include "ggml/file/gguf_layout.h"
#include "ggml/file/gguf_reader.h"
#include "ggml/file/quote.h"

namespace nibble {
namespace {

constexpr size_t digits = 5;

std::string padded(uint32_t n) {
    const std::string s = cat(n);
    return s.size() < digits ? std::string(digits - s.size(), '0') + s : s;
}

std::optional<uint32_t> parse_digits(std::string_view s) {
    uint32_t n = 0;
    for (const char c : s) {
        if (c < '0' || c > '9') return {};
        n = n * 10 + static_cast<uint32_t>(c - '0');
    }
    return n;
}

Result<GgufFile> open_part(const std::filesystem::path& path) {
    auto mapped = std::make_shared<MappedFile>(NIBBLE_TRY(MappedFile::open(path)));
    const auto bytes = mapped->bytes();
    return GgufFile::parse(bytes, std::move(mapped), path.string());
}

// What the split.* keys of a part say; count 1 when there are none.
struct SplitKeys {
    uint32_t number = 0, count = 1;  // number from 0
    std::optional<uint64_t> tensors;
};

Result<SplitKeys> split_keys(const Metadata& m) {
    SplitKeys k;
    k.number = NIBBLE_TRY(m.get_or<uint32_t>(gguf::split_no_key, 0));
    k.count = NIBBLE_TRY(m.get_or<uint32_t>(gguf::split_count_key, 1));
    if (m.contains(gguf::split_tensors_key))
        k.tensors = NIBBLE_TRY(m.require<uint64_t>(gguf::split_tensors_key));
    if (k.count == 0) k.count = 1;
    return k;
}

Error split_error(const std::filesystem::path& path, ErrorCode code, std::string what, std::string fix) {
    return {code, path.string(), std::move(what), std::move(fix)};
}

// The name of a part and its keys must tell the same story.
Result<void> check_part(const std::filesystem::path& path, const SplitKeys& keys, uint32_t number,
                        uint32_t count) {
    if (keys.count == count && keys.number + 1 == number) return {};
    return split_error(path, ErrorCode::corrupt,
                       cat("is named part ", number, " of ", count, ", but its split keys say part ",
                           uint64_t{keys.number} + 1, " of ", keys.count),
                       "download the parts again and keep their names");
}

Result<void> add_part(GgufFile& model, std::vector<TensorInfo>& tensors, const std::filesystem::path& path,
                      uint32_t number, uint32_t count) {
    std::error_code ignored;
    if (!std::filesystem::exists(path, ignored))
        return split_error(path, ErrorCode::not_found,
                           cat("part ", number, " of ", count, " of the model is missing"),
                           "download all parts into one folder");
    GgufFile part = NIBBLE_TRY(open_part(path));
    NIBBLE_TRY(check_part(path, NIBBLE_TRY(split_keys(part.metadata)), number, count));
    for (TensorInfo& t : std::move(part.tensors).release()) tensors.push_back(std::move(t));
    model.file_bytes += part.file_bytes;
    for (auto& o : part.owners) model.owners.push_back(std::move(o));
    return {};
}

}  // namespace

std::string SplitName::part(uint32_t n) const {
    return cat(prefix, "-", padded(n), "-of-", padded(count), ".gguf");
}

std::optional<SplitName> parse_split_name(const std::string& file_name) {
    constexpr std::string_view of = "-of-", extension = ".gguf";
    constexpr size_t tail = 1 + digits + of.size() + digits + extension.size();
    if (file_name.size() < tail) return {};
    const std::string_view t = std::string_view(file_name).substr(file_name.size() - tail);
    const auto number = parse_digits(t.substr(1, digits));
    const auto count = parse_digits(t.substr(1 + digits + of.size(), digits));
    if (t[0] != '-' || t.substr(1 + digits, of.size()) != of || !t.ends_with(extension) || !number ||
        !count || *number < 1 || *number > *count)
        return {};
    return SplitName{file_name.substr(0, file_name.size() - tail), *number, *count};
}

Result<GgufFile> GgufFile::open(const std::filesystem::path& path) {
    GgufFile model = NIBBLE_TRY(open_part(path));
    const SplitKeys keys = NIBBLE_TRY(split_keys(model.metadata));
    const auto split = parse_split_name(path.filename().string());
    if (!split && keys.count > 1)
        return split_error(path, ErrorCode::invalid_argument,
                           cat("is part ", uint64_t{keys.number} + 1, " of ", keys.count,
                               " of a split model, but its name does not say so"),
                           cat("rename the parts to NAME-", padded(1), "-of-", padded(keys.count),
                               ".gguf and so on, and open the first"));
    if (!split || (split->count == 1 && keys.count == 1)) return model;
    NIBBLE_TRY(check_part(path, keys, split->number, split->count));
    if (split->number != 1) {
        const std::string first = split->part(1);
        std::error_code ignored;
        const bool is_there = std::filesystem::exists(path.parent_path() / first, ignored);
        return split_error(
            path, ErrorCode::invalid_argument,
            cat("is part ", split->number, " of ", split->count, " of a split model",
                is_there ? "" : cat(", whose first part, ", quote(first), ", is not beside it")),
            is_there ? cat("open the first part, ", quote(first)) : "download all parts into one folder");
    }

    std::vector<TensorInfo> tensors = std::move(model.tensors).release();
    for (uint32_t n = 2; n <= split->count; ++n)
        NIBBLE_TRY(add_part(model, tensors, path.parent_path() / split->part(n), n, split->count));
    if (keys.tensors && *keys.tensors != tensors.size())
        return split_error(
            path, ErrorCode::corrupt,
            cat("the parts hold ", tensors.size(), " tensors, split.tensors.count says ", *keys.tensors),
            "download the parts again");
    model.tensors = NIBBLE_TRY(TensorList::build(std::move(tensors), path.string()));
    for (const auto key : {gguf::split_no_key, gguf::split_count_key, gguf::split_tensors_key})
        model.metadata.erase(key);
    return model;
}

}  // namespace nibble
