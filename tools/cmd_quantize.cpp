// nibble quantize: a Hugging Face folder or a GGUF file into a GGUF file of another type.
// The destination appears only when it is complete.
#include <chrono>
#include <cstdio>

#include <unistd.h>

#include "src/model/vocab_file.h"
#include "src/quant/convert.h"
#include "tools/options.h"

namespace nibble {
namespace fs = std::filesystem;
namespace {

struct QuantizeCommand {
    std::string source, destination, type;
    int32_t threads = 0;
    bool force = false;
    Result<int> operator()() const;
};

Result<Type> type_option(const std::string& name) {
    const auto type = find_type(name == "int8" ? "q8_0" : name);
    if (type && info(*type).encode) return *type;
    std::string known = "int8";
    for (const TypeInfo& t : all_types())
        if (t.encode && t.decode) known += cat(", ", t.name);
    return Error{ErrorCode::invalid_argument, "--type", cat("'", name, "' cannot be written"),
                 cat("use ", known)};
}

Result<int> QuantizeCommand::operator()() const {
    const Type target = NIBBLE_TRY(type_option(type));
    if (std::error_code ec; !force && fs::exists(destination, ec))
        return Error{ErrorCode::invalid_argument, destination, "exists already", "--force overwrites it"};
    const auto opened = NIBBLE_TRY(open_model(NIBBLE_TRY(TensorFile::open(source))));
    const OpenedModel& model = *opened;
    const Vocab vocab = NIBBLE_TRY(read_vocab(model.file));
    const ConvertPlan plan = NIBBLE_TRY(plan_conversion(model, target));
    ThreadPool pool(threads);
    const auto start = std::chrono::steady_clock::now();
    const bool terminal = ::isatty(STDERR_FILENO);
    NIBBLE_TRY(convert(model, vocab, plan, destination, pool, [&](const ConvertProgress& p) {
        if (terminal)
            std::fprintf(stderr, "\r\033[K%3.0f %% %.*s",
                         100.0 * static_cast<double>(p.source_bytes_done) /
                             static_cast<double>(std::max<uint64_t>(1, p.source_bytes)),
                         static_cast<int>(p.tensor.size()), p.tensor.data());
    }));
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    std::fprintf(stderr, "%s%s: %.1f MiB -> %.1f MiB in %.2f s\n", terminal ? "\r\033[K" : "",
                 destination.c_str(), static_cast<double>(plan.source_bytes) / (1 << 20),
                 static_cast<double>(plan.bytes) / (1 << 20), seconds);
    return exit_ok;
}

std::function<Result<int>()> setup(CLI::App& app) {
    auto c = std::make_shared<QuantizeCommand>();
    app.add_option("source", c->source, "Hugging Face folder or GGUF file")->required();
    app.add_option("destination", c->destination, "GGUF file to write")->required();
    app.add_option("--type", c->type, "int8, or any type by name: bf16, f16, f32, q8_0, ...")->required();
    app.add_option("-t,--threads", c->threads, "threads (default: one per physical core)")
        ->check(CLI::Range(1, 1024));
    app.add_flag("--force", c->force, "overwrite the destination");
    app.footer(
        "Examples:\n  nibble quantize models/fairytale story.gguf --type int8\n  nibble quantize big.gguf "
        "half.gguf --type f16");
    return [c] { return (*c)(); };
}

}  // namespace

extern const Command quantize_command;
const Command quantize_command{"quantize", "Convert a model to GGUF, with smaller weights", setup};

}  // namespace nibble
