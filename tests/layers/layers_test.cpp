// The layering rule: each module includes only the modules that its row names (and what they include).
// Reads the #include lines of the source tree; the table is the one of docs/design.md.
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <doctest/doctest.h>

namespace fs = std::filesystem;

namespace {

using Table = std::map<std::string, std::vector<std::string>>;

const Table& allowed() {
    static const Table table = {
        {"ggml/base", {}},
        {"ggml/types", {"ggml/base"}},
        {"ggml/file", {"ggml/base", "ggml/types"}},
        {"ggml/program", {"ggml/base", "ggml/types"}},
        {"ggml/ops", {"ggml/program"}},
        {"ggml/cpu", {"ggml/ops"}},
        {"ggml/cuda", {"ggml/ops"}},
        {"src/text", {"ggml/base"}},
        {"src/sample", {"ggml/base"}},
        {"src/kv", {"ggml/base"}},
        {"src/model", {"ggml/program", "ggml/ops", "ggml/file", "src/text"}},
        {"src/engine", {"src/model", "src/kv", "src/sample", "src/text"}},
        {"src/chat", {"src/engine"}},
        {"src/quant", {"src/model", "ggml/file", "src/text"}},
        {"src/eval", {"src/engine", "src/quant"}},
        {"src/serve", {"src/engine"}},
        {"tools", {"src/engine", "src/chat", "src/quant", "src/eval", "src/serve", "ggml/cpu", "ggml/cuda"}},
    };
    return table;
}

// The row of a path: its longest prefix in the table; empty when there is none.
std::string module_of(const std::string& path) {
    std::string best;
    for (const auto& [module, unused] : allowed())
        if (path.starts_with(module + "/") && module.size() > best.size()) best = module;
    return best;
}

void collect(const std::string& module, std::set<std::string>& reachable) {
    if (!reachable.insert(module).second) return;
    for (const std::string& m : allowed().at(module)) collect(m, reachable);
}

bool is_source(const fs::path& p) {
    static const std::set<std::string> suffixes = {".h", ".cpp", ".inl", ".cu", ".cuh"};
    return suffixes.count(p.extension().string()) > 0;
}

}  // namespace

TEST_CASE("every module includes only what the layering table allows") {
    const fs::path root = NIBBLE_SOURCE_DIR;
    int files = 0, includes = 0;
    for (const char* top : {"ggml", "src", "tools"})
        for (const auto& entry : fs::recursive_directory_iterator(root / top)) {
            if (!entry.is_regular_file() || !is_source(entry.path())) continue;
            const std::string path = fs::relative(entry.path(), root).string();
            const std::string module = module_of(path);
            REQUIRE_MESSAGE(!module.empty(), path << " is in no module of the table");
            std::set<std::string> reachable;
            collect(module, reachable);
            ++files;
            std::ifstream in(entry.path());
            for (std::string line; std::getline(in, line);) {
                if (!line.starts_with("#include \"")) continue;
                const std::string target = line.substr(10, line.find('"', 10) - 10);
                CHECK_MESSAGE(reachable.count(module_of(target)) == 1, path << " includes " << target);
                ++includes;
            }
        }
    CHECK(files > 40);
    CHECK(includes > 100);
}

TEST_CASE("every source file opens with a comment that says what it is") {
    const fs::path root = NIBBLE_SOURCE_DIR;
    for (const char* top : {"ggml", "src", "tools"})
        for (const auto& entry : fs::recursive_directory_iterator(root / top)) {
            if (!entry.is_regular_file() || !is_source(entry.path())) continue;
            std::ifstream in(entry.path());
            std::string first, second;
            std::getline(in, first);
            std::getline(in, second);
            CHECK_MESSAGE((first.starts_with("// ") && second.starts_with("// ")), entry.path().string());
        }
}
