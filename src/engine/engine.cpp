// Engine: admission, batch building, sampling, text, the ends of requests.
// All state lives in Engine::State; sequences are kept in order of arrival.
#include "src/engine/engine.h"

#include <algorithm>
#include <limits>

#include "src/engine/nan_check.h"
#include "src/engine/scheduler.h"
#include "src/engine/state.h"
#include "src/model/vocab_file.h"

namespace nibble {

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
        group.pool = std::make_unique<PagePool>(
            NIBBLE_TRY(PagePool::create(runner.n_pages(), runner.config().page_size)));
        if (config.prefix_cache) group.index = std::make_unique<PrefixIndex>(*group.pool);
        group.window = g.window;
        groups.push_back(std::move(group));
    }
    return {};
}

Engine::Engine(std::unique_ptr<State> state) : state_(std::move(state)) {}
Engine::Engine(Engine&&) noexcept = default;
Engine& Engine::operator=(Engine&&) noexcept = default;
Engine::~Engine() = default;

Result<Engine> Engine::load(const std::filesystem::path& path, EngineConfig config,
                            std::span<Backend* const> backends) {
    TensorFile file = NIBBLE_TRY(TensorFile::open(path));
    Tokenizer tokenizer = NIBBLE_TRY(Tokenizer::create(NIBBLE_TRY(read_vocab(file))));
    ModelRunner runner = NIBBLE_TRY(ModelRunner::load(std::move(file), config.runner, backends));
    if (static_cast<int64_t>(tokenizer.n_vocab()) > runner.spec().n_vocab)
        return Error{ErrorCode::corrupt, path.string(),
                     cat("the tokenizer has ", tokenizer.n_vocab(), " tokens, the embedding ",
                         runner.spec().n_vocab, " rows"),
                     "they do not belong together"};
    auto state = std::unique_ptr<State>(
        new State{std::move(config), std::move(runner), std::move(tokenizer), {}, {}, 1, {}});
    NIBBLE_TRY(state->make_groups());
    return Engine(std::move(state));
}

const Tokenizer& Engine::tokenizer() const { return state_->tokenizer; }
const ModelSpec& Engine::spec() const { return state_->runner.spec(); }
ModelRunner& Engine::runner() { return state_->runner; }
int32_t Engine::ctx() const { return state_->runner.config().ctx; }
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
    if (request.ignore_eos)  // text goes on instead of a new turn beginning
        for (Token t = 0; t < spec().n_vocab; ++t)
            if (tokenizer().is_end_of_generation(t))
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
                                                    {},
                                                    false});
    s->tokens = s->request->prompt;
    s->rng = Rng(s->request->sampling.seed.value_or(0), s->request->stream);
    s->stop = StopMatcher(s->request->stop);
    if (s->request->decoding.kind != Decoding::Kind::sample) {
        s->choice = std::make_shared<Choice>(Choice{s->request->decoding});
        s->answer.seed = s->rng.seed();
    }
    if (s->request->constraint) s->matcher.emplace(s->request->constraint);
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

// Pages for the next rows. A copy of an adopted page needs one page more than the sequence: where there is
// none, the tokens of that page are computed again.
Result<void> Engine::State::reserve(Batch& batch, Sequence& s, int32_t count) {
    for (size_t g = 0; g < groups.size(); ++g) {
        const auto copy = s.tables[g].reserve(count);
        if (copy) {
            if (*copy) batch.copies.push_back({static_cast<int32_t>(g), (*copy)->from, (*copy)->to});
            continue;
        }
        const int32_t over = s.n_computed % runner.config().page_size;
        if (s.decoding() || over == 0) return copy.error();
        s.n_computed -= over;
        for (BlockTable& table : s.tables) NIBBLE_TRY(table.truncate(s.n_computed));
        return reserve(batch, s, count);
    }
    return {};
}

Result<void> Engine::State::add_rows(Batch& batch, Sequence& s, int32_t count) {
    NIBBLE_TRY(reserve(batch, s, count));
    const auto first = static_cast<int32_t>(batch.tokens.size());
    for (size_t g = 0; g < groups.size(); ++g) {
        BlockTable& table = s.tables[g];
        table.advance(count);
        for (int32_t i = 0; i < count; ++i) batch.slots[g].push_back(table.slot(s.n_computed + i));
        batch.pages[g].push_back(table.pages());
    }
    for (int32_t i = 0; i < count; ++i) {
        batch.tokens.push_back(s.tokens[static_cast<size_t>(s.n_computed + i)]);
        batch.positions.push_back(s.n_computed + i);
    }
    batch.sequences.push_back({first, count});
    if (count == s.pending()) {
        batch.out_rows.push_back(first + count - 1);
        batch.weighed.push_back({s.chain.weighed_at(), static_cast<int32_t>(tokenizer.n_vocab())});
    }
    return {};
}

void Engine::State::report_cancelled(StepReport& report) {
    std::vector<std::pair<RequestId, std::shared_ptr<Choice>>> choices;
    std::erase_if(sequences, [&](const auto& s) {
        if (!s->cancelled) return false;
        if (s->choice) {
            if (choices.empty() || choices.back().first != s->id) choices.push_back({s->id, s->choice});
            end(*s, Finish::cancelled);
            return true;
        }
        report.events.push_back({s->id, -1, s->stop.flush(), Finish::cancelled});
        remember(*s);
        return true;
    });
    for (const auto& [id, choice] : choices) report.events.push_back(chosen(id, *choice));
}

void Engine::State::report_ended(StepReport& report) {
    for (const Event& event : report.events) {
        if (event.finish == Finish::none) continue;
        std::erase_if(sequences, [&](const auto& s) {
            if (s->id != event.request) return false;
            remember(*s);
            return true;
        });
    }
}

// The first sequences run, the others wait: the cache holds max_sequences of full length, so that a running
// sequence never lacks a page. A request with several answers counts in full from the beginning.
size_t Engine::State::n_running() const {
    int32_t free = runner.config().max_sequences;
    size_t n = 0;
    for (; n < sequences.size(); ++n) {
        const Sequence& s = *sequences[n];
        const bool counted = n > 0 && s.choice && s.choice == sequences[n - 1]->choice;
        const int32_t needed = counted ? 0 : s.choice ? s.choice->decoding.width : 1;
        if (needed > free) break;
        free -= needed;
    }
    return n;
}

Result<StepReport> Engine::step() {
    State& e = *state_;
    StepReport report;
    e.report_cancelled(report);
    if (e.sequences.empty()) {
        report.idle = report.events.empty();
        return report;
    }
    const RunnerConfig& config = e.runner.config();
    const size_t n_running = e.n_running();
    std::vector<Work> work;
    for (size_t i = 0; i < n_running; ++i) {
        Sequence& s = *e.sequences[i];
        if (s.n_computed == 0) e.adopt_prefix(s);
        work.push_back({s.pending(), s.decoding()});
    }
    const std::vector<int32_t> rows = schedule(work, {config.batch_tokens, config.max_sequences});
    Batch batch;
    batch.slots.resize(e.groups.size());
    batch.pages.resize(e.groups.size());
    for (size_t i = 0; i < n_running; ++i)
        if (rows[i]) NIBBLE_TRY(e.add_rows(batch, *e.sequences[i], rows[i]));

    NanCheck nan_check;
    NIBBLE_TRY(e.runner.step(batch, e.config.check_nan ? &nan_check : nullptr));
    if (!nan_check.finding().empty())
        return Error{ErrorCode::internal, "--check-nan", nan_check.finding(),
                     "the weights or a kernel are broken"};

    size_t out = 0;
    std::vector<State::Row> choices;
    for (size_t i = 0; i < n_running; ++i) {
        Sequence& s = *e.sequences[i];
        if (!rows[i]) continue;
        (s.decoding() ? report.decode_tokens : report.prefill_tokens) += rows[i];
        s.n_computed += rows[i];
        for (size_t g = 0; g < e.groups.size(); ++g)
            if (e.groups[g].window) s.tables[g].drop_before(s.n_computed - e.groups[g].window + 1);
        if (s.pending()) continue;
        if (!s.decoding())
            e.remember(std::span(s.tokens).first(static_cast<size_t>(s.n_computed)), s.tables, false);
        if (s.request->max_tokens == 0) {  // the prompt alone was wanted
            report.events.push_back({s.id, -1, "", Finish::length});
            ++out;
            continue;
        }
        const size_t row = out++;
        if (s.choice)
            choices.push_back({&s, NIBBLE_TRY(e.logits_of(row))});
        else
            report.events.push_back(NIBBLE_TRY(e.sample(s, row)));
    }
    e.report_ended(report);
    for (size_t i = 0; i < choices.size();) {  // those of one request stand together
        size_t n = 1;
        while (i + n < choices.size() && choices[i + n].sequence->choice == choices[i].sequence->choice) ++n;
        NIBBLE_TRY(e.choose(std::span(choices).subspan(i, n), report));
        i += n;
    }
    return report;
}

}  // namespace nibble
