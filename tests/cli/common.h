// Shared by the tests of the binary: run it, a scratch folder, how a refusal looks.
// Nothing here looks inside; what is checked is what can be seen.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>

#include <doctest/doctest.h>

#include "ggml/base/cat.h"
#include "tests/cli/process.h"

namespace nibble::cli_test {

namespace fs = std::filesystem;

inline const fs::path root = NIBBLE_SOURCE_DIR;

struct Scratch {
    fs::path dir = fs::temp_directory_path() / cat("nibble-cli-", ::getpid());
    Scratch() { fs::create_directories(dir); }
    ~Scratch() { fs::remove_all(dir); }
    std::string file(const std::string& name, const std::string& content) const {
        std::ofstream(dir / name, std::ios::binary) << content;
        return (dir / name).string();
    }
};

// A script in which "$0" is the program.
inline ProcessResult shell(const std::string& script) {
    return run_process({"/bin/sh", "-c", script, NIBBLE_BINARY});
}

// One clear line that names what is wrong, and the exit code.
inline void check_refused(const ProcessResult& r, int code, std::string_view mentions) {
    INFO("stderr: " << r.err);
    CHECK(r.code == code);
    CHECK(r.out.empty());
    CHECK(r.err.starts_with("nibble: "));
    CHECK(std::ranges::count(r.err, '\n') == 1);
    CHECK(r.err.find(mentions) != std::string::npos);
}

}  // namespace nibble::cli_test
