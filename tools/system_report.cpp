// Collects the facts and prints them as lines or JSON.
// Instruction sets come from the list of compiled kernels, so a new one appears here by itself.
#include "tools/system_report.h"

#include <cstdio>
#include <fstream>
#include <thread>

#include <nlohmann/json.hpp>

#include "ggml/base/cat.h"
#include "ggml/base/cpu_count.h"
#include "ggml/cpu/cpu_backend.h"
#include "tools/device_options.h"
#include "tools/json_text.h"

namespace nibble {
namespace {

std::string first_line(const char* path) {
    std::ifstream in(path);
    std::string line;
    std::getline(in, line);
    return line;
}

constexpr const char* huge_pages_file = "/sys/kernel/mm/transparent_hugepage/enabled";

// The system's words, in which the choice stands in brackets, and what can be done about a bad one.
std::string on_huge_pages(const std::string& setting) {
    if (setting.empty()) return "not told by the system";
    if (setting.find("[never]") == std::string::npos) return setting;
    return cat(setting, ": weights may be read slower; as root: echo madvise > ", huge_pages_file);
}

}  // namespace

Result<int> report_system(bool json, bool measure) {
    const auto backend = NIBBLE_TRY(CpuBackend::create());
    const DeviceInfo device = backend->device();
    nlohmann::json isas = nlohmann::json::array();
    for (const cpu::KernelTable* t : cpu::compiled_tables())
        isas.push_back({{"name", t->name},
                        {"available", t->available(cpu::features())},
                        {"needs", t->needs},
                        {"chosen", t->name == backend->isa()}});
    const std::string brand = cpu::features().brand;
    nlohmann::json j = {{"processor", brand.empty() ? "unknown" : brand},
                        {"hardware_threads", std::thread::hardware_concurrency()},
                        {"threads", backend->threads()},
                        {"instruction_sets", isas},
                        {"memory_bytes", device.total_bytes},
                        {"memory_nodes", memory_nodes(allowed_cpus()).size()},
                        {"available_bytes", device.free_bytes},
                        {"huge_pages", first_line(huge_pages_file)}};
    if (const auto gpus = gpu_report(); !gpus.is_null()) j["gpus"] = gpus;
    if (measure) {
        j["bandwidth_gbps"] = backend->read_bandwidth() / 1e9;
    }
    if (json) {
        std::printf("%s\n", json_text(j, 2).c_str());
        return exit_ok;
    }
    std::printf("processor     %s\n", j["processor"].get<std::string>().c_str());
    std::printf("threads       %d of %u hardware threads\n", backend->threads(),
                std::thread::hardware_concurrency());
    for (const auto& isa : isas)
        std::printf("kernels       %-12s %s\n", isa["name"].get<std::string>().c_str(),
                    isa["chosen"].get<bool>()      ? "chosen"
                    : isa["available"].get<bool>() ? "available"
                                                   : cat("needs ", isa["needs"].get<std::string>()).c_str());
    std::printf("memory        %.1f GiB, %.1f GiB available\n",
                static_cast<double>(device.total_bytes) / (1 << 30),
                static_cast<double>(device.free_bytes) / (1 << 30));
    if (const auto nodes = j["memory_nodes"].get<size_t>(); nodes > 1)
        std::printf("memory nodes  %zu, each worker stays near one of them\n", nodes);
    std::printf("huge pages    %s\n", on_huge_pages(j["huge_pages"].get<std::string>()).c_str());
    for (const auto& gpu : j.value("gpus", nlohmann::json::array()))
        std::printf("%-13s %s, compute capability %s, %.1f GiB, %.1f GiB free\n",
                    gpu["device"].get<std::string>().c_str(), gpu["name"].get<std::string>().c_str(),
                    gpu["compute_capability"].get<std::string>().c_str(),
                    gpu["memory_bytes"].get<double>() / (1 << 30),
                    gpu["free_bytes"].get<double>() / (1 << 30));
    if (measure) std::printf("read speed    %.1f GB/s\n", j["bandwidth_gbps"].get<double>());
    return exit_ok;
}

}  // namespace nibble
