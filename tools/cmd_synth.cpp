// nibble synth: a model of a known shape with random weights, as a GGUF file that runs.
// Its text is noise; its speed and size are those of the real one.
#include <cstdio>

#include "src/model/vocab_file.h"
#include "tools/options.h"
#include "tools/shape_options.h"

namespace nibble {
namespace {

struct SynthCommand {
    ShapeOptions shape;
    ModelOption tokenizer;
    std::string output;
    int32_t threads = 0;
    bool force = false;

    Result<int> operator()() const {
        NIBBLE_TRY(check_destination(output, force));
        const TensorFile source = NIBBLE_TRY(TensorFile::open(NIBBLE_TRY(tokenizer.path())));
        Vocab vocab = NIBBLE_TRY(read_vocab(source));
        const ModelShape known = NIBBLE_TRY(shape.shape());
        ThreadPool pool(threads);
        const uint64_t bytes =
            NIBBLE_TRY(write_synthetic(known, shape.type, shape.seed, std::move(vocab), output, pool));
        std::printf("%s: %s with random weights as %s, %.1f MB\n", output.c_str(), shape.name.c_str(),
                    shape.type.c_str(), static_cast<double>(bytes) / 1e6);
        return exit_ok;
    }
};

std::function<Result<int>()> setup(Flags& flags) {
    auto c = std::make_shared<SynthCommand>();
    c->shape.add(flags);
    c->shape.add_seed(flags);
    c->shape.add_n_ctx(flags);
    flags.find("--shape")->required();
    flags.value("-o,--output", c->output, "GGUF file to write").required().type_name("FILE");
    flags.value("--tokenizer", c->tokenizer.given, "model whose tokenizer is used [the bundled model]")
        .type_name("MODEL");
    flags.value("-t,--threads", c->threads, "threads [every core]").range(1, 1024);
    flags.on("--force", c->force, "replace an existing file");
    flags.examples(
        "  nibble synth --shape llama-3.2-1b --type int4 -o random-1b.gguf\n"
        "  nibble synth --shape llama-3.1-8b --layers 4 --type bf16 -o part.gguf");
    return [c] { return (*c)(); };
}

}  // namespace

extern const Command synth_command;
const Command synth_command{"synth", "Write a model with random weights", setup};

}  // namespace nibble
