// The checkpoints of tests/golden/models: their folders, and each of them as a GGUF file.
// Included by tests that go through all of them.
#pragma once

#include <algorithm>
#include <filesystem>
#include <vector>

#include <doctest/doctest.h>
#include <unistd.h>

#include "ggml/base/cat.h"
#include "src/model/vocab_file.h"
#include "src/quant/convert.h"

namespace nibble {

inline std::vector<std::filesystem::path> golden_checkpoints() {
    std::vector<std::filesystem::path> list;
    for (const auto& e : std::filesystem::directory_iterator(std::filesystem::path(NIBBLE_SOURCE_DIR) /
                                                             "tests/golden/models"))
        if (e.is_directory()) list.push_back(e.path());
    std::ranges::sort(list);
    return list;
}

// A folder of this process that is removed at the end.
struct Scratch {
    std::filesystem::path dir = std::filesystem::temp_directory_path() / cat("nibble-golden-", ::getpid());
    Scratch() { std::filesystem::create_directories(dir); }
    ~Scratch() { std::filesystem::remove_all(dir); }
};

// By a recipe of `nibble quantize`, without search.
inline std::filesystem::path converted(const std::filesystem::path& folder, std::string_view type,
                                       const Scratch& scratch) {
    auto file = TensorFile::open(folder);
    REQUIRE_MESSAGE(file, (file ? "" : file.error().message()));
    const auto model = open_model(std::move(*file));
    REQUIRE_MESSAGE(model, (model ? "" : model.error().message()));
    const auto vocab = read_vocab((*model)->file);
    REQUIRE_MESSAGE(vocab, (vocab ? "" : vocab.error().message()));
    const auto plan = plan_conversion(**model, {*find_recipe(type), true, {}});
    REQUIRE_MESSAGE(plan, (plan ? "" : plan.error().message()));
    ThreadPool pool(1);
    std::filesystem::path path = scratch.dir / cat(folder.filename().string(), ".", type, ".gguf");
    const auto report = convert(**model, *vocab, *plan, path, pool);
    REQUIRE_MESSAGE(report, (report ? "" : report.error().message()));
    return path;
}

}  // namespace nibble
