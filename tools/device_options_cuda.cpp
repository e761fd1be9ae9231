// --device and --gpu-layers, over the CUDA backend.
// Without a GPU, `auto` says so in one line and leaves everything to the processor.
#include <charconv>
#include <cstdio>

#include <nlohmann/json.hpp>

#include "ggml/base/cat.h"
#include "ggml/cuda/cuda_backend.h"
#include "tools/device_options.h"

namespace nibble {
namespace {

Result<int> device_number(std::string_view text) {
    int n = -1;
    const std::string_view digits = text.starts_with("cuda:") ? text.substr(5) : text == "cuda" ? "0" : "";
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), n);
    if (digits.empty() || error != std::errc{} || end != digits.data() + digits.size() || n < 0)
        return Error{ErrorCode::invalid_argument, cat("--device ", text), "is not a device",
                     "use auto, cpu or cuda:N"};
    return n;
}

}  // namespace

void DeviceOptions::add(Flags& flags) {
    flags.value("--device", device, "auto (the first GPU that can be used), cpu or cuda:N")
        .show_default()
        .group("Model");
    flags
        .each_checked(
            "--gpu-layers",
            [this](const std::string& text) -> Result<void> {
                if (text == "auto") return gpu_layers = -1, Result<void>();
                const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), gpu_layers);
                if (error != std::errc{} || end != text.data() + text.size() || gpu_layers < 0)
                    return Error{ErrorCode::invalid_argument, "--gpu-layers", "a number of layers or `auto`",
                                 ""};
                return {};
            },
            "layers that the GPU runs, the last ones [auto: what its memory holds]")
        .type_name("N|auto")
        .group("Model");
}

Result<void> DeviceOptions::append(std::vector<std::unique_ptr<Backend>>& backends, int32_t threads,
                                   bool deterministic) const {
    if (device == "cpu" && gpu_layers > 0)
        std::fputs("nibble: --gpu-layers has no effect with --device cpu\n", stderr);
    if (device == "cpu" || gpu_layers == 0) return {};
    CudaOptions options;
    options.threads = threads;
    options.warpgroups = options.gemv = !deterministic;
    if (device != "auto") {
        options.device = NIBBLE_TRY(device_number(device));
        backends.push_back(NIBBLE_TRY(CudaBackend::create(options)));
        return {};
    }
    // The first that can be used: one may be too old, or taken by another program.
    const int n = CudaBackend::devices();
    std::string reason = n ? std::string() : CudaBackend::why_none();
    for (; options.device < n; ++options.device) {
        auto backend = CudaBackend::create(options);
        if (backend) {
            backends.push_back(std::move(*backend));
            return {};
        }
        if (reason.empty()) reason = backend.error().message();
    }
    std::fputs(cat("nibble: ", reason, "; running on the CPU\n").c_str(), stderr);
    return {};
}

std::span<const std::string_view> gpu_settings_without_gpu() { return {}; }

nlohmann::json gpu_report() {
    nlohmann::json list = nlohmann::json::array();
    for (int i = 0; i < CudaBackend::devices(); ++i) {
        const auto card = cuda::card(i);
        if (!card) continue;
        list.push_back({{"device", cat("cuda:", i)},
                        {"name", card->name},
                        {"compute_capability", cat(card->major, ".", card->minor)},
                        {"multiprocessors", card->multiprocessors},
                        {"memory_bytes", card->total_bytes},
                        {"free_bytes", card->free_bytes}});
    }
    return list;
}

}  // namespace nibble
