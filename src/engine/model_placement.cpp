// ModelRunner: which layers go on which device, and whether what this takes is there.
// Every trial records the real program over weights that are not placed: exact, and nothing is allocated.
#include <algorithm>

#include "ggml/base/cat.h"
#include "src/engine/model_runner.h"

namespace nibble {
namespace {

// The last n layers and the output on device 1, the others on device 0; the embedding goes with the first.
Placement last_layers(int32_t n_layers, int32_t n) {
    n = std::clamp(n, 0, n_layers);
    Placement p;
    p.layers.assign(static_cast<size_t>(n_layers), 0);
    std::fill(p.layers.end() - n, p.layers.end(), 1);
    p.first = n == n_layers && n > 0 ? 1 : 0;
    p.last = n > 0 ? 1 : 0;
    return p;
}

// So much of the weights can be packed in `room` that the others' part of the file stays in memory beside it.
// Where the whole file would not, most of it is packed all the same: that is what stays in memory for
// certain.
size_t most_packed(const WeightStore::Packing& all, size_t room) {
    if (all.file_bytes >= room) return room - room / 8;
    const auto grows = static_cast<double>(all.bytes - all.file_bytes);
    const double share = static_cast<double>(room - all.file_bytes) / grows;
    return static_cast<size_t>(share * static_cast<double>(all.bytes));
}

// The fewest layers beside none that a second device can have: those that attend to another's keys and
// values, with these.
int32_t fewest_layers(const ModelSpec& spec) {
    size_t first = spec.layers.size();
    for (const LayerSpec& l : spec.layers) first = std::min(first, shared_kv_layer(l).value_or(first));
    return static_cast<int32_t>(spec.layers.size() - first);
}

// Layers that share keys and values must share a device.
Result<void> check_shared(const ModelSpec& spec, const Placement& placement) {
    for (size_t i = 0; i < spec.layers.size() && i < placement.layers.size(); ++i) {
        const auto of = shared_kv_layer(spec.layers[i]);
        if (of && placement.layers[*of] != placement.layers[i])
            return Error{ErrorCode::invalid_argument, "--gpu-layers",
                         cat("layer ", i, " attends to the keys of layer ", *of, ", on another device"),
                         cat("give 0 or at least ", fewest_layers(spec))};
    }
    return {};
}

}  // namespace

std::vector<DeviceFootprint> ModelRunner::footprint(const Program& main) const {
    std::vector<const Program*> programs{&main};
    if (predictor_)
        for (const Program* p : predictor_->programs()) programs.push_back(p);
    return nibble::footprint(programs);
}

// Whether a program of which the GPU has so many layers fits its free memory.
bool ModelRunner::fits(const Program& dry, const DeviceInfo& gpu, int32_t layers) const {
    const size_t reserve = (size_t{256} << 20) + gpu.total_bytes / 64;  // the driver's own
    // Lost by handing out whole 2 MiB to a layer's ten or so allocations.
    const size_t lost = static_cast<size_t>(layers) * (size_t{10} << 20);
    return footprint(dry)[1].total() + reserve + lost <= gpu.free_bytes;
}

Result<Program> ModelRunner::record_dry(const Placement& placement, std::span<Backend* const> backends) {
    NIBBLE_TRY(check_shared(spec(), placement));
    config_.placement = placement;
    const bool draws = placement.first == placement.last &&
                       !backends[static_cast<size_t>(placement.last)]->device().host_memory;
    kv_.drawn = {nullptr, draws ? limits_.outputs : 0, 1, sizeof(float)};
    weights_ = std::make_unique<WeightStore>(model_->tensors, placement, backends, most_packed_);
    Program main = NIBBLE_TRY(record_forward(spec(), *weights_, kv_, limits_, placement, backends));
    NIBBLE_TRY(record_predictor(backends));
    return main;
}

Result<Program> ModelRunner::place_layers(std::span<Backend* const> backends) {
    if (!config_.placement.layers.empty()) return record_dry(config_.placement, backends);
    const auto n_layers = static_cast<int32_t>(spec().layers.size());
    if (backends.size() < 2 || config_.gpu_layers >= 0)
        return record_dry(last_layers(n_layers, backends.size() < 2 ? 0 : config_.gpu_layers), backends);
    // The most layers that fit, by halving: every trial is exact and allocates nothing.
    const DeviceInfo gpu = backends[1]->device();
    int32_t most = 0, too_many = n_layers + 1;
    const int32_t fewest = fewest_layers(spec());
    for (int32_t n = n_layers; most + 1 < too_many; n = (most + too_many) / 2) {
        if (n < fewest) {
            most = n;  // not to be had by themselves: none are
            continue;
        }
        const Program dry = NIBBLE_TRY(record_dry(last_layers(n_layers, n), backends));
        (fits(dry, gpu, n) ? most : too_many) = n;
    }
    return record_dry(last_layers(n_layers, most < fewest ? 0 : most), backends);
}

Result<Program> ModelRunner::widen_steps(Program dry, std::span<Backend* const> backends) {
    const Placement placement = config_.placement;
    const auto n_layers = static_cast<int32_t>(placement.layers.size());
    if (backends.size() < 2 || std::ranges::count(placement.layers, 1) != n_layers) return dry;
    const DeviceInfo gpu = backends[1]->device();
    const int64_t rows = std::min<int64_t>(gpu.step_rows, int64_t{config_.ctx} * config_.max_sequences);
    if (rows <= limits_.tokens) return dry;
    const int64_t before = std::exchange(limits_.tokens, rows);
    Program wide = NIBBLE_TRY(record_dry(placement, backends));
    if (fits(wide, gpu, n_layers)) {
        config_.batch_tokens = static_cast<int32_t>(rows);
        return wide;
    }
    limits_.tokens = before;
    return record_dry(placement, backends);
}

size_t ModelRunner::host_device(std::span<Backend* const> backends) {
    const auto host =
        std::ranges::find_if(backends, [](const Backend* b) { return b->device().host_memory; });
    return static_cast<size_t>(host - backends.begin());
}

Result<void> ModelRunner::fit_packed(std::span<Backend* const> backends) {
    const size_t host = host_device(backends);
    if (host == backends.size() || model_->file.memory_bytes() > 0) return {};
    const DeviceFootprint& f = forecast_.devices[host];
    const WeightStore::Packing all = weights_->packing();
    const size_t others = f.cache + f.arena + f.inputs + (f.packed - std::min(f.packed, all.bytes));
    const size_t free = backends[host]->device().free_bytes;
    if (others >= free || all.bytes <= free - others) return {};
    // Weights in place are packed for every product, which takes some scratch.
    const size_t room = (free - others) / 64 * 63;
    most_packed_ = most_packed(all, room);
    set_forecast(NIBBLE_TRY(record_dry(config_.placement, backends)), backends);
    return {};
}

Result<void> ModelRunner::check_memory(std::span<Backend* const> backends) const {
    for (size_t d = 0; d < backends.size(); ++d) {
        const DeviceInfo device = backends[d]->device();
        const DeviceFootprint& f = forecast_.devices[d];
        // Mapped weights need not fit beside: the kernel can drop and reread their pages.
        const size_t weights = device.host_memory ? f.packed : f.weights;
        const size_t need = f.cache + f.arena + f.inputs + weights;
        // What is packed goes tensor by tensor, so that a model without a file does not take its memory
        // twice.
        const size_t leaves =
            device.host_memory ? std::min<size_t>(f.packed, model_->file.memory_bytes()) : 0;
        if (device.free_bytes == 0 || need <= device.free_bytes + leaves) continue;
        if (device.host_memory && need - weights <= device.free_bytes)
            return Error{ErrorCode::out_of_memory, device.name,
                         cat("packed weights of ", weights >> 20, " MiB and a context of ", config_.ctx,
                             " tokens need ", need >> 20, " MiB, ", device.free_bytes >> 20, " MiB are free"),
                         "use --no-pack, a smaller --ctx or a smaller model"};
        // Nearly everything grows with the context; a tenth is left for what the forecast does not see.
        const auto states = static_cast<double>(forecast_.state_bytes) * forecast_.n_states;
        const double share = 0.9 * (static_cast<double>(device.free_bytes) - states) /
                             std::max(1.0, static_cast<double>(need) - states);
        const auto fits =
            static_cast<int64_t>(std::max(0.0, share) * config_.ctx) / config_.page_size * config_.page_size;
        return Error{ErrorCode::out_of_memory, device.name,
                     cat("a context of ", config_.ctx, " tokens needs ", need >> 20, " MiB, ",
                         device.free_bytes >> 20, " MiB are free"),
                     fits ? cat("--ctx ", fits, " would fit") : std::string("use a smaller model")};
    }
    return {};
}

}  // namespace nibble
