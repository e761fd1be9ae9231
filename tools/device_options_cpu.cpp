// Without the CUDA backend there is nothing to choose: the processor runs everything.
// See device_options_cuda.cpp for the other definition.
#include <nlohmann/json.hpp>

#include "tools/device_options.h"

namespace nibble {

void DeviceOptions::add(Flags&) {}

Result<void> DeviceOptions::append(std::vector<std::unique_ptr<Backend>>&, int32_t) const { return {}; }

nlohmann::json gpu_report() { return nullptr; }

}  // namespace nibble
