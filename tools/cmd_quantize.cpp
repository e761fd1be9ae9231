// nibble quantize: a Hugging Face folder or a GGUF file into a GGUF file with smaller weights.
// The destination appears only when it is complete.
#include <algorithm>
#include <chrono>
#include <cstdio>

#include <nlohmann/json.hpp>
#include <unistd.h>

#include "ggml/cpu/cpu_backend.h"
#include "ggml/file/quote.h"
#include "src/eval/moments.h"
#include "src/model/vocab_file.h"
#include "src/quant/convert.h"
#include "src/text/pattern.h"
#include "tools/json_text.h"
#include "tools/options.h"
#include "tools/settings.h"
#include "tools/status_line.h"

namespace nibble {
namespace fs = std::filesystem;
namespace {

struct QuantizeCommand {
    std::string source, destination, type, importance, output_type, embedding_type;
    std::vector<std::string> only, keep;
    WindowOptions text;  // that the weights are rounded for
    int32_t ctx = 0, threads = 0;
    bool force = false, dry_run = false, json = false, no_fallback = false, no_search = false;

    Result<int> operator()() const;
    Result<std::vector<TensorReport>> run(const OpenedModel& model, const ConvertPlan& plan,
                                          ConvertOptions how) const;
    // What is said of an option that is for types with a search, where no matrix gets one.
    std::string changes_nothing() const {
        return cat("changes nothing: no matrix gets a type that it could round otherwise (", type, ")");
    }
    Result<PlanOptions> plan_options(bool tied) const;
    Result<void> check_importance(const Importance& weights, const ConvertPlan& plan) const;
    void print_plan(const ConvertPlan& plan) const;
    void print_report(const ConvertPlan& plan, const std::vector<TensorReport>& reports,
                      double seconds) const;
};

std::string writable_types() {
    std::string list = "int8";
    for (const std::string_view name : recipe_names())
        if (const auto type = find_type(name); type && info(*type).encode && info(*type).decode)
            list += cat(", ", name);
    return list;
}

Result<Type> writable_type(std::string_view name, std::string_view flag) {
    const auto type = find_type(name == "int8" ? "q8_0" : name);
    if (type && info(*type).encode && info(*type).decode) return *type;
    return Error{ErrorCode::invalid_argument, std::string(flag),
                 cat("'", name, "' is not a type that can be written"), cat("use ", writable_types())};
}

// A tensor-name pattern, and the type it stands for (none: the source's).
struct Rule {
    Pattern pattern;
    std::optional<Type> type;
};

Result<std::vector<Rule>> parse_rules(const std::vector<std::string>& texts, std::string_view flag) {
    std::vector<Rule> rules;
    for (const std::string& text : texts) {
        const size_t equals = text.rfind('=');
        if (equals == 0 || text.empty())
            return Error{ErrorCode::invalid_argument, std::string(flag), "names no tensor",
                         "an unset variable? . stands for every tensor"};
        auto pattern = Pattern::create(text.substr(0, equals));
        if (!pattern) {
            Error e = pattern.error();
            e.where = std::string(flag);
            return e;
        }
        Rule r{std::move(*pattern), {}};
        if (equals != std::string::npos) r.type = NIBBLE_TRY(writable_type(text.substr(equals + 1), flag));
        rules.push_back(std::move(r));
    }
    return rules;
}

Result<PlanOptions> QuantizeCommand::plan_options(bool tied) const {
    PlanOptions o{NIBBLE_TRY(find_recipe(type)), !no_fallback, {}};
    auto& types = o.recipe.types;
    if (!output_type.empty())
        types[static_cast<size_t>(Role::output)] = NIBBLE_TRY(writable_type(output_type, "--output-type"));
    if (!embedding_type.empty()) {
        const Role role = tied ? Role::output : Role::embedding;  // a tied embedding is both
        const Type wanted = NIBBLE_TRY(writable_type(embedding_type, "--embedding-type"));
        if (tied && !output_type.empty() && types[static_cast<size_t>(role)] != wanted)
            return Error{ErrorCode::invalid_argument, "--embedding-type",
                         cat(embedding_type, " contradicts --output-type ", output_type,
                             ": this model has one matrix for both"),
                         "leave one of them out"};
        types[static_cast<size_t>(role)] = wanted;
    }
    const auto kept = NIBBLE_TRY(parse_rules(keep, "--keep")),
               chosen = NIBBLE_TRY(parse_rules(only, "--only"));
    o.override_type = [kept, chosen](const std::string& name, Type source) -> std::optional<Type> {
        for (const Rule& r : kept)
            if (r.pattern.matches(name)) return r.type.value_or(source);
        if (chosen.empty()) return {};
        for (const Rule& r : chosen)
            if (r.pattern.matches(name)) return r.type;
        return source;
    };
    return o;
}

// A pattern that no matrix has the name of would be without effect, unnoticed.
Result<void> check_used(const std::vector<std::string>& texts, std::string_view flag,
                        const ConvertPlan& plan) {
    const std::vector<Rule> rules = NIBBLE_TRY(parse_rules(texts, flag));
    for (size_t i = 0; i < rules.size(); ++i)
        if (std::ranges::none_of(plan.tensors, [&](const TensorPlan& p) {
                return p.is_matrix() && rules[i].pattern.matches(p.name);
            }))
            return Error{ErrorCode::invalid_argument, std::string(flag),
                         cat("'", texts[i], "' is the name of no matrix"), "--dry-run lists the names"};
    return {};
}

// Another model's would change nothing, and go unnoticed. An embedding that only looks up has no inputs.
Result<void> QuantizeCommand::check_importance(const Importance& weights, const ConvertPlan& plan) const {
    std::vector<std::string> names = matrices_with_search(plan);
    if (names.empty()) print_note(cat("--importance ", changes_nothing()));
    const bool tied =
        std::ranges::find(plan.tensors, "output.weight", &TensorPlan::name) == plan.tensors.end();
    std::erase_if(names, [&](const std::string& name) { return role_of(name, tied) == Role::embedding; });
    const size_t all = names.size();
    std::erase_if(names, [&](const std::string& name) { return weights.tensors.contains(name); });
    if (names.empty()) return {};
    if (names.size() == all)
        return Error{ErrorCode::invalid_argument, "--importance",
                     cat(importance, " knows no matrix of this model, such as ", names[0]),
                     "it was made from another model"};
    print_note(cat(names.size(), " of ", all, " matrices have no importance (", names[0],
                   names.size() > 1 ? ", ...)" : ")"));
    return {};
}

double bits_per_weight(const ConvertPlan& plan) {
    return 8.0 * static_cast<double>(plan.bytes) / static_cast<double>(std::max<uint64_t>(1, plan.elements));
}

double mib(uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

void QuantizeCommand::print_plan(const ConvertPlan& plan) const {
    if (json) {
        nlohmann::ordered_json j;
        for (const TensorPlan& p : plan.tensors)
            j["tensors"].push_back({{"name", p.name},
                                    {"from", p.source->type_name()},
                                    {"to", info(p.type).name},
                                    {"bytes", p.bytes}});
        j["source_bytes"] = plan.source_bytes;
        j["bytes"] = plan.bytes;
        j["bits_per_weight"] = bits_per_weight(plan);
        j["substitutions"] = plan.substitutions;
        std::printf("%s\n", json_text(j, 1).c_str());
        return;
    }
    for (const TensorPlan& p : plan.tensors)
        std::printf("%-44s %-6s -> %-6s %10.3f MiB\n", printable(p.name).c_str(),
                    std::string(p.source->type_name()).c_str(), std::string(info(p.type).name).c_str(),
                    mib(p.bytes));
    std::printf("%.1f MiB -> %.1f MiB, %.3f bits per weight\n", mib(plan.source_bytes), mib(plan.bytes),
                bits_per_weight(plan));
}

void QuantizeCommand::print_report(const ConvertPlan& plan, const std::vector<TensorReport>& reports,
                                   double seconds) const {
    const double rate = seconds > 0 ? static_cast<double>(plan.source_bytes) / 1e9 / seconds : 0;
    if (json) {
        nlohmann::ordered_json j;
        j["destination"] = destination;
        j["type"] = type;
        j["source_bytes"] = plan.source_bytes;
        j["bytes"] = plan.bytes;
        j["bits_per_weight"] = bits_per_weight(plan);
        j["seconds"] = seconds;
        j["gb_per_second"] = rate;
        j["substitutions"] = plan.substitutions;
        for (const TensorReport& r : reports)
            j["tensors"].push_back({{"name", r.name},
                                    {"from", info(r.from).name},
                                    {"to", info(r.to).name},
                                    {"relative_error", r.relative_error},
                                    {"importance", r.weighted},
                                    {"calibrated", r.with_feedback}});
        std::printf("%s\n", json_text(j, 1).c_str());
        return;
    }
    std::vector<TensorReport> worst = reports;
    std::ranges::sort(worst, std::greater{}, &TensorReport::relative_error);
    std::printf("%s: %.1f MiB -> %.1f MiB, %.3f bits per weight, %.2f s, %.3g GB/s of source\n",
                destination.c_str(), mib(plan.source_bytes), mib(plan.bytes), bits_per_weight(plan), seconds,
                rate);
    std::printf("largest relative errors\n");
    for (size_t i = 0; i < std::min<size_t>(5, worst.size()); ++i)
        std::printf("  %-44s %-6s %.5f\n", printable(worst[i].name).c_str(),
                    std::string(info(worst[i].to).name).c_str(), worst[i].relative_error);
}

// NVFP4's scales end where small weights begin, and no factor of the tensor is written that would lift them.
void warn_of_small_weights(const std::vector<TensorReport>& reports) {
    constexpr double most = 0.15;  // about 0.1 is usual
    const TensorReport* worst = nullptr;
    size_t n = 0;
    for (const TensorReport& r : reports) {
        if (r.to != Type::nvfp4 || r.from == Type::nvfp4 || r.relative_error <= most) continue;
        if (!worst || r.relative_error > worst->relative_error) worst = &r;
        ++n;
    }
    if (!worst) return;
    std::fprintf(stderr,
                 "nibble: warning: %zu of the matrices are too small for the scales of nvfp4 (relative error "
                 "%.2f in %s): mxfp4 has scales for them\n",
                 n, worst->relative_error, printable(worst->name).c_str());
}

// A line that is redrawn on a terminal; elsewhere one per tenth.
class ProgressLine {
  public:
    void operator()(const ConvertProgress& p) {
        const double share = static_cast<double>(p.source_bytes_done) /
                             static_cast<double>(std::max<uint64_t>(1, p.source_bytes));
        const double seconds =
            std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
        const double rate = seconds > 0 ? mib(p.source_bytes_done) / seconds : 0,
                     left = share > 0 ? seconds * (1 - share) / share : 0;
        if (line_.possible()) {
            char text[64];
            std::snprintf(text, sizeof text, "%3.0f %%  %5.0f MiB/s  %4.0f s left  ", 100 * share, rate,
                          left);
            line_.show(cat(text, p.tensor));
            if (p.source_bytes_done == p.source_bytes) line_.clear();
        } else if (share >= next_) {
            std::fprintf(stderr, "%3.0f %%  %.0f MiB/s\n", 100 * share, rate);
            next_ += 0.1;
        }
    }

  private:
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
    StatusLine line_;
    double next_ = 0.1;
};

// The model that runs the text, and what it is asked about the inputs of its matrices.
class Calibration {
  public:
    static Result<std::unique_ptr<Calibration>> start(const QuantizeCommand& command,
                                                      const std::filesystem::path& model,
                                                      const ConvertPlan& plan, ThreadPool& pool);
    MomentMeter& meter() { return *meter_; }

  private:
    std::vector<std::unique_ptr<Backend>> backends_;
    std::optional<Engine> engine_;
    std::vector<Window> windows_;
    std::optional<MomentMeter> meter_;
};

Result<std::unique_ptr<Calibration>> Calibration::start(const QuantizeCommand& command,
                                                        const std::filesystem::path& model,
                                                        const ConvertPlan& plan, ThreadPool& pool) {
    MomentMeter::Config measured{matrices_with_search(plan)};
    if (measured.order.empty())
        return Error{ErrorCode::invalid_argument, "--calibrate", command.changes_nothing(),
                     "leave it out, or take a smaller type"};
    auto c = std::make_unique<Calibration>();
    RunOptions options;
    options.ctx = command.ctx;
    options.threads = command.threads;
    c->backends_ = NIBBLE_TRY(options.backends());
    EngineConfig config = NIBBLE_TRY(options.config());
    command.text.set_sizes(config.runner);
    config.runner.max_outputs = Scorer::outputs_of_reading(config.runner.ctx);
    c->engine_.emplace(NIBBLE_TRY(Engine::load(model, config, pointers(c->backends_))));
    c->windows_ = NIBBLE_TRY(command.text.cut(*c->engine_));
    // Half of what is left: the conversion wants some too, and the file it reads is better in memory.
    measured.memory = c->backends_[0]->device().free_bytes / 2;
    measured.progress = [line = std::make_shared<StatusLine>()](size_t window, size_t windows) {
        if (window == windows)
            line->clear();
        else if (line->possible())
            line->show(cat("reading the text, window ", window + 1, " of ", windows));
        else if (window == 0)
            std::fprintf(stderr, "reading the text, %zu windows\n", windows);
    };
    c->meter_.emplace(*c->engine_, c->windows_, pool, std::move(measured));
    return c;
}

// What the loader would say of the model: a weight that the source lacks, the file would lack, too. Of a
// guest it says nothing without the model that it guesses for.
Result<void> check_loads(const OpenedModel& model) {
    if (model.spec.n_backbone > 0 || model.spec.block_guess) return {};
    CpuOptions one;
    one.threads = 1;
    const auto cpu = NIBBLE_TRY(CpuBackend::create(one));
    Backend* const list[] = {cpu.get()};
    EngineConfig config;
    config.runner.ctx = 64;
    config.draft_tokens = -1;  // as run has it by default
    settle_guesses(config, 1);
    NIBBLE_TRY(ModelRunner::forecast(NIBBLE_TRY(TensorFile::open(model.file.path())), config.runner, list));
    return {};
}

Result<std::vector<TensorReport>> QuantizeCommand::run(const OpenedModel& model, const ConvertPlan& plan,
                                                       ConvertOptions how) const {
    auto vocab = read_vocab(model.file);
    // Who guesses in blocks has the tokens of another model.
    if (!vocab && vocab.error().code == ErrorCode::not_found && model.spec.block_guess) vocab = Vocab();
    if (!vocab) return vocab.error();
    NIBBLE_TRY(check_loads(model));
    ThreadPool pool(threads);
    std::unique_ptr<Calibration> calibration;
    if (!text.file.empty()) {
        calibration = NIBBLE_TRY(Calibration::start(*this, model.file.path(), plan, pool));
        how.feedback = &calibration->meter();
    }
    auto reports = NIBBLE_TRY(convert(model, *vocab, plan, destination, pool, how));
    if (calibration)
        for (const std::string& name : calibration->meter().left_out())
            print_note(cat(name, " is rounded without the text: the sums of its inputs exceed the memory"));
    return reports;
}

Result<int> QuantizeCommand::operator()() const {
    if (!dry_run) NIBBLE_TRY(check_destination(destination, force));
    const auto model =
        NIBBLE_TRY(open_model(NIBBLE_TRY(TensorFile::open(NIBBLE_TRY(resolve_model(source))))));
    const PlanOptions options = NIBBLE_TRY(plan_options(!model->tensors.contains("output.weight")));
    const ConvertPlan plan = NIBBLE_TRY(plan_conversion(*model, options));
    NIBBLE_TRY(check_used(keep, "--keep", plan));
    NIBBLE_TRY(check_used(only, "--only", plan));
    for (const std::string& note : model->notes) print_note(note);
    for (const std::string& line : plan.substitutions)
        std::fprintf(stderr, "nibble: substituted %s\n", printable(line, max_message).c_str());
    if (!plan.lossy_sources.empty())
        std::fprintf(
            stderr,
            "nibble: warning: %zu tensors of the source are quantized already (%s, ...): their loss stays\n",
            plan.lossy_sources.size(), printable(plan.lossy_sources[0]).c_str());
    Importance weights;
    if (!importance.empty()) {
        weights = NIBBLE_TRY(Importance::read(importance));
        NIBBLE_TRY(check_importance(weights, plan));
    }
    if (dry_run) {
        print_plan(plan);
        return exit_ok;
    }
    ProgressLine progress;
    ConvertOptions how;
    how.search = !no_search;
    how.importance = importance.empty() ? nullptr : &weights;
    how.progress = [&](const ConvertProgress& p) { progress(p); };
    const auto start = std::chrono::steady_clock::now();
    const auto reports = NIBBLE_TRY(run(*model, plan, how));
    warn_of_small_weights(reports);
    print_report(plan, reports,
                 std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    return exit_ok;
}

std::function<Result<int>()> setup(Flags& flags) {
    auto c = std::make_shared<QuantizeCommand>();
    c->text.most = 128;
    std::string known;
    for (const std::string_view name : recipe_names()) known += cat(known.empty() ? "" : "|", name);
    flags.value("source", c->source, "Hugging Face folder or GGUF file").required().type_name("MODEL");
    flags.value("destination", c->destination, "GGUF file to write (not needed with --dry-run)")
        .type_name("FILE");
    flags.value("--type", c->type, "type of the weights").required().type_name(known);
    flags
        .value("--importance", c->importance,
               "file of `nibble calibrate`: weighs errors by what the model sees")
        .type_name("FILE");
    flags.value("--calibrate", c->text.file, "a text: rounds for the least loss on it (GPTQ), slowly")
        .excludes("--importance")
        .type_name("FILE");
    const auto of_text = [&](const std::string& flag, int32_t& to, const std::string& help) {
        flags.value(flag, to, help).range(1, 1 << 30).needs("--calibrate").group("More about the text");
    };
    of_text("--windows", c->text.most, "at most this many windows of it [128]");
    of_text("-c,--ctx", c->ctx, WindowOptions::ctx_help);
    flags.value("--output-type", c->output_type, "type of the output matrix (a tied embedding is one)")
        .type_name("TYPE");
    flags.value("--embedding-type", c->embedding_type, "type of the token embedding").type_name("TYPE");
    const auto list = [&](std::string flag, std::vector<std::string>& to, std::string help) {
        flags.value(flag, to, help).once_each();
    };
    list("--keep", c->keep, "REGEX[=TYPE]: tensors of this name get the type, or stay as they are");
    list("--only", c->only, "REGEX[=TYPE]: convert these tensors only; the others stay as they are");
    flags.on("--no-fallback", c->no_fallback, "fail instead of substituting a type that does not fit a row");
    flags.on("--no-search", c->no_search, "plain rounding: faster, more error")
        .excludes("--importance")
        .excludes("--calibrate");
    flags.on("--dry-run", c->dry_run, "print what would be written, exactly, and write nothing");
    flags.on("--json", c->json, "the result as JSON");
    flags.on("--force", c->force, "overwrite the destination");
    flags.value("-t,--threads", c->threads, "threads [one per physical core]").range(1, 1024);
    flags.examples(
        "  nibble quantize models/fairytale story.gguf --type int4\n"
        "  nibble quantize big.gguf small.gguf --type nf4 --keep attn_v=q6_k");
    return [c]() -> Result<int> {
        if (!c->dry_run && c->destination.empty())
            return Error{ErrorCode::invalid_argument, "destination", "is missing",
                         "give the GGUF file to write"};
        return (*c)();
    };
}

}  // namespace

extern const Command quantize_command;
const Command quantize_command{"quantize", "Convert a model to GGUF, with smaller weights", setup};

}  // namespace nibble
