// Reads the kernel's text files about cores and cgroups.
// Every file may be missing or strange: then it puts no limit.
#include "ggml/base/cpu_count.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string>

#if defined(__linux__)
#include <sched.h>
#endif

#include "ggml/base/cat.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;

std::string read_text(const fs::path& path) {
    std::ifstream in(path);
    if (!in) return {};
    std::ostringstream text;
    text << in.rdbuf();
    return std::move(text).str();
}

std::optional<long long> leading_number(std::string_view s) {
    long long n = 0;
    const auto r = std::from_chars(s.data(), s.data() + s.size(), n);
    if (r.ec != std::errc()) return {};
    return n;
}

// The smaller of two limits where 0 means none.
double tighter(double a, double b) {
    if (a <= 0) return b;
    return b <= 0 ? a : std::min(a, b);
}

double ratio(std::optional<long long> quota, std::optional<long long> period) {
    if (!quota || !period || *quota <= 0 || *period <= 0) return 0;
    return static_cast<double>(*quota) / static_cast<double>(*period);
}

// "max 100000" or "150000 100000".
double quota_v2(const fs::path& group) {
    const std::string text = read_text(group / "cpu.max");
    const size_t space = text.find(' ');
    if (space == std::string::npos) return 0;
    return ratio(leading_number(text), leading_number(std::string_view(text).substr(space + 1)));
}

double quota_v1(const fs::path& group) {
    return ratio(leading_number(read_text(group / "cpu.cfs_quota_us")),
                 leading_number(read_text(group / "cpu.cfs_period_us")));
}

// A limit of any enclosing group binds, so walk from the process's own group up to the mount point.
template <class Quota>
double tightest_up(const fs::path& mount, std::string_view group, Quota quota) {
    fs::path relative = fs::path(group).relative_path();
    double limit = quota(mount);
    while (!relative.empty()) {
        limit = tighter(limit, quota(mount / relative));
        relative = relative.parent_path();
    }
    return limit;
}

// "0-3,8,10-11", as the kernel writes sets; what is not that ends it.
std::set<long long> numbers_of(std::string_view list) {
    constexpr long long most = 1 << 20;
    std::set<long long> numbers;
    while (!list.empty()) {
        const std::string_view range = list.substr(0, list.find(','));
        list.remove_prefix(std::min(list.size(), range.size() + 1));
        const size_t dash = range.find('-');
        const auto first = leading_number(range);
        const auto last = dash == std::string_view::npos ? first : leading_number(range.substr(dash + 1));
        if (!first || !last || *first < 0 || *last >= most) break;
        for (long long n = *first; n <= *last; ++n) numbers.insert(n);
    }
    return numbers;
}

}  // namespace

std::vector<int> allowed_cpus() {
    std::vector<int> cpus;
#if defined(__linux__)
    // The mask must be at least as large as the kernel's; grow until it is.
    for (int n = 1024; n <= 1 << 16; n *= 2) {
        cpu_set_t* set = CPU_ALLOC(static_cast<size_t>(n));
        if (!set) break;
        const size_t bytes = CPU_ALLOC_SIZE(static_cast<size_t>(n));
        const bool ok = sched_getaffinity(0, bytes, set) == 0;
        for (int c = 0; ok && c < n; ++c)
            if (CPU_ISSET_S(static_cast<size_t>(c), bytes, set)) cpus.push_back(c);
        CPU_FREE(set);
        if (ok) break;
    }
#endif
    return cpus;
}

int physical_cores(const std::vector<int>& cpus, const fs::path& root) {
    std::set<long long> cores;
    for (const int c : cpus) {
        const fs::path topology = root / cat("sys/devices/system/cpu/cpu", c, "/topology");
        // The list begins with the lowest-numbered hyperthread, which thus names the core.
        cores.insert(leading_number(read_text(topology / "thread_siblings_list")).value_or(c));
    }
    return static_cast<int>(cores.size());
}

std::vector<std::vector<int>> memory_nodes(const std::vector<int>& cpus, const fs::path& root) {
    std::map<long long, std::vector<int>> nodes;
    std::set<int> left(cpus.begin(), cpus.end());
    std::error_code none;
    for (fs::directory_iterator i(root / "sys/devices/system/node", none), end; !none && i != end;
         i.increment(none)) {
        const std::string name = i->path().filename().string();
        const auto number =
            name.starts_with("node") ? leading_number(std::string_view(name).substr(4)) : std::nullopt;
        if (!number) continue;
        const std::set<long long> of_node = numbers_of(read_text(i->path() / "cpulist"));
        std::vector<int>& here = nodes[*number];
        for (const int c : cpus)
            if (of_node.contains(c) && left.erase(c) > 0) here.push_back(c);
    }
    std::vector<std::vector<int>> lists;
    for (auto& [number, list] : nodes)
        if (!list.empty()) lists.push_back(std::move(list));
    if (lists.size() <= 1 || !left.empty()) return {cpus};
    return lists;
}

double cpu_quota(const fs::path& root) {
    std::istringstream groups(read_text(root / "proc/self/cgroup"));
    double limit = 0;
    for (std::string line; std::getline(groups, line);) {  // "id:controllers:path"
        const size_t a = line.find(':');
        const size_t b = a == std::string::npos ? a : line.find(':', a + 1);
        if (b == std::string::npos) continue;
        const std::string controllers = cat(",", line.substr(a + 1, b - a - 1), ",");
        const std::string_view group = std::string_view(line).substr(b + 1);
        const fs::path mounts = root / "sys/fs/cgroup";
        if (controllers == ",,") {
            limit = tighter(limit, tightest_up(mounts, group, quota_v2));
        } else if (controllers.find(",cpu,") != std::string::npos) {
            for (const char* mount : {"cpu", "cpu,cpuacct"})
                limit = tighter(limit, tightest_up(mounts / mount, group, quota_v1));
        }
    }
    return limit;
}

}  // namespace nibble
