// nibble plan: what a model needs and how fast it would generate here, before anything is loaded.
// Sizes are exact, from the recorded program; speeds follow from the bytes a token reads.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "src/eval/bench.h"
#include "tools/json_text.h"
#include "tools/options.h"
#include "tools/shape_options.h"

namespace nibble {
namespace {

// Share of the read bandwidth that generation reaches while nothing else limits it, as `nibble bench` shows.
constexpr double usual_share = 0.93;

struct PlanCommand {
    ModelOption model;
    ShapeOptions shape;
    RunOptions options;
    bool json = false;

    Result<int> operator()() const;
    Result<TensorFile> open() const {
        if (!shape.name.empty()) return shape.model(Fill::nothing, options.threads);
        return TensorFile::open(NIBBLE_TRY(model.path()));
    }
    Result<MemoryForecast> forecast(const RunnerConfig& config, std::span<Backend* const> backends) const {
        return ModelRunner::forecast(NIBBLE_TRY(open()), config, backends);
    }
    int64_t largest_ctx(const RunnerConfig& config, std::span<Backend* const> backends,
                        const MemoryForecast& m, size_t device) const;
};

// Memory of its own that the process must have; weights read in place are the kernel's to drop.
size_t own_memory(const DeviceFootprint& f, const DeviceInfo& device) {
    return (device.host_memory ? f.packed : f.weights) + f.arena + f.inputs + f.cache;
}

// The longest context that fits with as many layers on the device as m has there. What a context needs grows
// evenly from each length on at which something stops to grow (a batch, a window), so a few steps along lines
// find it.
int64_t PlanCommand::largest_ctx(const RunnerConfig& config, std::span<Backend* const> backends,
                                 const MemoryForecast& m, size_t device) const {
    const DeviceInfo info = backends[device]->device();
    const auto left = [&](double ctx) -> std::optional<double> {  // of the memory
        RunnerConfig other = config;
        other.ctx = static_cast<int32_t>(ctx);
        other.gpu_layers = m.gpu_layers;
        const auto f = forecast(other, backends);
        if (!f) return {};
        return static_cast<double>(info.free_bytes) -
               static_cast<double>(own_memory(f->devices[device], info));
    };
    double before = std::max(1, m.ctx / 2), at = before + std::max(512, m.ctx / 2);
    auto left_before = left(before), left_at = left(at);
    for (int i = 0; i < 8 && left_before && left_at; ++i) {
        const double per_token = std::max((*left_before - *left_at) / (at - before), 1.0);
        const double next = std::clamp(std::floor(at + *left_at / per_token), 1.0, 1e9);
        // Close by, what pages round up to is more than what tokens differ by.
        if (std::abs(next - at) <= 64 + at / 1000) {
            if (*left_at >= 0) return static_cast<int64_t>(at);
            return next > 1 ? static_cast<int64_t>(std::min(at, next)) : 0;
        }
        before = std::exchange(at, next), left_before = std::exchange(left_at, left(next));
    }
    // Learned positions end where they end: what is beyond them has no forecast.
    if (!left_at && m.n_ctx_train > 0) at = std::min(at, static_cast<double>(m.n_ctx_train));
    return static_cast<int64_t>(at);
}

double mib(size_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

Result<int> PlanCommand::operator()() const {
    EngineConfig engine = NIBBLE_TRY(options.config());
    const auto backends = NIBBLE_TRY(options.backends());
    engine.draft_tokens = -1;  // as run and chat have it by default
    settle_guesses(engine, backends.size());
    const RunnerConfig& config = engine.runner;
    const auto list = pointers(backends);
    const MemoryForecast m = NIBBLE_TRY(forecast(config, list));
    // Of the device that runs the last layers: the GPU where there is one.
    const size_t d = m.gpu_layers > 0 ? 1 : 0;
    const DeviceFootprint& f = m.devices[d];
    const DeviceInfo device = backends[d]->device();
    const double bandwidth = read_bandwidth(m, list);
    const std::string where = placement_text(m, list);

    nlohmann::json j = {{"device", where},
                        {"n_layers", m.n_layers},
                        {"gpu_layers", m.gpu_layers},
                        {"ctx", m.ctx},
                        {"n_ctx_train", m.n_ctx_train},
                        {"weights_bytes", f.weights},
                        {"packed_bytes", f.packed},
                        {"kv_bytes", f.cache},
                        {"kv_bytes_per_token", m.kv_bytes_per_token},
                        {"state_bytes", m.state_bytes},
                        {"activations_bytes", f.arena + f.inputs},
                        {"available_bytes", device.free_bytes},
                        {"bandwidth_gbps", bandwidth / 1e9}};
    const size_t need = own_memory(f, device);
    j["fits"] = need <= device.free_bytes;
    const int64_t largest = largest_ctx(config, list, m, d);
    j["largest_ctx"] = largest;
    const double weights = static_cast<double>(m.matmul_bytes),
                 kv = static_cast<double>(m.kv_bytes_read_per_token),
                 states = 2 * static_cast<double>(m.state_bytes);
    const auto rate = [&](double depth) { return usual_share * bandwidth / (weights + states + kv * depth); };
    j["tokens_per_second"] = {{"empty", rate(0)}, {"full", rate(m.ctx)}};
    nlohmann::json types = nlohmann::json::object();
    for (const char* type : {"f16", "int8", "int4"}) {
        RunnerConfig c = config;
        c.k_type = c.v_type = std::string_view(type) == "f16"    ? Type::f16
                              : std::string_view(type) == "int8" ? Type::q8_0
                                                                 : Type::q4_0;
        if (const auto other = forecast(c, list)) types[type] = other->devices[d].cache;
    }
    j["kv_bytes_by_type"] = types;
    if (json) {
        std::printf("%s\n", json_text(j, 2).c_str());
        return exit_ok;
    }
    std::printf("%s\n", where.c_str());
    std::printf("weights      %9.1f MiB (%.1f MiB packed in memory)\n", mib(f.weights), mib(f.packed));
    std::printf("kv cache     %9.1f MiB for %d tokens", mib(f.cache), m.ctx);
    for (const auto& [type, bytes] : types.items())
        std::printf("%s %.1f as %s", type == "f16" ? ":" : ",", mib(bytes.get<size_t>()), type.c_str());
    if (m.n_states > 0)
        std::printf("\nof it states %9.1f MiB: %d of %.1f MiB, %s for a text and the others for prefixes",
                    mib(m.state_bytes * static_cast<size_t>(m.n_states)), m.n_states, mib(m.state_bytes),
                    m.n_states - kept_states > 1 ? "two (one of them while guesses are checked)" : "one");
    std::printf("\nactivations  %9.1f MiB\n", mib(f.arena + f.inputs));
    const bool fits_in_part = device.host_memory && need - f.packed <= device.free_bytes;
    std::printf("needs        %9.1f MiB of %.1f MiB available: %s, up to %lld tokens of context\n", mib(need),
                mib(device.free_bytes),
                need <= device.free_bytes ? "fits"
                : fits_in_part            ? "fits with weights left in the file, which is slower"
                                          : "does not fit",
                static_cast<long long>(largest));
    if (m.n_ctx_train > 0 && std::max<int64_t>(largest, m.ctx) > m.n_ctx_train)
        std::printf("context      %s\n", beyond_training_text(m.n_ctx_train).c_str());
    std::printf(
        "generation   %9.1f tokens/s at the start, %.1f with a full context, at %.1f GB/s of reading\n",
        rate(0), rate(m.ctx), bandwidth / 1e9);
    return exit_ok;
}

std::function<Result<int>()> setup(Flags& flags) {
    auto c = std::make_shared<PlanCommand>();
    const Flag model = c->model.add_subject(flags);
    c->shape.add(flags);
    flags.find("--shape")->excludes(model);
    c->shape.add_n_ctx(flags);
    flags.on("--json", c->json, "one JSON object");
    c->options.add_ctx(flags, "tokens of prompt and answer [model's, at most 8192]");
    c->options.add(flags);
    c->options.add_batch(flags);
    flags.examples(
        "  nibble plan model.gguf --ctx 32768\n"
        "  nibble plan --shape llama-3.1-8b --type int4 --kv-type int8");
    return [c] { return (*c)(); };
}

}  // namespace

extern const Command plan_command;
const Command plan_command{"plan", "Tell what a model needs and how fast it will be here", setup};

}  // namespace nibble
