// Shared flags: the bundled model's place, types, prompts, sampling parameters.
// Values are checked here or by the module they belong to, with the flag's name in the message.
#include "tools/options.h"

#include <algorithm>
#include <random>

#include <unistd.h>

#include "ggml/base/lower_case.h"
#include "ggml/base/mapped_file.h"
#include "ggml/cpu/cpu_backend.h"
#include "ggml/file/gguf_reader.h"
#include "tools/settings.h"
#include "tools/standard_input.h"

namespace nibble {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view bundled_model = "fairytale-int8.gguf";
constexpr const char* rare_group = "More about the model";

Result<Type> cache_type(std::string_view stated, std::string_view flag) {
    const std::string name = lower_case(stated);
    const auto type = name == "int8"   ? std::optional(Type::q8_0)
                      : name == "int4" ? std::optional(Type::q4_0)
                                       : find_type(name);
    if (!type)
        return Error{ErrorCode::invalid_argument, std::string(flag), cat("'", name, "' is not a type"),
                     "use f32, f16, bf16, int8 or int4"};
    return *type;
}

// Whether its text is a list, separated by commas.
bool is_list(const Param& p) {
    using P = SamplerParams;
    return std::holds_alternative<std::string P::*>(p.field) ||
           std::holds_alternative<std::vector<std::string> P::*>(p.field) ||
           std::holds_alternative<std::vector<LogitBias> P::*>(p.field);
}

}  // namespace

std::vector<fs::path> data_folders(std::string_view name, std::string_view in_source) {
    std::vector<fs::path> folders;
    std::error_code ec;
    const fs::path exe = fs::read_symlink("/proc/self/exe", ec);
    if (!ec) folders.push_back(exe.parent_path().parent_path() / "share/nibble" / name);
    folders.emplace_back(in_source);
    return folders;
}

Result<void> check_destination(const fs::path& path, bool force) {
    if (const auto split = parse_split_name(path.filename().string()); split && split->count > 1)
        return Error{ErrorCode::invalid_argument, path.string(),
                     cat("is the name of part ", split->number, " of ", split->count,
                         " of a model, and one whole file is written"),
                     cat("call it ", (path.parent_path() / cat(split->prefix, ".gguf")).string())};
    if (std::error_code ec; !force && fs::is_regular_file(path, ec))
        return Error{ErrorCode::invalid_argument, path.string(), "exists already", "--force overwrites it"};
    return {};
}

void ModelOption::add(Flags& flags) {
    flags.value("-m,--model", given, "a name, GGUF file or Hugging Face folder [bundled]")
        .type_name("MODEL")
        .group("Model");
}

Flag ModelOption::add_subject(Flags& flags) {
    const Flag subject = flags.value("model", given, "the same as -m").type_name("MODEL");
    add(flags);
    flags.find("--model")->excludes(subject);
    return subject;
}

Result<fs::path> ModelOption::path() const {
    if (!given.empty()) return resolve_model(given);
    for (const fs::path& folder : data_folders("models", NIBBLE_SOURCE_MODELS))
        if (std::error_code ec; fs::exists(folder / bundled_model, ec)) return folder / bundled_model;
    return Error{ErrorCode::not_found, std::string(bundled_model), "the bundled model is not installed",
                 "give one with -m"};
}

void RunOptions::add(Flags& flags) {
    flags.value("-t,--threads", threads, "threads [one per physical core]").range(1, 1024).group("Model");
    const std::string more = rare_group, types = "f32|f16|bf16|int8|int4";
    flags.value("--kv-type", kv_type, "type of the KV cache [f16]").type_name(types).group(more);
    flags.value("--k-type", k_type, "of the cached keys alone").type_name(types).group(more);
    flags.value("--v-type", v_type, "of the cached values alone").type_name(types).group(more);
    flags.value("--isa", isa, "instruction set of the kernels [the best of this machine]")
        .type_name("ISA")
        .group(more);
    flags.on("--no-pack", no_pack, "run from the mapped file: half the memory, slower").group(more);
    flags
        .on("--deterministic", deterministic,
            "the same text whatever --batch and other requests do; otherwise more rows than 32 on a "
            "processor "
            "with AMX, or than eight on a GPU, may have an arithmetic of their own")
        .group(more);
    device.add(flags);
}

void RunOptions::add_ctx(Flags& flags, const std::string& help) {
    flags.value("-c,--ctx", ctx, help).range(1, 1 << 30).group("Model");
}

void RunOptions::add_batch(Flags& flags) {
    flags.value("--batch", batch, "prompt tokens per step [512; 2048 on a large GPU with all layers]")
        .range(1, 1 << 20)
        .group(rare_group);
}

void RunOptions::add_check_nan(Flags& flags) {
    flags.on("--check-nan", check_nan, "stop at the first NaN or infinity and name its layer")
        .group(rare_group);
}

void RunOptions::add_all(Flags& flags) {
    add_ctx(flags, "tokens of prompt and answer [model's, at most 8192]");
    add(flags);
    add_batch(flags);
    draft_tokens = -1;
    flags
        .value("--draft-tokens", draft_tokens,
               "tokens guessed and checked per step: faster, the same text [12; on a GPU with a draft model "
               "only]")
        .range(0, most_draft_tokens)
        .group(rare_group);
    flags
        .value("--draft-model", draft_model,
               "a smaller model with the same tokens, or an assistant of the model, that guesses, too")
        .type_name("MODEL")
        .group(rare_group);
    add_check_nan(flags);
}

Result<EngineConfig> RunOptions::config() const {
    EngineConfig c;
    c.runner.ctx = ctx;
    c.runner.batch_tokens = batch;
    c.check_nan = check_nan;
    c.draft_tokens = draft_tokens;
    if (!draft_model.empty() && draft_tokens != 0) c.draft_model = NIBBLE_TRY(resolve_model(draft_model));
    c.runner.gpu_layers = device.gpu_layers;
    if (!kv_type.empty()) c.runner.k_type = c.runner.v_type = NIBBLE_TRY(cache_type(kv_type, "--kv-type"));
    if (!k_type.empty()) c.runner.k_type = NIBBLE_TRY(cache_type(k_type, "--k-type"));
    if (!v_type.empty()) c.runner.v_type = NIBBLE_TRY(cache_type(v_type, "--v-type"));
    return c;
}

Result<std::vector<std::unique_ptr<Backend>>> RunOptions::backends(std::function<bool()> stop) const {
    std::vector<std::unique_ptr<Backend>> list;
    CpuOptions options;
    options.threads = threads;
    options.isa = isa;
    options.pack = !no_pack;
    options.deterministic = deterministic;
    options.stop = std::move(stop);
    list.push_back(NIBBLE_TRY(CpuBackend::create(options)));
    NIBBLE_TRY(device.append(list, threads, deterministic));
    return list;
}

std::string placement_text(const MemoryForecast& model, std::span<Backend* const> backends) {
    if (model.gpu_layers == 0) return backends[0]->device().description;
    const std::string gpu = backends[1]->device().description;
    if (model.gpu_layers == model.n_layers) return gpu;
    return cat(gpu, ": ", model.gpu_layers, " of ", model.n_layers, " layers and the output; ",
               backends[0]->device().description, ": the others");
}

std::string beyond_training_text(int32_t n_ctx_train) {
    return cat("the model was made for ", n_ctx_train,
               " tokens of context: what lies beyond them gets worse");
}

void print_notes(Engine& engine, const RunOptions& options, std::span<Backend* const> backends) {
    for (const std::string& note : engine.runner().model().notes) print_note(note);
    if (const int32_t made_for = engine.spec().n_ctx_train; made_for > 0 && engine.ctx() > made_for)
        print_note(beyond_training_text(made_for));
    if (const size_t left = engine.runner().left_bytes())
        print_note(cat(left >> 20,
                       " MiB of the weights are used from the file, which is slower: packed they do "
                       "not fit the memory"));
    const MemoryForecast& memory = engine.runner().memory();
    if (backends.size() > 1 && options.device.gpu_layers < 0 && memory.gpu_layers < memory.n_layers)
        print_note(cat(memory.gpu_layers, " of ", memory.n_layers, " layers fit the free memory of ",
                       backends[1]->device().description, "; the processor runs the others"));
}

std::vector<Backend*> pointers(const std::vector<std::unique_ptr<Backend>>& backends) {
    std::vector<Backend*> list;
    for (const auto& b : backends) list.push_back(b.get());
    return list;
}

void SamplingOptions::add(Flags& flags) {
    constexpr std::string_view common[] = {"temperature", "top_k", "top_p", "min_p", "seed"};
    for (const Param& p : param_table()) {
        const std::string name(p.flag), help(p.help);
        const auto take = [this, key = p.key](const std::string& text) { given.emplace_back(key, text); };
        const Flag flag =
            is_list(p) ? flags.joined_value(name, take, help) : flags.each_value(name, take, help);
        flag.show_default(default_text(p))
            .type_name("X")
            .group(std::ranges::find(common, p.key) == std::end(common) ? "More sampling" : "Sampling");
    }
}

Result<SamplerParams> SamplingOptions::params() const {
    SamplerParams p;
    for (const auto& [key, text] : given)
        if (const auto done = set(p, key, text); !done) {
            Error e = done.error();
            e.where = find_param(key)->flag;  // as the user wrote it
            return e;
        }
    if (!p.seed) p.seed = std::random_device{}();
    return p;
}

void WindowOptions::add(Flags& flags) {
    flags.value("-f,--file", file, "the text").required().type_name("FILE");
    flags.value("--windows", most, "at most this many windows of --ctx tokens").range(1, 1 << 30);
}

void WindowOptions::set_sizes(RunnerConfig& config) const {
    if (config.ctx == 0) config.ctx = 512;
    config.batch_tokens = config.max_outputs = config.ctx;
}

Result<std::vector<Window>> WindowOptions::cut(const Engine& engine) const {
    const auto ctx = static_cast<size_t>(engine.ctx()), step = stride ? static_cast<size_t>(stride) : ctx;
    if (ctx < 2)
        return Error{ErrorCode::invalid_argument, "--ctx", "a window of one token predicts nothing",
                     "give 2 or more"};
    if (step > ctx)
        return Error{ErrorCode::invalid_argument, "--stride",
                     cat(step, " is longer than the window of ", ctx), ""};
    const std::string text = NIBBLE_TRY(read_input(file));
    const Vocab& vocab = engine.tokenizer().vocab();
    const auto tokens = engine.tokenizer().encode(text, {false, false});
    auto windows = cut_windows(tokens, ctx, step, vocab.add_bos ? vocab.bos : std::nullopt);
    if (most && windows.size() > static_cast<size_t>(most)) windows.resize(static_cast<size_t>(most));
    if (windows.empty())
        return Error{ErrorCode::invalid_argument, input_name(file),
                     cat("has ", tokens.size(), " tokens, a window needs ", ctx),
                     "give a longer text or a smaller --ctx"};
    return windows;
}

}  // namespace nibble
