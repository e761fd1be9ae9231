// folder_entries(): what a folder holds, without exceptions.
// std::filesystem's iterators throw when they are incremented in a range-for, whatever they were made with.
#pragma once

#include <filesystem>
#include <system_error>
#include <vector>

namespace nibble {

// In no order. `failed` says why there may be more.
inline std::vector<std::filesystem::path> folder_entries(const std::filesystem::path& folder,
                                                         std::error_code& failed) {
    std::vector<std::filesystem::path> entries;
    for (std::filesystem::directory_iterator it(folder, failed), end; !failed && it != end;
         it.increment(failed))
        entries.push_back(it->path());
    return entries;
}

}  // namespace nibble
