// Which CPUs this process may keep busy: affinity mask, hyperthreads, container quota, memory nodes.
// The file-system root is a parameter so that tests can show it a made-up machine.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

namespace nibble {

// Numbers of the CPUs in the affinity mask of the calling process; empty where the system cannot tell.
std::vector<int> allowed_cpus();

// Distinct cores among `cpus`, hyperthreads of one core counted once (from sys/devices/system/cpu).
int physical_cores(const std::vector<int>& cpus, const std::filesystem::path& root = "/");

// `cpus` by the memory they are near to (NUMA, from sys/devices/system/node); one list where all of it is or
// where the system cannot tell.
std::vector<std::vector<int>> memory_nodes(const std::vector<int>& cpus,
                                           const std::filesystem::path& root = "/");

// CPUs granted by the cgroups (v1 or v2) that enclose this process, e.g. 1.5; 0 when there is no limit.
double cpu_quota(const std::filesystem::path& root = "/");

}  // namespace nibble
