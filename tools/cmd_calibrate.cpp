// nibble calibrate: runs a text and writes what each matrix's columns are multiplied by.
// The file makes `nibble quantize --importance` spend its precision where the model needs it.
#include <cstdio>

#include "ggml/base/cat.h"
#include "ggml/base/mapped_file.h"
#include "src/eval/calibrate.h"
#include "tools/options.h"
#include "tools/status_line.h"

namespace nibble {
namespace {

struct CalibrateCommand {
    ModelOption model;
    RunOptions options;
    WindowOptions text;
    std::string out;
    bool force = false;
    Result<int> operator()() const;
};

Result<int> CalibrateCommand::operator()() const {
    NIBBLE_TRY(check_destination(out, force));
    (void)NIBBLE_TRY(AtomicFile::create(out));  // not after hours of work that the file cannot be written
    const auto backends = NIBBLE_TRY(options.backends());
    const auto list = pointers(backends);
    EngineConfig config = NIBBLE_TRY(options.config());
    text.set_sizes(config.runner);
    Engine engine = NIBBLE_TRY(Engine::load(NIBBLE_TRY(model.path()), config, list));
    print_notes(engine, options, list);
    const auto cut = NIBBLE_TRY(text.cut(engine));
    Scorer scorer(engine);
    ImportanceObserver observer;
    StatusLine status;
    for (size_t i = 0; i < cut.size(); ++i) {
        NIBBLE_TRY(scorer.logits(cut[i], &observer));
        NIBBLE_TRY(observer.check(engine.runner().program()));
        status.show(cat(i + 1, "/", cut.size()));
    }
    status.clear();
    Importance importance;
    importance.dataset = std::filesystem::path(text.file).filename().string();
    importance.chunks = static_cast<uint32_t>(cut.size());
    importance.chunk_tokens = static_cast<uint32_t>(engine.ctx());
    NIBBLE_TRY(observer.finish(engine.runner().program(), importance));
    NIBBLE_TRY(importance.write(out));
    std::printf("%s: %zu matrices, %zu windows of %d tokens\n", out.c_str(), importance.tensors.size(),
                cut.size(), engine.ctx());
    return exit_ok;
}

std::function<Result<int>()> setup(Flags& flags) {
    auto c = std::make_shared<CalibrateCommand>();
    c->model.add(flags);
    c->text.add(flags);
    flags.value("-o,--output", c->out, "the importance file to write").required().type_name("FILE");
    flags.on("--force", c->force, "overwrite an existing file");
    c->options.add_ctx(flags, WindowOptions::ctx_help);
    c->options.add(flags);
    flags.examples(
        "  nibble calibrate -m models/fairytale -f text.txt -o story.imatrix\n"
        "  nibble quantize models/fairytale s.gguf --type int4 --importance story.imatrix");
    return [c] { return (*c)(); };
}

}  // namespace

extern const Command calibrate_command;
const Command calibrate_command{"calibrate", "Collect activation statistics for better quantization", setup};

}  // namespace nibble
