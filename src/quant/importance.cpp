// Importance files: tensors "<name>.in_sum2" [columns] and "<name>.counts" [1], f32.
// Sums and counts are kept apart so that files of several texts can be added up.
#include "src/quant/importance.h"

#include <cmath>
#include <cstring>

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

}  // namespace

Result<Importance> Importance::read(const std::filesystem::path& path) {
    const GgufFile file = NIBBLE_TRY(GgufFile::open(path));
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
        Entry e{floats(t), floats(*counts)[0]};
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
        const int64_t cols[] = {static_cast<int64_t>(e.sums.size()), 1}, one[] = {1, 1};
        NIBBLE_TRY(w.declare(cat(name, sums_suffix), Type::f32, cols));
        NIBBLE_TRY(w.declare(cat(name, counts_suffix), Type::f32, one));
    }
    NIBBLE_TRY(w.begin());
    for (const auto& [name, e] : tensors) {
        NIBBLE_TRY(w.write(cat(name, sums_suffix), std::as_bytes(std::span(e.sums))));
        NIBBLE_TRY(w.write(cat(name, counts_suffix), std::as_bytes(std::span(&e.count, 1))));
    }
    return w.finish();
}

Result<std::vector<float>> Importance::weights(const std::string& tensor, int64_t cols) const {
    std::vector<float> mean;
    const auto it = tensors.find(tensor);
    if (it == tensors.end()) return mean;
    if (static_cast<int64_t>(it->second.sums.size()) != cols)
        return Error{ErrorCode::invalid_argument, "--importance",
                     cat("has ", it->second.sums.size(), " columns for '", tensor, "', which has ", cols),
                     "it was made from another model"};
    // A column that never saw an activation still gets a little weight: its values must stay finite.
    double total = 0;
    for (const float s : it->second.sums) total += s;
    const auto floor = static_cast<float>(1e-6 * total / static_cast<double>(cols) / it->second.count);
    for (const float s : it->second.sums) mean.push_back(s / it->second.count + floor);
    return mean;
}

}  // namespace nibble
