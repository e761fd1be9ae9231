// WeightStore: views, f32 vectors, placement.
// Matrices are never copied here; a backend may pack them when it places them.
#include "src/model/weights.h"

#include <algorithm>
#include <charconv>

#include "ggml/base/cat.h"

namespace nibble {

Result<Tensor> WeightStore::host_view(const TensorInfo& t, WeightUse use) {
    const TypeInfo& type = info(t.type);
    if (t.foreign() || !type.decode)
        return Error{ErrorCode::unsupported, t.name,
                     cat("has the type ", t.type_name(), ", which cannot be used yet"),
                     "convert the model to a type listed by `nibble quantize --help`"};
    Tensor v;
    v.rows = t.rows();
    v.cols = t.cols();
    v.type = t.type;
    v.stride = static_cast<int64_t>(*row_bytes(t.type, t.cols()));
    // Bytes of the mapped file; kernels read weights and never write them.
    v.data = const_cast<std::byte*>(t.data.data());
    if (use != WeightUse::vector || t.data.empty()) return v;
    auto& f = vectors_.emplace_back(static_cast<size_t>(t.elements()));
    type.decode(t.data.data(), f.data(), f.size());
    v.type = Type::f32;
    v.stride = v.cols * static_cast<int64_t>(sizeof(float));
    v.data = reinterpret_cast<std::byte*>(f.data());
    return v;
}

Result<Tensor> WeightStore::get(const std::string& name, WeightUse use) {
    const auto known = used_.find({name, use});
    if (known != used_.end()) return known->second.tensor;
    const auto it = tensors_->find(name);
    if (it == tensors_->end()) return Tensor{};
    const Tensor t = NIBBLE_TRY(host_view(*it->second, use));
    used_[{name, use}] = {t, {}};
    return t;
}

Result<void> WeightStore::place(const Placement& placement, std::span<Backend* const> backends) {
    // In the order of the file, so that a cold disk is read forwards.
    std::vector<std::pair<const std::pair<const std::pair<std::string, WeightUse>, Entry>*, Entry*>> order;
    for (auto& kv : used_) order.push_back({&kv, &kv.second});
    std::ranges::sort(order, {}, [](const auto& o) { return o.second->tensor.data; });
    for (auto& [kv, entry] : order) {
        const auto& [name, use] = kv->first;
        const auto layers = static_cast<int32_t>(placement.layers.size());
        const int32_t layer =
            use == WeightUse::matmul && name == "token_embd.weight" ? layers : layer_of(name, layers);
        Backend& backend = *backends[static_cast<size_t>(placement.device(layer))];
        PlacedWeight placed = NIBBLE_TRY(backend.place(entry->tensor, use));
        *entry = {placed.tensor, std::move(placed.storage)};
    }
    return {};
}

std::optional<std::string> WeightStore::unused(std::span<const std::string_view> ignored) const {
    for (const auto& [name, t] : *tensors_) {
        if (std::ranges::find(ignored, name) != ignored.end()) continue;
        const auto it = used_.lower_bound({name, WeightUse{}});
        if (it == used_.end() || it->first.first != name) return name;
    }
    return {};
}

int32_t layer_of(std::string_view name, int32_t n_layers) {
    if (!name.starts_with("blk.")) return name.starts_with("output") ? n_layers : -1;
    int32_t layer = -1;
    std::from_chars(name.data() + 4, name.data() + name.size(), layer);
    return layer;
}

}  // namespace nibble
