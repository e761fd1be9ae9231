// nibble run: answers one prompt, or many in one load, and exits: text to stdout, statistics to stderr.
// Ctrl-C ends the answers, flushes what was generated and exits with 130; SIGTERM and SIGHUP do the same and
// then kill as usual.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <map>

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/engine/prompt_cache.h"
#include "tools/constraint_options.h"
#include "tools/decoding_options.h"
#include "tools/repl/terminal.h"
#include "tools/run_output.h"
#include "tools/run_prompts.h"
#include "tools/status_line.h"
#include "tools/template_option.h"

namespace nibble {
namespace {

// The signal that ends the answers; a handler can reach nothing else.
volatile std::sig_atomic_t interrupted = 0;

// A second one, whichever it is, does not wait for the step to end.
void on_end(int signal) {
    interrupted = signal;
    for (const int s : {SIGINT, SIGTERM, SIGHUP}) std::signal(s, SIG_DFL);
}

// What is ignored stays so: nohup, or a shell's background job and Ctrl-C.
void end_in_order() {
    for (const int s : {SIGINT, SIGTERM, SIGHUP})
        if (!is_ignored(s)) std::signal(s, on_end);
}

using Clock = RunAnswer::Clock;

// Whether both are one terminal or one file, as after 2>&1.
bool same_stream(int a, int b) {
    struct stat x {
    }, y{};
    return ::fstat(a, &x) == 0 && ::fstat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

struct RunCommand {
    ModelOption model;
    PromptSource prompts;
    TemplateOption chat_template;
    RunOptions options;
    SamplingOptions sampling;
    ConstraintOptions constraint;
    DecodingOptions decoding;
    int64_t n = -1;
    int32_t logprobs = -1, parallel = 4;
    std::vector<std::string> stop;
    std::string prompt_cache;
    bool chat = false, raw = false, quiet = false, ignore_eos = false, special = false, echo = false;
    bool json = false, jsonl = false, hide_thinking = false;

    Result<int> operator()() const;
    bool applies_template(const Tokenizer& tokenizer) const;
    Result<void> submit_all(Engine& engine, const std::filesystem::path& path,
                            const std::vector<Conversation>& conversations, const Request& base,
                            PromptCache* cache, RunOutput& output) const;
    Result<bool> generate(Engine& engine, RunOutput& output, bool& reading) const;
    void end_line(const RunOutput& output) const;
    void print_statistics(const RunOutput& output, size_t allocated, LoadTime load, double wall,
                          const SamplerParams& params) const;
};

bool RunCommand::applies_template(const Tokenizer& tokenizer) const {
    if (raw || special) return false;
    return chat || !chat_template.given.empty() || tokenizer.vocab().chat_template.has_value();
}

Result<void> RunCommand::submit_all(Engine& engine, const std::filesystem::path& path,
                                    const std::vector<Conversation>& conversations, const Request& base,
                                    PromptCache* cache, RunOutput& output) const {
    const Tokenizer& tokenizer = engine.tokenizer();
    std::optional<ChatFormat> format;
    if (applies_template(tokenizer)) {
        ModelFormat f = NIBBLE_TRY(chat_template.format(tokenizer, path));
        print_warnings(f.warnings);
        format = std::move(f.format);
        if (base.constraint)
            format->set_thinking({Thinking::Mode::off, {}});  // thoughts would not keep to it
    }
    const std::string chat_needed = raw       ? "leave out --raw"
                                    : special ? "leave out --special"
                                              : "add --chat: the model has no template of its own";
    if (!format && !prompts.system.empty())
        return Error{ErrorCode::invalid_argument, "--system", "has no place in a raw prompt", chat_needed};
    std::map<std::vector<Token>, uint64_t> seen;  // how often each prompt came: they draw different numbers
    for (const Conversation& c : conversations) {
        Request r = base;
        RunAnswer answer;
        r.stop = stop;
        if (format) {
            const RenderedPrompt rendered = NIBBLE_TRY(format->render(c));
            r.prompt = format->encode(rendered);
            r.stop.insert(r.stop.end(), format->stops().begin(), format->stops().end());
            r.stop_tokens = format->stop_tokens();
            answer.thinks = rendered.opens_thinking;
            if (echo)
                answer.before = rendered.text();
            else if (answer.thinks && !hide_thinking)
                answer.before = cat(think_open, "\n");
        } else {
            if (!c.system.empty() || c.messages.size() > 1)
                return Error{ErrorCode::invalid_argument, cat("prompt ", output.answers().size() + 1),
                             "is a conversation, which a raw prompt cannot be", chat_needed};
            EncodeOptions encode;
            encode.parse_special = special;
            r.prompt = tokenizer.encode(c.messages.back().content, encode);
            if (echo) answer.before = c.messages.back().content;
        }
        r.max_tokens = n;
        r.ignore_eos = ignore_eos;
        r.logprobs = logprobs;
        r.stream = seen[r.prompt]++;
        answer.prompt_tokens = static_cast<int64_t>(r.prompt.size());
        if (cache && output.answers().empty()) {
            NIBBLE_TRY(cache->load(r.prompt));
            r.kept_beginning = cache->parting();
        }
        answer.reused_tokens = engine.known(r.prompt);
        if (logprobs >= 0) answer.logprobs = nlohmann::ordered_json::array();
        answer.start = answer.first = answer.end = Clock::now();
        auto id = engine.submit(std::move(r));
        if (!id) {
            Error e = id.error();
            if (conversations.size() > 1)
                e.where = cat(e.where, " ", output.answers().size() + 1, " of ", conversations.size());
            return e;
        }
        answer.id = *id;
        output.add(std::move(answer));
    }
    return {};
}

// True when it was interrupted. `reading`: whether there is no text yet; a terminal is told how far the
// prompts are.
Result<bool> RunCommand::generate(Engine& engine, RunOutput& output, bool& reading) const {
    bool cancelled = false;
    StatusLine status(!quiet);
    int64_t read = 0, left = 0;
    for (const RunAnswer& a : output.answers()) left += a.prompt_tokens - a.reused_tokens;
    if (left > engine.runner().config().batch_tokens) status.show(reading_status(0, left));
    while (!engine.idle()) {
        if (interrupted && !std::exchange(cancelled, true))
            for (const RunAnswer& a : output.answers()) engine.cancel(a.id);
        const Result<StepReport> report = engine.step();
        status.clear();
        if (!report) {
            output.fail(report.error());
            (void)output.finish();  // the reason comes first
            end_line(output);
            return report.error();
        }
        for (const Event& e : report->events) output.take(e);
        NIBBLE_TRY(output.flush());
        read += report->prefill_tokens;
        reading = std::ranges::none_of(output.answers(), &RunAnswer::begun);
        if (reading && report->prefill_left > 0) status.show(reading_status(read, report->prefill_left));
    }
    NIBBLE_TRY(output.finish());
    return cancelled;
}

bool is_full(const RunOutput& output) {
    return std::ranges::count(output.answers(), Finish::context, &RunAnswer::finish) > 0;
}

// The text is all there is on stdout; where people or statistics follow, its last line is ended.
void RunCommand::end_line(const RunOutput& output) const {
    if (json || jsonl || output.ends_line()) return;
    if (::isatty(STDOUT_FILENO))
        std::fputc('\n', stdout), std::fflush(stdout);
    else if ((!quiet || is_full(output)) && same_stream(STDOUT_FILENO, STDERR_FILENO))
        std::fputc('\n', stderr);
}

// What cut the answer, and what to do; nothing where it came to its end.
struct Cut {
    std::string_view by, fix;
};
std::optional<Cut> cut_of(Finish finish, bool has_stops) {
    if (finish == Finish::length) return Cut{"at -n", "give a larger -n"};
    if (finish == Finish::context) return Cut{"at the context", "give a larger --ctx"};
    if (finish != Finish::stop) return {};
    if (has_stops) return Cut{"by a stop string", "give one that the answer cannot hold"};
    return Cut{"by the end of a turn, as the chat template has it", "use --raw"};
}

// An answer that was cut is no text of the language, unless it happens to be one already.
Result<void> check_ended(const RunOutput& output, const std::shared_ptr<Constraint>& constraint,
                         const Tokenizer& tokenizer, bool has_stops) {
    for (const RunAnswer& a : output.answers()) {
        const std::optional<Cut> cut = cut_of(a.finish, has_stops);
        if (!cut) continue;
        std::string text;
        for (const Token t : a.tokens) text += tokenizer.piece(t);
        // It ends before the tokens do; a space at the begin may not be shown.
        if (a.finish == Finish::stop) {
            const bool hidden = text.starts_with(' ') && !a.text.starts_with(' ');
            text.resize(std::min(text.size(), a.text.size() + hidden));
        }
        Matcher matcher(constraint);
        if (!matcher.accept(text) || !matcher.may_end())
            return Error{ErrorCode::unsupported, "constraint",
                         cat("the answer was cut ", cut->by, " before it was complete"),
                         std::string(cut->fix)};
    }
    return {};
}

void RunCommand::print_statistics(const RunOutput& output, size_t allocated, LoadTime load, double wall,
                                  const SamplerParams& params) const {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    const auto rate = [](int64_t count, double s) {
        return count > 0 && s > 0 ? static_cast<double>(count) / s : 0.0;
    };
    const RunAnswer& a = output.answers().front();
    int64_t prompt = 0, reused = 0, generated = 0, guessed = 0;
    for (const RunAnswer& x : output.answers()) {
        prompt += x.prompt_tokens;
        reused += x.reused_tokens;
        generated += static_cast<int64_t>(x.tokens.size());
        guessed += x.guessed;
    }
    const bool one = output.answers().size() == 1;
    std::string choice = cat("seed ", *params.seed);
    if (decoding.beams) choice = cat(decoding.beams, decoding.beams == 1 ? " beam" : " beams");
    if (decoding.best_of && one && !a.alternatives.empty())
        choice = cat("best of ", decoding.best_of, ": seed ", a.alternatives[0].seed);
    if (one && !a.alternatives.empty()) choice += cat(", score ", a.alternatives[0].score);
    std::fprintf(
        stderr,
        "prompt %lld tokens%s, %.1f tokens/s | generated %lld tokens%s, %.1f tokens/s | first token %.1f "
        "ms, load %.1f ms of which packing %.1f ms | cache and activations %.1f MiB, peak memory %.1f MiB | "
        "%s\n",
        static_cast<long long>(prompt), reused ? cat(", ", prompt - reused, " of them computed").c_str() : "",
        one ? a.prompt_rate() : rate(prompt - reused, wall), static_cast<long long>(generated),
        guessed ? cat(", ", guessed, " of them guessed").c_str() : "",
        one ? rate(generated - 1, a.decode_seconds()) : rate(generated, wall), a.prompt_seconds() * 1e3,
        load.total * 1e3, load.pack * 1e3, static_cast<double>(allocated) / (1 << 20),
        static_cast<double>(usage.ru_maxrss) / 1024, choice.c_str());
}

Result<int> RunCommand::operator()() const {
    const SamplerParams params = NIBBLE_TRY(sampling.params());
    print_warnings(conflicts(params));
    Request base;
    base.sampling = params;
    base.decoding = NIBBLE_TRY(decoding.decoding(params));
    if (logprobs >= 0 && !json && !jsonl)
        return Error{ErrorCode::invalid_argument, "--logprobs", "has no place in plain text",
                     "add --json or --jsonl"};
    if (std::ranges::find(stop, "") != stop.end())
        return Error{ErrorCode::invalid_argument, "--stop", "is empty",
                     "an unset variable? leave the option out"};
    EngineConfig config = NIBBLE_TRY(options.config());
    if (constraint.reads_standard_input() && (prompts.file == "-" || prompts.prompts == "-"))
        return Error{ErrorCode::invalid_argument, "standard input",
                     "cannot be the prompt and what it is to follow", "put one of them into a file"};
    std::optional<Grammar> grammar = NIBBLE_TRY(constraint.read());
    if (grammar && chat_template.thinking.mode == Thinking::Mode::on)
        return Error{ErrorCode::invalid_argument, "--think",
                     "has no place in an answer that follows a grammar",
                     "leave it out: such an answer comes without thoughts"};
    const std::vector<Conversation> conversations = NIBBLE_TRY(prompts.read());
    const std::string ahead = prompts.instruction();
    if (!prompt_cache.empty() && !quiet && !ahead.empty() &&
        conversations.front().messages.back().content.size() > ahead.size())
        std::fprintf(
            stderr,
            "nibble: --prompt-cache: -p stands before the document, so another question has nothing in "
            "common with this one (put it behind: echo QUESTION | nibble run -f DOCUMENT)\n");
    config.runner.max_sequences =
        static_cast<int32_t>(std::min(conversations.size(), static_cast<size_t>(parallel))) *
        base.decoding.width;
    if (base.decoding.kind != Decoding::Kind::sample) config.draft_tokens = 0;  // those never guess
    const Clock::time_point start = Clock::now();
    bool reading = true;  // a step of it may take seconds: it is not waited for
    const auto backends = NIBBLE_TRY(options.backends([&] { return reading && interrupted; }));
    const auto list = pointers(backends);
    const auto path = NIBBLE_TRY(model.path());
    Engine engine = NIBBLE_TRY(Engine::load(path, config, list));
    const LoadTime load{std::chrono::duration<double>(Clock::now() - start).count(),
                        engine.runner().pack_seconds()};
    print_notes(engine, options, list);

    nlohmann::ordered_json parameters = {{"model", path.string()}, {"n", n}, {"ctx", engine.ctx()}};
    const RunnerConfig& runner = engine.runner().config();
    parameters.update(
        {{"k_type", info(runner.k_type).name}, {"v_type", info(runner.v_type).name}, {"stop", stop}});
    if (decoding.beams)
        parameters.update({{"beams", decoding.beams}, {"length_penalty", decoding.length_penalty}});
    else
        parameters.update(to_json(params));
    if (decoding.best_of) parameters["best_of"] = decoding.best_of;
    const RunFormat format = json ? RunFormat::json : jsonl ? RunFormat::jsonl : RunFormat::text;
    RunOutput output({format, !prompts.prompts.empty(), hide_thinking}, engine.tokenizer(),
                     std::move(parameters), load);
    end_in_order();
    const Clock::time_point begin = Clock::now();
    if (grammar) base.constraint = NIBBLE_TRY(engine.constraint(std::move(*grammar)));
    std::optional<PromptCache> cache;
    if (!prompt_cache.empty()) cache.emplace(engine, prompt_cache);
    NIBBLE_TRY(submit_all(engine, path, conversations, base, cache ? &*cache : nullptr, output));
    if (cache && cache->passed_over())
        std::fprintf(stderr, "nibble: %s: the prompt is computed\n", cache->passed_over()->message().c_str());
    const bool cancelled = NIBBLE_TRY(generate(engine, output, reading));
    const double wall = std::chrono::duration<double>(Clock::now() - begin).count();
    end_line(output);
    if (!quiet) print_statistics(output, engine.allocated_bytes(), load, wall, params);
    if (is_full(output))
        std::fprintf(stderr, "nibble: the context of %d tokens is full (give a larger --ctx)\n",
                     engine.ctx());
    if (cache) NIBBLE_TRY(cache->save());
    if (base.constraint && !cancelled)
        NIBBLE_TRY(check_ended(output, base.constraint, engine.tokenizer(), !stop.empty()));
    const bool stuck = std::ranges::count(output.answers(), Finish::stuck, &RunAnswer::finish) > 0;
    if (stuck && !cancelled)
        return Error{ErrorCode::unsupported, "constraint",
                     "the vocabulary has no token that goes on from here", "the text so far keeps to it"};
    return cancelled ? exit_interrupted : exit_ok;
}

void add_output(Flags& flags, RunCommand& c) {
    const std::string group = "Output", more = "More output";
    const auto json = flags.on("--json", c.json, "one JSON object: text, tokens, timings, parameters");
    const auto jsonl = flags.on("--jsonl", c.jsonl, "one line of JSON per event");
    json.group(group);
    jsonl.excludes(json).group(more);
    flags.on("-q,--quiet", c.quiet, "no statistics on stderr").group(group);
    flags.on("--hide-thinking", c.hide_thinking, "the answer alone; in JSON its thoughts apart").group(group);
    flags.value("--logprobs", c.logprobs, "in JSON: log-probabilities, with N alternatives per token")
        .range(0, 1000)
        .group(more);
    flags.on("--echo", c.echo, "the prompt before the answer, as the model sees it").group(more);
    flags.value("--parallel", c.parallel, "prompts of --prompts that run at once")
        .needs("--prompts")
        .range(1, 1024)
        .show_default()
        .group(more);
}

void add_answer(Flags& flags, RunCommand& c) {
    const std::string prompt = "Prompt", more = "More about the prompt", group = "Answer";
    const auto raw = flags.on("--raw", c.raw, "continue the prompt as it is, without a template");
    const auto chat = flags.on("--chat", c.chat, "apply a chat template also where the model has none");
    raw.group(prompt);
    chat.excludes(raw).group(more);
    c.chat_template.add(flags, prompt);
    const auto special =
        flags.on("--special", c.special, "control tokens in the prompt are parsed; implies --raw")
            .group(more);
    for (const Flag o : {raw, special})
        for (const char* other : {"--template", "--template-set", "--think", "--system"}) o.excludes(other);
    special.excludes(chat);
    flags
        .value("--prompt-cache", c.prompt_cache,
               "keep the computed prompt in FILE, for others that begin alike")
        .type_name("FILE")
        .group(more);
    flags.value("-n,--n-predict", c.n, "tokens to generate [until the text or context ends]")
        .range(-1, int64_t{1} << 40)  // -1 says that there is no limit
        .group(group);
    flags.value("--stop", c.stop, "end before this text; may be repeated").once_each().group(group);
    flags.on("--ignore-eos", c.ignore_eos, "tokens that would end the answer are not chosen")
        .group("More about the answer");
    c.constraint.add(flags, group);
}

std::function<Result<int>()> setup(Flags& flags) {
    auto c = std::make_shared<RunCommand>();
    c->prompts.add(flags);
    add_answer(flags, *c);
    add_output(flags, *c);
    c->sampling.add(flags);
    c->decoding.add(flags, "More about the answer");
    // It tells tokens as they come; of these the answer is known at the end.
    for (const char* late : {"--beams", "--best-of"}) flags.find("--jsonl")->excludes(late);
    c->model.add(flags);
    c->options.add_all(flags);
    flags.examples(
        "  nibble run --raw -p \"Once upon a time\" -n 100\n"
        "  cat report.txt | nibble run -m model.gguf -p \"Summarise:\" --json");
    return [c] {
        Result<int> code = (*c)();
        end_by_signal(interrupted, code);  // a shell's loop ends by Ctrl-C only if the program did
        return code;
    };
}

}  // namespace

extern const Command run_command;
const Command run_command{"run", "Answer or continue a prompt, once", setup};

}  // namespace nibble
