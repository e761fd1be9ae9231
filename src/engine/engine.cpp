// Engine: admission, batch building, sampling, text, the ends of requests.
// All state lives in Engine::State; sequences are kept in order of arrival.
#include "src/engine/engine.h"

#include <algorithm>
#include <bit>
#include <future>
#include <limits>

#include "src/engine/lookup_drafter.h"
#include "src/engine/model_drafter.h"
#include "src/engine/state.h"
#include "src/model/vocab_file.h"

namespace nibble {
namespace {

// How likely a repetition must be to go on, to be believed before a draft model is asked.
constexpr double sure = 0.6;
// What a guess costs at most, as a share of a step: beyond, only a sure one is made.
constexpr double dearest = 0.85;

double bytes(size_t n) { return static_cast<double>(n); }

}  // namespace

std::string_view name(Finish finish) {
    switch (finish) {
        case Finish::none:
            return "none";
        case Finish::eos:
            return "eos";
        case Finish::stop:
            return "stop";
        case Finish::length:
            return "length";
        case Finish::context:
            return "context";
        case Finish::complete:
            return "complete";
        case Finish::stuck:
            return "stuck";
        case Finish::cancelled:
            return "cancelled";
    }
    return "none";
}

Result<void> Engine::State::make_groups() {
    for (const KvGroupSpec& g : runner.spec().kv_groups) {
        KvGroup group;
        group.window = g.window;
        group.states = g.states;
        const int32_t page_size =
            g.states ? static_cast<int32_t>(std::bit_ceil(static_cast<uint32_t>(runner.config().ctx)))
                     : runner.config().page_size;
        group.pool = std::make_unique<PagePool>(
            NIBBLE_TRY(PagePool::create(g.states ? runner.n_states() : runner.n_pages(), page_size)));
        if (config.prefix_cache && g.states) group.known_states = std::make_unique<StateIndex>(*group.pool);
        if (config.prefix_cache && !g.states) group.index = std::make_unique<PrefixIndex>(*group.pool);
        groups.push_back(std::move(group));
    }
    return {};
}

// With a context and a cache that follow every sequence to its end.
Result<void> Engine::State::load_draft_model(std::span<Backend* const> backends) {
    const RunnerConfig& of = runner.config();
    EngineConfig smaller;
    smaller.runner.ctx = of.ctx;
    smaller.runner.max_sequences = of.max_sequences;
    smaller.runner.k_type = of.k_type;
    smaller.runner.v_type = of.v_type;
    smaller.runner.gpu_layers = config.runner.gpu_layers == 0 ? 0 : -1;
    smaller.prompts_grow = true;
    auto loaded = Engine::load(config.draft_model, std::move(smaller), backends);
    if (!loaded) {
        Error e = loaded.error();
        e.where = cat("draft model: ", e.where);
        return e;
    }
    draft_model = std::move(*loaded);
    const MemoryForecast &ours = runner.memory(), &its = draft_model->runner().memory();
    if (ours.gpu_layers > 0 && its.gpu_layers < its.n_layers)  // it would hold the GPU up
        return Error{ErrorCode::out_of_memory, config.draft_model.string(),
                     cat(its.gpu_layers, " of its ", its.n_layers, " layers fit the GPU beside the model"),
                     "leave it room: a smaller --ctx, --batch 512 or fewer --gpu-layers"};
    return check_same_tokens(tokenizer, draft_model->tokenizer(), config.draft_model.string());
}

// `step_bytes`: what is read to make the guess.
Worth Engine::State::worth(double step_bytes) const {
    const MemoryForecast& m = runner.memory();
    const double weights = bytes(m.matmul_bytes);
    Worth worth;
    worth.row += 0.7 * bytes(m.expert_bytes) / weights;  // another row may have other experts
    // A guess writes a state of its own, and one that is right in part makes the next step compute that part
    // again.
    if (carries_states()) worth.row += 0.05 + bytes(m.state_bytes) / weights;
    worth.step = step_bytes / weights;
    worth.n_tokens = weights / bytes(m.kv_bytes_read_per_token);
    if (config.least_likely > 0) worth = {config.least_likely, 0, 1e9, config.least_likely};
    worth.row = std::min(worth.row, dearest);
    worth.step = std::min(worth.step, dearest - worth.row);
    return worth;
}

std::vector<std::unique_ptr<Drafter>> Engine::State::make_drafters(const SamplerParams& sampling) {
    std::vector<std::unique_ptr<Drafter>> drafters;
    if (config.draft_tokens == 0) return drafters;
    Worth for_free = worth(0);
    if (draft_model || predicts) for_free.step = std::max(0.0, sure - for_free.row);
    drafters.push_back(std::make_unique<LookupDrafter>(for_free));
    if (!draft_model) return drafters;
    // At about one and a half tokens a step, a guess must save what its own step costs.
    const double step = 1.5 * bytes(draft_model->runner().memory().matmul_bytes);
    drafters.push_back(std::make_unique<ModelDrafter>(*draft_model, sampling, worth(step)));
    return drafters;
}

Engine::Engine(std::unique_ptr<State> state) : state_(std::move(state)) {}
Engine::Engine(Engine&&) noexcept = default;
Engine& Engine::operator=(Engine&&) noexcept = default;
Engine::~Engine() = default;

void settle_guesses(EngineConfig& config, size_t n_backends) {
    const bool drafts = !config.draft_model.empty() || !config.runner.assistant.empty();
    if (config.draft_tokens < 0) config.draft_tokens = n_backends == 1 || drafts ? default_draft_tokens : 0;
    config.draft_tokens = config.check_nan ? 0 : std::min(config.draft_tokens, most_draft_tokens);
    if (config.draft_tokens == 0) return;
    RunnerConfig& r = config.runner;
    r.predict = !drafts;
    const int64_t all = int64_t{r.max_sequences} * (1 + config.draft_tokens);
    const auto guessed = static_cast<int32_t>(std::min<int64_t>(all, 1 + most_draft_tokens));
    r.guess_outputs = std::max(r.max_sequences, guessed);
}

namespace {

// Whether a draft model guesses from what the model itself has computed.
Result<bool> is_assistant(const std::filesystem::path& path) {
    return NIBBLE_TRY(open_model(NIBBLE_TRY(TensorFile::open(path))))->spec.n_backbone > 0;
}

}  // namespace

Result<Engine> Engine::load(const std::filesystem::path& path, EngineConfig config,
                            std::span<Backend* const> backends) {
    if (!config.draft_model.empty() && config.draft_tokens != 0 &&
        NIBBLE_TRY(is_assistant(config.draft_model)))
        config.runner.assistant = std::exchange(config.draft_model, {});
    settle_guesses(config, backends.size());
    if (config.draft_tokens == 0) config.runner.assistant.clear();
    TensorFile file = NIBBLE_TRY(TensorFile::open(path));
    auto vocab = read_vocab(file);
    if (!vocab) {  // unless it is no model by itself
        NIBBLE_TRY(ModelRunner::forecast(std::move(file), config.runner, backends));
        return vocab.error();
    }
    // While weights are loaded; last, where there is no thread for it.
    auto made = std::async([&vocab, name = file.path()] { return make_tokenizer(std::move(*vocab), name); });
    ModelRunner runner = NIBBLE_TRY(ModelRunner::load(std::move(file), config.runner, backends));
    Tokenizer tokenizer = NIBBLE_TRY(made.get());
    NIBBLE_TRY(check_vocab_size(tokenizer.n_vocab(), runner.spec().n_vocab, path));
    auto state = std::unique_ptr<State>(
        new State{std::move(config), std::move(runner), std::move(tokenizer), {}, {}, {}, 1, {}, {}});
    NIBBLE_TRY(state->make_groups());
    state->predicts = state->runner.predictor() != nullptr;
    // A block is made whole, whatever is believed of it.
    const bool blocks = state->predicts && state->runner.predictor()->block_size() > 0;
    state->prediction_worth = state->worth(blocks ? 0 : bytes(state->runner.memory().predictor_bytes));
    if (state->config.draft_tokens > 0 && !state->config.draft_model.empty())
        NIBBLE_TRY(state->load_draft_model(backends));
    return Engine(std::move(state));
}

const Tokenizer& Engine::tokenizer() const { return state_->tokenizer; }
const ModelSpec& Engine::spec() const { return state_->runner.spec(); }
ModelRunner& Engine::runner() { return state_->runner; }
int32_t Engine::ctx() const { return state_->runner.config().ctx; }
size_t Engine::allocated_bytes() const {
    return state_->runner.allocated_bytes() +
           (state_->draft_model ? state_->draft_model->allocated_bytes() : 0);
}
bool Engine::idle() const { return state_->sequences.empty(); }

namespace {

// The tokens that hold one of these strings: DRY's sequence breakers.
std::vector<Token> tokens_containing(const Tokenizer& tokenizer, const std::vector<std::string>& strings) {
    std::vector<Token> tokens;
    for (Token t = 0; t < static_cast<Token>(tokenizer.n_vocab()); ++t)
        if (std::ranges::any_of(strings, [&](const std::string& s) {
                return tokenizer.piece(t).find(s) != std::string::npos;
            }))
            tokens.push_back(t);
    return tokens;
}

Result<void> check(const Decoding& d, const RunnerConfig& config) {
    if (d.kind == Decoding::Kind::sample) return {};
    const std::string what = d.kind == Decoding::Kind::beams ? "beams" : "best-of";
    if (d.width < 1 || d.width > max_answers || d.width > config.max_sequences)
        return Error{ErrorCode::invalid_argument, what,
                     cat(d.width, " answers at once: at most ", std::min(max_answers, config.max_sequences)),
                     "choose among fewer"};
    if (!(d.length_penalty >= 0 && d.length_penalty <= 10))
        return Error{ErrorCode::invalid_argument, "length penalty", cat(d.length_penalty, " is not allowed"),
                     "a number from 0 to 10"};
    return {};
}

}  // namespace

Result<RequestId> Engine::submit(Request request) {
    const auto n = static_cast<int64_t>(request.prompt.size());
    if (n == 0)
        return Error{ErrorCode::invalid_argument, "prompt", "is empty", "give at least one token of text"};
    if (n >= ctx())
        return Error{ErrorCode::invalid_argument, "prompt",
                     cat("has ", n, " tokens, the context holds ", ctx(), " including the answer"),
                     "shorten it or give a larger --ctx"};
    for (const Token t : request.prompt)
        if (t < 0 || t >= spec().n_vocab)
            return Error{ErrorCode::invalid_argument, "prompt",
                         cat("token ", t, " is outside the vocabulary of ", spec().n_vocab),
                         "use this model's tokenizer"};
    if (request.ignore_eos)  // text goes on instead of a new turn beginning
        for (const Token t : tokenizer().ends())
            request.sampling.logit_bias.push_back({t, -std::numeric_limits<double>::infinity()});
    if (request.sampling.dry_multiplier > 0 && request.sampling.dry_breaker_tokens.empty())
        request.sampling.dry_breaker_tokens =
            tokens_containing(tokenizer(), request.sampling.dry_sequence_breakers);
    NIBBLE_TRY(check(request.decoding, state_->runner.config()));
    Chain chain = NIBBLE_TRY(Chain::create(request.sampling, static_cast<size_t>(spec().n_vocab)));
    for (const Token t : request.prompt) chain.accept(t);
    auto s = std::unique_ptr<Sequence>(new Sequence{state_->next_id++,
                                                    std::make_shared<const Request>(std::move(request)),
                                                    {},
                                                    0,
                                                    0,
                                                    {},
                                                    std::move(chain),
                                                    Rng(0),
                                                    Detokenizer(state_->tokenizer),
                                                    StopMatcher({}),
                                                    {}});
    s->tokens = s->request->prompt;
    for (const Token t : std::span(s->tokens).last(std::min(s->request->begun, s->tokens.size())))
        (void)s->detokenizer.push(t);
    s->rng = Rng(s->request->sampling.seed.value_or(0), s->request->stream);
    s->stop = StopMatcher(s->request->stop);
    if (s->request->decoding.kind != Decoding::Kind::sample) {
        s->choice = std::make_shared<Choice>(Choice{s->request->decoding});
        s->answer.seed = s->rng.seed();
    }
    if (s->request->constraint) s->matcher.emplace(s->request->constraint);
    if (!s->choice) s->drafters = state_->make_drafters(s->request->sampling);
    for (KvGroup& g : state_->groups) s->tables.emplace_back(*g.pool);
    state_->sequences.push_back(std::move(s));
    return state_->sequences.back()->id;
}

Result<std::shared_ptr<Constraint>> Engine::constraint(Grammar grammar) {
    if (!state_->token_trie) state_->token_trie = TokenTrie::create(state_->tokenizer);
    return Constraint::create(std::make_shared<const Grammar>(std::move(grammar)), state_->token_trie);
}

void Engine::cancel(RequestId request) {
    for (auto& s : state_->sequences)
        if (s->id == request) s->cancelled = true;
}

void Engine::State::report_cancelled(StepReport& report) {
    std::vector<std::pair<RequestId, std::shared_ptr<Choice>>> choices;
    read_rest([](const Sequence& s) { return s.cancelled; });
    std::erase_if(sequences, [&](const auto& s) {
        if (!s->cancelled) return false;
        if (s->choice) {
            if (choices.empty() || choices.back().first != s->id) choices.push_back({s->id, s->choice});
            s->choice->ended.push_back(ended(*s, Finish::cancelled));
            return true;
        }
        report.events.push_back({s->id, -1, rest_of(*s), Finish::cancelled});
        forget(*s);
        remember(*s);
        return true;
    });
    for (const auto& [id, choice] : choices) report.events.push_back(chosen(id, *choice));
}

void Engine::State::report_ended(StepReport& report) {
    read_rest([&](const Sequence& s) {
        return std::ranges::any_of(
            report.events, [&](const Event& e) { return e.request == s.id && e.finish != Finish::none; });
    });
    for (const Event& event : report.events) {
        if (event.finish == Finish::none) continue;
        std::erase_if(sequences, [&](const auto& s) {
            if (s->id != event.request) return false;
            forget(*s);
            remember(*s);
            return true;
        });
    }
}

}  // namespace nibble
