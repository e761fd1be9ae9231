// Finds out what a path is and opens it: the rules of TensorFile::open.
// A folder is listed once; every error says what was there.
#include "ggml/file/tensor_file.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "ggml/base/cat.h"
#include "ggml/base/folder.h"
#include "ggml/base/mapped_file.h"
#include "ggml/file/gguf_reader.h"
#include "ggml/file/json.h"
#include "ggml/file/quote.h"
#include "ggml/file/safetensors.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view single_name = "model.safetensors", index_name = "model.safetensors.index.json";
constexpr size_t max_config_bytes = 16u << 20;
constexpr size_t max_side_file_bytes = 512u << 20;

// What a folder holds, as far as it matters here.
struct Listing {
    bool config = false, single = false, index = false, pytorch = false;
    std::vector<std::string> safetensors, gguf;  // gguf: models, so of a split one only the first part
    std::vector<std::string> parts;              // the other parts of split ones
    std::vector<std::string> all;                // sorted
};

Result<Listing> list(const fs::path& folder) {
    Listing l;
    std::error_code failed;
    for (const fs::path& entry : folder_entries(folder, failed)) {
        const std::string name = entry.filename().string();
        l.all.push_back(name);
        const std::string ext = entry.extension().string();
        if (ext == ".safetensors") l.safetensors.push_back(name);
        if (ext == ".bin" || ext == ".pt" || ext == ".pth") l.pytorch = true;
        const auto split = parse_split_name(name);
        if (ext == ".gguf") (!split || split->number == 1 ? l.gguf : l.parts).push_back(name);
        l.config = l.config || name == "config.json";
        l.single = l.single || name == single_name;
        l.index = l.index || name == index_name;
    }
    if (failed)
        return Error{ErrorCode::io, folder.string(), cat("cannot list the folder: ", failed.message()), ""};
    for (auto* names : {&l.all, &l.safetensors, &l.gguf, &l.parts}) std::sort(names->begin(), names->end());
    return l;
}

std::string enumerate(const std::vector<std::string>& names) {
    constexpr size_t shown = 6;
    if (names.empty()) return "nothing";
    std::string out;
    for (size_t i = 0; i < std::min(names.size(), shown); ++i) out += cat(i ? ", " : "", quote(names[i]));
    return names.size() > shown ? cat(out, " and ", names.size() - shown, " more") : out;
}

// "model-00001-of-00002.safetensors"
bool is_part(const std::string& name) {
    const size_t of = name.rfind("-of-");
    if (of == std::string::npos) return false;
    return name.substr(of + 4) != "00001.safetensors";
}

Error no_model(const fs::path& folder, const Listing& l) {
    const std::string where = folder.string();
    if (l.gguf.size() > 1)
        return {ErrorCode::invalid_argument, where,
                cat("holds ", l.gguf.size(), " GGUF models: ", enumerate(l.gguf)),
                "give the path of one of them"};
    if (l.gguf.empty() && !l.parts.empty())
        return {ErrorCode::not_found, where,
                cat("holds ", quote(l.parts[0]), " but not the first part of that split model, ",
                    quote(parse_split_name(l.parts[0])->part(1))),
                "download all parts into one folder"};
    if (l.safetensors.size() == 1)
        return {ErrorCode::not_found, where,
                cat("holds ", quote(l.safetensors[0]), ", a part of a model, but no ", index_name),
                "download all parts and the index into one folder"};
    if (l.safetensors.size() > 1)
        return {ErrorCode::not_found, where,
                cat("has ", l.safetensors.size(), " .safetensors files but neither ", single_name, " nor ",
                    index_name),
                "download the index, or give the path of one file"};
    if (l.pytorch)
        return {ErrorCode::unsupported, where,
                "has its weights in PyTorch files, which are programs and not read",
                "get the safetensors version of this model, or convert it"};
    if (l.config)
        return {ErrorCode::not_found, where,
                cat("has a config.json but no weights: neither ", single_name, " nor ", index_name),
                "download the weights too"};
    return {ErrorCode::not_found, where,
            cat("is no model: it has neither config.json with safetensors nor a GGUF file, found ",
                enumerate(l.all)),
            "give a GGUF file or a Hugging Face folder"};
}

// True when the folder's index names this file as one of the shards.
Result<bool> is_shard(const fs::path& index, const std::string& file_name) {
    const auto doc = NIBBLE_TRY(read_json_object(index, max_side_file_bytes));
    const auto map = doc.find("weight_map");
    if (map == doc.end() || !map->is_object()) return false;
    return std::any_of(map->begin(), map->end(), [&](const nlohmann::json& v) { return v == file_name; });
}

}  // namespace

TensorFile::TensorFile() : config_(std::make_shared<const nlohmann::json>()) {}

Result<TensorFile> TensorFile::open(const fs::path& path) {
    std::error_code failed;
    const fs::file_status status = fs::status(path, failed);
    if (status.type() == fs::file_type::not_found)
        return Error{ErrorCode::not_found, path.string(), "no such file or folder", "check the path"};
    if (failed) return Error{ErrorCode::io, path.string(), cat("cannot open: ", failed.message()), ""};
    if (fs::is_directory(status)) return open_folder(path);
    const std::string name = path.filename().string();
    if (path.extension() == ".safetensors") return open_safetensors_path(path);
    if (name == index_name || name == "config.json")
        return open_folder(path.has_parent_path() ? path.parent_path() : fs::path("."));
    return open_gguf(path);
}

Result<TensorFile> TensorFile::open_gguf(const fs::path& path) {
    GgufFile g = NIBBLE_TRY(GgufFile::open(path));
    TensorFile f;
    f.kind_ = Kind::gguf;
    f.path_ = path;
    f.tensors_ = std::move(g.tensors);
    f.metadata_ = std::move(g.metadata);
    f.file_bytes_ = g.file_bytes;
    f.owners_ = std::move(g.owners);
    return f;
}

Result<TensorFile> TensorFile::in_memory(Metadata metadata, std::vector<TensorInfo> tensors,
                                         std::shared_ptr<const void> owner, bool disposable) {
    TensorFile f;
    f.disposable_ = disposable;
    f.path_ = std::string(metadata.get<std::string_view>("general.name").value_or("memory"));
    for (const TensorInfo& t : tensors) f.file_bytes_ += t.data.size();
    f.tensors_ = NIBBLE_TRY(TensorList::build(std::move(tensors), f.path_.string()));
    f.metadata_ = std::move(metadata);
    if (owner) f.owners_.push_back(std::move(owner));
    if (disposable) f.memory_bytes_ = f.file_bytes_;
    return f;
}

Result<TensorFile> TensorFile::open_hf(const fs::path& folder, const fs::path& weights) {
    std::error_code ignored;
    if (!fs::exists(folder / "config.json", ignored))
        return Error{ErrorCode::not_found, folder.string(), "has safetensors but no config.json",
                     "download config.json and the tokenizer files of the model into this folder"};
    TensorFile f;
    f.kind_ = Kind::hf;
    f.path_ = folder;
    f.config_ = std::make_shared<const nlohmann::json>(
        NIBBLE_TRY(read_json_object(folder / "config.json", max_config_bytes)));
    SafetensorsModel m = weights.extension() == ".json" ? NIBBLE_TRY(open_safetensors_index(weights))
                                                        : NIBBLE_TRY(open_safetensors(weights));
    f.tensors_ = std::move(m.tensors);
    f.file_bytes_ = m.file_bytes;
    f.owners_ = std::move(m.owners);
    return f;
}

Result<TensorFile> TensorFile::open_folder(const fs::path& folder) {
    const Listing l = NIBBLE_TRY(list(folder));
    const bool one_gguf = l.gguf.size() == 1;
    if (one_gguf && (!l.config || l.safetensors.empty())) return open_gguf(folder / l.gguf[0]);
    if (l.single) return open_hf(folder, folder / single_name);
    if (l.index) return open_hf(folder, folder / index_name);
    if (l.safetensors.size() == 1 && !is_part(l.safetensors[0]))
        return open_hf(folder, folder / l.safetensors[0]);
    return no_model(folder, l);
}

Result<TensorFile> TensorFile::open_safetensors_path(const fs::path& file) {
    const fs::path folder = file.has_parent_path() ? file.parent_path() : fs::path(".");
    std::error_code ignored;
    const bool indexed = fs::exists(folder / index_name, ignored) &&
                         NIBBLE_TRY(is_shard(folder / index_name, file.filename().string()));
    return open_hf(folder, indexed ? folder / index_name : file);
}

Result<const TensorInfo*> TensorFile::require(std::string_view name) const {
    if (const TensorInfo* t = find(name)) return t;
    return Error{ErrorCode::not_found, path_.string(), cat("tensor ", quote(name), " is missing"),
                 "the model is incomplete or of another architecture"};
}

Result<std::optional<std::string>> TensorFile::text(std::string_view name) const {
    using Text = std::optional<std::string>;
    if (kind_ != Kind::hf) return Text{};
    if (name.empty() || name == "." || name == ".." || name.find('/') != std::string_view::npos)
        return Error{ErrorCode::invalid_argument, path_.string(), cat(quote(name), " is no plain file name"),
                     ""};
    std::error_code ignored;
    if (!fs::exists(path_ / name, ignored)) return Text{};
    return Text(NIBBLE_TRY(read_text_file(path_ / name, max_side_file_bytes)));
}

uint64_t TensorFile::tensor_bytes() const {
    uint64_t n = 0;
    for (const TensorInfo& t : tensors()) n += t.data.size();
    return n;
}

}  // namespace nibble
