// DeviceOptions: which processor runs the model. Two definitions: device_options_cuda.cpp where the CUDA
// backend is built, device_options_cpu.cpp (no flags) where it is not.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "ggml/program/backend.h"
#include "tools/cli.h"

namespace nibble {

struct DeviceOptions {
    std::string device = "auto";
    int32_t gpu_layers = -1;  // auto
    void add(Flags& flags);
    // Appends the GPU's backend, if one is to be used. `threads`: of the host; `deterministic`: see
    // CudaOptions.
    Result<void> append(std::vector<std::unique_ptr<Backend>>& backends, int32_t threads,
                        bool deterministic) const;
};

// Flags of the other definition, if this one lacks them: in a configuration file, which may serve several
// machines, they are passed over.
std::span<const std::string_view> gpu_settings_without_gpu();

// The GPUs of this machine, for `nibble inspect --system`: null when the program was built without CUDA.
nlohmann::json gpu_report();

}  // namespace nibble
