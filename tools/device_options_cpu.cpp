// Without the CUDA backend there is nothing to choose: the processor runs everything.
// See device_options_cuda.cpp for the other definition.
#include <nlohmann/json.hpp>

#include "tools/device_options.h"

namespace nibble {

void DeviceOptions::add(Flags&) {}

Result<void> DeviceOptions::append(std::vector<std::unique_ptr<Backend>>&, int32_t, bool) const { return {}; }

std::span<const std::string_view> gpu_settings_without_gpu() {
    static constexpr std::string_view names[] = {"device", "gpu-layers"};
    return names;
}

nlohmann::json gpu_report() { return nullptr; }

}  // namespace nibble
