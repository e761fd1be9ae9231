// LoadedEngine: a model of this repository on the CPU, ready for requests.
// Included by tests of the engine and of what stands on it.
#pragma once

#include <filesystem>
#include <memory>

#include <doctest/doctest.h>

#include "ggml/cpu/cpu_backend.h"
#include "ggml/ops/reference_backend.h"
#include "src/engine/engine.h"

namespace nibble {

inline std::filesystem::path bundled_model() {
    return std::filesystem::path(NIBBLE_SOURCE_DIR) / "models/fairytale-int8.gguf";
}

inline std::unique_ptr<Backend> cpu_backend(int threads) {
    auto b = CpuBackend::create({threads, ""});
    REQUIRE(b);
    return std::move(*b);
}

// The CPU's kernels, for tests that change something about them.
struct OverCpu : ReferenceBackend {
    std::unique_ptr<Backend> real = cpu_backend(2);
    bool supports(const OpDef& op, const OpArgs& a) const override { return real->supports(op, a); }
    size_t scratch_bytes(const OpDef& op, const OpArgs& a) const override {
        return real->scratch_bytes(op, a);
    }
    bool joins_next(const Instr& instr) const override { return real->joins_next(instr); }
    Result<void> run(std::span<BoundInstr> instrs, Observer* o) override { return real->run(instrs, o); }
};

struct LoadedEngine {
    std::unique_ptr<Backend> backend;
    std::unique_ptr<Engine> engine;
    explicit LoadedEngine(EngineConfig config, int threads = 2,
                          const std::filesystem::path& path = bundled_model())
        : backend(cpu_backend(threads)) {
        Backend* const list[] = {backend.get()};
        auto e = Engine::load(path, std::move(config), list);
        REQUIRE_MESSAGE(e, (e ? "" : e.error().message()));
        engine = std::make_unique<Engine>(std::move(*e));
    }
};

}  // namespace nibble
