// nibble calibrate: runs a text and writes what each matrix's columns are multiplied by.
// The file makes `nibble quantize --importance` spend its precision where the model needs it.
#include <cstdio>

#include <unistd.h>

#include "ggml/base/mapped_file.h"
#include "src/eval/calibrate.h"
#include "tools/options.h"

namespace nibble {
namespace {

struct CalibrateCommand {
    ModelOption model;
    RunOptions options;
    std::string file, out;
    int32_t windows = 0;
    Result<int> operator()() const;
};

Result<int> CalibrateCommand::operator()() const {
    const std::string text = NIBBLE_TRY(read_text_file(file));
    const auto backends = NIBBLE_TRY(options.backends());
    const auto list = pointers(backends);
    EngineConfig config = NIBBLE_TRY(options.config());
    if (config.runner.ctx == 0) config.runner.ctx = 512;
    config.runner.batch_tokens = config.runner.max_outputs = config.runner.ctx;
    Engine engine = NIBBLE_TRY(Engine::load(NIBBLE_TRY(model.path()), config, list));
    const Vocab& vocab = engine.tokenizer().vocab();
    const auto ctx = static_cast<size_t>(config.runner.ctx);
    const auto tokens = engine.tokenizer().encode(text, {false, false});
    auto cut = cut_windows(tokens, ctx, ctx, vocab.add_bos ? vocab.bos : std::nullopt);
    if (windows && cut.size() > static_cast<size_t>(windows)) cut.resize(static_cast<size_t>(windows));
    if (cut.empty())
        return Error{ErrorCode::invalid_argument, file,
                     cat("has ", tokens.size(), " tokens, a window needs ", ctx),
                     "give a longer text or a smaller --ctx"};
    Scorer scorer(engine);
    ImportanceObserver observer;
    for (size_t i = 0; i < cut.size(); ++i) {
        NIBBLE_TRY(scorer.logits(cut[i], &observer));
        if (::isatty(STDERR_FILENO))
            std::fprintf(stderr, "\r\033[K%zu/%zu%s", i + 1, cut.size(),
                         i + 1 == cut.size() ? "\r\033[K" : "");
    }
    Importance importance;
    importance.dataset = std::filesystem::path(file).filename().string();
    importance.chunks = static_cast<uint32_t>(cut.size());
    importance.chunk_tokens = static_cast<uint32_t>(ctx);
    NIBBLE_TRY(observer.finish(engine.runner().program(), importance));
    NIBBLE_TRY(importance.write(out));
    std::printf("%s: %zu matrices, %zu windows of %zu tokens\n", out.c_str(), importance.tensors.size(),
                cut.size(), ctx);
    return exit_ok;
}

std::function<Result<int>()> setup(CLI::App& app) {
    auto c = std::make_shared<CalibrateCommand>();
    c->model.add(app);
    app.add_option("-f,--file", c->file, "the text; a few hundred kB of what the model will be used for")
        ->required();
    app.add_option("-o,--output", c->out, "the importance file to write")->required();
    app.add_option("--windows", c->windows, "at most this many windows of --ctx tokens")
        ->check(CLI::Range(1, 1 << 30));
    c->options.add(app);
    app.footer(
        "Examples:\n  nibble calibrate -m models/fairytale -f text.txt -o story.imatrix\n"
        "  nibble quantize models/fairytale story.gguf --type int4 --importance story.imatrix");
    return [c] { return (*c)(); };
}

}  // namespace

extern const Command calibrate_command;
const Command calibrate_command{"calibrate", "Collect activation statistics for better quantization", setup};

}  // namespace nibble
