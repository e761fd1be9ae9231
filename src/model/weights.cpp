// WeightStore: views, f32 vectors, placement.
// Matrices are never copied here; a backend may pack them when it places them.
#include "src/model/weights.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "ggml/base/cat.h"
#include "ggml/base/mapped_file.h"
#include "ggml/base/read_ahead.h"

namespace nibble {
namespace {

Tensor row_of(std::vector<float>& values) {
    Tensor t;
    t.rows = 1;
    t.cols = static_cast<int64_t>(values.size());
    t.stride = t.cols * static_cast<int64_t>(sizeof(float));
    t.data = reinterpret_cast<std::byte*>(values.data());
    return t;
}

bool is_converted(const Tensor& host, const TensorSource& source) { return host.type != source->type; }

std::vector<std::byte> as_f32(const TensorSource& source) {
    std::vector<std::byte> copy(static_cast<size_t>(source.rows() * source.cols()) * sizeof(float));
    auto* const values = reinterpret_cast<float*>(copy.data());
    for (int64_t r = 0; r < source.rows(); ++r) decode_row(source, r, values + r * source.cols());
    return copy;
}

}  // namespace

WeightStore::WeightStore(const TensorMap& tensors, Placement placement, std::span<Backend* const> backends,
                         size_t most_packed)
    : tensors_(&tensors),
      placement_(std::move(placement)),
      backends_(backends.begin(), backends.end()),
      most_packed_(most_packed) {
    for (const Backend* b : backends_)
        if (b->device().host_memory) on_host_.insert(b);
}

Result<Tensor> WeightStore::host_view(const std::string& name, const TensorSource& source, WeightUse use,
                                      int64_t elements) {
    const TensorInfo& t = *source;
    const TypeInfo& type = info(t.type);
    if (t.foreign() || !type.decode)
        return Error{ErrorCode::unsupported, t.name,
                     cat("has the type ", t.type_name(), ", which cannot be used yet"),
                     "convert the model to a type listed by `nibble quantize --help`"};
    Tensor v;
    v.rows = source.rows();
    v.cols = source.cols();
    const bool exact = use == WeightUse::matmul && type.block_len == 1 && decides(name);
    v.type = exact ? Type::f32 : t.type;
    v.stride = static_cast<int64_t>(*row_bytes(v.type, v.cols));
    // Bytes of the mapped file; kernels read weights and never write them.
    v.data = const_cast<std::byte*>(t.data.data());
    if (t.data.empty()) return v;
    if (use != WeightUse::vector) {
        // place() rearranges what the file stores otherwise; until then an address only tells tensors apart.
        if (source.is_second()) v.data += t.data.size() / 2;
        return v;
    }
    if (elements >= 0 && v.rows * v.cols != elements) return v;
    // The biases of experts, a row each, are one vector.
    auto& f = vectors_.emplace_back(static_cast<size_t>(v.rows * v.cols));
    for (int64_t r = 0; r < v.rows; ++r) decode_row(source, r, f.data() + r * v.cols);
    return row_of(f);
}

Backend& WeightStore::backend_of(std::string_view name, WeightUse use) const {
    const auto layers = static_cast<int32_t>(placement_.layers.size());
    const int32_t layer =
        use == WeightUse::matmul && name == "token_embd.weight" ? layers : layer_of(name, layers);
    return *backends_[static_cast<size_t>(placement_.device(layer))];
}

Result<Tensor> WeightStore::get(const std::string& name, WeightUse use, int64_t elements) {
    const auto known = used_.find({name, use});
    if (known != used_.end()) return known->second.tensor;
    const auto it = tensors_->find(name);
    if (it == tensors_->end()) return Tensor{};
    const Tensor host = NIBBLE_TRY(host_view(name, it->second, use, elements));
    Backend& backend = backend_of(name, use);
    Tensor planned = host;
    bool in_place = false;
    if (const size_t bytes = backend.packed_bytes(host, use); bytes > 0) {
        const bool counts = on_host_.contains(&backend);
        const auto file_bytes = static_cast<size_t>(host.rows * host.stride);
        in_place = counts && bytes > most_packed_ - packing_.bytes;
        if (in_place) {
            packing_.left_bytes += file_bytes;
        } else {
            if (counts) packing_.bytes += bytes, packing_.file_bytes += file_bytes;
            planned.layout = Layout::packed;
            planned.stride = static_cast<int64_t>(bytes) / std::max<int64_t>(host.rows, 1);
        }
    }
    used_[{name, use}] = {host, planned, {}, &backend, &it->second, in_place};
    return planned;
}

Tensor WeightStore::constant(const std::string& name, std::span<const float> values) {
    const auto known = used_.find({name, WeightUse::vector});
    if (known != used_.end()) return known->second.tensor;
    const Tensor host = row_of(vectors_.emplace_back(values.begin(), values.end()));
    used_[{name, WeightUse::vector}] = {host, host, {}, &backend_of(name, WeightUse::vector), nullptr, false};
    return host;
}

const WeightStore::Entry* WeightStore::packed_twin(const Entry& e) const {
    if (e.tensor.layout != Layout::packed) return nullptr;
    for (const auto& [key, other] : used_)
        if (other.source == e.source && other.backend == e.backend && other.storage.data &&
            other.tensor.layout == Layout::packed)
            return &other;
    return nullptr;
}

bool WeightStore::is_copied(const Entry& e, WeightUse use) const {
    return use != WeightUse::vector && e.source && e.host.data &&
           (!e.source->is_view() || is_converted(e.host, *e.source));
}

bool WeightStore::leaves_host(const Entry& e, WeightUse use) const {
    if (use != WeightUse::matmul) return false;
    if (e.tensor.layout != Layout::packed && on_host_.contains(e.backend)) return false;
    return std::ranges::count(used_, e.source, [](const auto& u) { return u.second.source; }) == 1;
}

bool WeightStore::is_read_to_place(const Entry& e, WeightUse use) const {
    if (!e.source || use == WeightUse::vector) return false;
    return is_copied(e, use) || e.tensor.layout == Layout::packed || !on_host_.contains(e.backend);
}

size_t WeightStore::rearranged_bytes() const {
    size_t bytes = 0;
    for (const auto& [source, copy] : rearranged_) bytes += copy.size();
    return bytes;
}

size_t WeightStore::rearranged_bytes_to_be() const {
    std::map<const TensorSource*, size_t> staying;
    for (const auto& [key, e] : used_)
        if (is_copied(e, key.second) && !leaves_host(e, key.second))
            staying[e.source] = static_cast<size_t>(e.host.rows * e.host.stride);
    size_t bytes = 0;
    for (const auto& [source, size] : staying) bytes += size;
    return bytes;
}

Result<void> WeightStore::place(bool release) {
    // In the order of the file, so that a cold disk is read forwards.
    struct Step {
        WeightUse use;
        Entry* entry;
        size_t read = 0;  // of the spans that are read in all, when it is done
    };
    std::vector<Step> order;
    for (auto& [key, entry] : used_) order.push_back({key.second, &entry});
    std::ranges::sort(order, {}, [](const Step& s) { return s.entry->host.data; });
    std::map<const std::byte*, int> readers;  // by the file's bytes: tensors yet to be copied out of them
    std::vector<std::span<const std::byte>> spans;
    for (auto& [use, entry, read] : order) {
        if (is_copied(*entry, use)) ++readers[entry->source->info->data.data()];
        if (is_read_to_place(*entry, use))
            entry->source->each_part([&](std::span<const std::byte> part) { spans.push_back(part); });
        read = spans.size();
    }
    ReadAhead ahead(std::move(spans));
    for (auto& [use, entry, read] : order) {
        ahead.reach(read);
        const TensorSource* const source = entry->source;
        const Entry* const twin = packed_twin(*entry);
        const bool copied = is_copied(*entry, use);
        if (twin) {
            entry->tensor = twin->tensor;
            entry->storage = twin->storage;
        } else {
            if (copied) {
                auto& copy = rearranged_[source];
                if (copy.empty())
                    copy = is_converted(entry->host, *source) ? as_f32(*source) : rearranged(*source);
                entry->host.data = copy.data();
            }
            PlacedWeight placed{entry->host, {}};
            if (!entry->in_place) placed = NIBBLE_TRY(entry->backend->place(entry->host, use));
            entry->tensor = placed.tensor;
            entry->storage = std::move(placed.storage);
        }
        // What was copied need not stay in memory twice.
        if (release && copied && --readers[source->info->data.data()] == 0) source->each_part(release_pages);
        if (twin || !entry->storage.data || !leaves_host(*entry, use)) continue;
        const Tensor& h = entry->host;
        if (copied)
            rearranged_.erase(source);
        else if (release)
            release_pages({h.data, static_cast<size_t>(h.rows * h.stride)});
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

bool decides(std::string_view name) {
    for (const std::string_view part : {".ffn_gate_inp", ".ssm_alpha.", ".ssm_beta.", ".ssm_ba."})
        if (name.find(part) != std::string_view::npos) return true;
    return false;
}

int32_t layer_of(std::string_view name, int32_t n_layers) {
    // LFM2 calls the norm before the output token_embd_norm.
    const bool output = name.starts_with("output") || name.starts_with("token_embd_norm");
    if (!name.starts_with("blk.")) return output ? n_layers : -1;
    int32_t layer = -1;
    std::from_chars(name.data() + 4, name.data() + name.size(), layer);
    return layer;
}

}  // namespace nibble
