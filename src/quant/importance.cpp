// Importance files: tensors "<name>.in_sum2" [columns (x experts)] and "<name>.counts" [1 (x experts)], f32.
// Sums and counts are kept apart so that files of several texts can be added up.
#include "src/quant/importance.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>

#include "ggml/base/cat.h"
#include "ggml/file/gguf_reader.h"
#include "ggml/file/gguf_writer.h"

namespace nibble {
namespace {

constexpr std::string_view sums_suffix = ".in_sum2", counts_suffix = ".counts";

std::vector<float> floats(const TensorInfo& t) {
    std::vector<float> v(static_cast<size_t>(t.elements()));
    std::memcpy(v.data(), t.data.data(), t.data.size());
    return v;
}

// The layout from before GGUF has no magic: a count of entries, then the first one's name with its length.
bool is_older_format(const std::filesystem::path& path) {
    constexpr int32_t most_entries = 1 << 20, most_bytes = 256;
    int32_t entries = 0, length = 0;
    std::ifstream in(path, std::ios::binary);
    in.read(reinterpret_cast<char*>(&entries), sizeof entries);
    in.read(reinterpret_cast<char*>(&length), sizeof length);
    if (!in || entries < 1 || entries > most_entries || length < 1 || length > most_bytes) return false;
    std::string name(static_cast<size_t>(length), '\0');
    return in.read(name.data(), length) &&
           std::ranges::all_of(name, [](char c) { return c > ' ' && c < 127; });
}

}  // namespace

Result<Importance> Importance::read(const std::filesystem::path& path) {
    auto opened = GgufFile::open(path);
    if (!opened && opened.error().code == ErrorCode::corrupt && is_older_format(path))
        return Error{ErrorCode::unsupported, path.string(),
                     "is an importance file of the older format (.dat), not GGUF",
                     cat("write it anew: `llama-imatrix --in-file ", path.filename().string(),
                         " -o new.gguf`, or make one with `nibble calibrate`")};
    const GgufFile file = NIBBLE_TRY(std::move(opened));
    const auto refuse = [&](std::string what) {
        return Error{ErrorCode::corrupt, path.string(), std::move(what), "make it with `nibble calibrate`"};
    };
    if (file.metadata.str("general.type").value_or("") != "imatrix")
        return refuse("is not an importance file");
    Importance out;
    out.chunks = file.metadata.u32("imatrix.chunk_count").value_or(0);
    out.chunk_tokens = file.metadata.u32("imatrix.chunk_size").value_or(0);
    for (const TensorInfo& t : file.tensors.all()) {
        if (!t.name.ends_with(sums_suffix)) continue;
        const std::string name = t.name.substr(0, t.name.size() - sums_suffix.size());
        const TensorInfo* counts = file.tensors.find(name + std::string(counts_suffix));
        if (!counts || t.type != Type::f32 || counts->type != Type::f32 || counts->elements() < 1)
            return refuse(cat("tensor '", name, "' lacks its sums or counts as f32"));
        Entry e{floats(t), 0, floats(*counts)};
        for (const float c : e.expert_counts) e.count += c >= 0 ? c : NAN;
        if (!std::isfinite(e.count) || e.sums.size() % e.expert_counts.size())
            return refuse(cat("tensor '", name, "' holds ", e.expert_counts.size(), " counts for ",
                              e.sums.size(), " sums, or one that is no number"));
        if (e.expert_counts.size() == 1) e.expert_counts.clear();
        for (const float x : e.sums)
            if (!std::isfinite(x) || x < 0)
                return refuse(cat("tensor '", name, "' holds a sum of squares of ", x));
        if (e.count > 0) out.tensors.emplace(name, std::move(e));
    }
    if (out.tensors.empty()) return refuse("holds no sums");
    return out;
}

Result<void> Importance::write(const std::filesystem::path& path) const {
    GgufWriter w = NIBBLE_TRY(GgufWriter::create(path));
    w.metadata().set("general.type", std::string("imatrix"));
    w.metadata().set("imatrix.datasets", MetaArray(std::vector<std::string>{dataset}));
    w.metadata().set("imatrix.chunk_count", chunks);
    w.metadata().set("imatrix.chunk_size", chunk_tokens);
    for (const auto& [name, e] : tensors) {
        const auto experts = static_cast<int64_t>(std::max<size_t>(1, e.expert_counts.size()));
        const int64_t cols[] = {static_cast<int64_t>(e.sums.size()) / experts, experts}, one[] = {1, experts};
        NIBBLE_TRY(w.declare(cat(name, sums_suffix), Type::f32, cols));
        NIBBLE_TRY(w.declare(cat(name, counts_suffix), Type::f32, one));
    }
    NIBBLE_TRY(w.begin());
    for (const auto& [name, e] : tensors) {
        NIBBLE_TRY(w.write(cat(name, sums_suffix), std::as_bytes(std::span(e.sums))));
        const auto counts = e.expert_counts.empty() ? std::span(&e.count, 1) : std::span(e.expert_counts);
        NIBBLE_TRY(w.write(cat(name, counts_suffix), std::as_bytes(counts)));
    }
    return w.finish();
}

Result<std::vector<float>> Importance::weights(const std::string& tensor, int64_t cols,
                                               int64_t matrices) const {
    std::vector<float> mean;
    const auto it = tensors.find(tensor);
    if (it == tensors.end()) return mean;
    const Entry& e = it->second;
    const size_t experts = std::max<size_t>(1, e.expert_counts.size());
    if (cols <= 0 || e.sums.size() / experts != static_cast<size_t>(cols))
        return Error{ErrorCode::invalid_argument, "--importance",
                     cat("has ", e.sums.size() / experts, " columns for '", tensor, "', which has ", cols),
                     "it was made from another model"};
    if (experts != 1 && experts != static_cast<size_t>(matrices))
        return Error{ErrorCode::invalid_argument, "--importance",
                     cat("has ", experts, " experts for '", tensor, "', which has ", matrices),
                     "it was made from another model"};
    // A column that never saw an activation still gets a little weight: its values must stay finite.
    const auto n = static_cast<size_t>(cols);
    std::vector<double> all(n);
    double total = 0;
    for (size_t i = 0; i < e.sums.size(); ++i) all[i % n] += e.sums[i], total += e.sums[i];
    const auto floor = static_cast<float>(1e-6 * total / static_cast<double>(cols) / e.count);
    for (size_t x = 0; x < experts; ++x) {
        const float seen = e.expert_counts.empty() ? e.count : e.expert_counts[x];
        for (size_t c = 0; c < n; ++c)
            mean.push_back((seen > 0 ? e.sums[x * n + c] / seen : static_cast<float>(all[c] / e.count)) +
                           floor);
    }
    return mean;
}

}  // namespace nibble
