// Engine: admission, batch building, sampling, text, the ends of requests.
// All state lives in Engine::State; sequences are kept in order of arrival.
#include "src/engine/engine.h"

#include <algorithm>
#include <limits>

#include "src/engine/nan_check.h"
#include "src/engine/scheduler.h"
#include "src/engine/sequence.h"
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

namespace {

// A sequence's grammar as the sampler sees it.
class MatcherFilter : public TokenFilter {
  public:
    explicit MatcherFilter(const Matcher& matcher) : matcher_(matcher) {}
    bool allows(Token token) override { return matcher_.allows(token); }
    void mask(std::span<float> logits) override {
        masked_ = true;
        const auto mask = matcher_.mask();
        for (size_t word = 0; word * 64 < logits.size(); ++word) {
            const uint64_t bits = word < mask->size() ? (*mask)[word] : 0;
            if (bits == ~uint64_t{0}) continue;
            const size_t end = std::min(logits.size(), word * 64 + 64);
            for (size_t i = word * 64; i < end; ++i)
                if (!(bits >> (i % 64) & 1)) logits[i] = -std::numeric_limits<float>::infinity();
        }
    }

    bool masked() const { return masked_; }

  private:
    const Matcher& matcher_;
    bool masked_ = false;
};

}  // namespace

struct Engine::State {
    EngineConfig config;
    ModelRunner runner;
    Tokenizer tokenizer;
    std::vector<KvGroup> groups;
    std::vector<std::unique_ptr<Sequence>> sequences;  // running and waiting, in order of arrival
    RequestId next_id = 1;
    std::shared_ptr<const TokenTrie> token_trie;  // made for the first constraint

    Result<void> make_groups();
    void adopt_prefix(Sequence& s);
    Result<void> add_rows(Batch& batch, Sequence& s, int32_t count);
    Result<Event> sample(Sequence& s, std::span<float> logits);
    Result<std::optional<Token>> pick(Sequence& s, std::span<float> logits);
    Finish finish_of(const Sequence& s, Token token) const;
    void remember(Sequence& s);
    void remember(std::span<const Token> stored, std::span<const BlockTable> tables, bool last_page);
    Result<void> reserve(Batch& batch, Sequence& s, int32_t count);
    void report_cancelled(StepReport& report);
};

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
    Chain chain = NIBBLE_TRY(Chain::create(request.sampling, static_cast<size_t>(spec().n_vocab)));
    for (const Token t : request.prompt) chain.accept(t);
    auto s = std::unique_ptr<Sequence>(new Sequence{state_->next_id++,
                                                    std::move(request),
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
    s->tokens = s->request.prompt;
    s->rng = Rng(s->request.sampling.seed.value_or(0), s->request.stream);
    s->stop = StopMatcher(s->request.stop);
    if (s->request.constraint) s->matcher.emplace(s->request.constraint);
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

// Takes over the cached pages that every group has for the beginning of the prompt.
void Engine::State::adopt_prefix(Sequence& s) {
    const std::span<const Token> prompt(s.tokens.data(), s.tokens.size() - 1);  // one token must be computed
    int32_t n = static_cast<int32_t>(prompt.size());
    std::vector<PrefixMatch> matches;
    for (KvGroup& g : groups) {
        if (!g.index) return;
        matches.push_back(g.index->match(prompt));
        n = std::min(n, matches.back().n_tokens);
    }
    if (n == 0) return;
    const auto n_pages = static_cast<size_t>((n + runner.config().page_size - 1) / runner.config().page_size);
    for (size_t g = 0; g < groups.size(); ++g)
        s.tables[g].adopt(std::span(matches[g].pages).first(n_pages), n);
    s.n_computed = n;
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
    if (count == s.pending()) batch.out_rows.push_back(first + count - 1);
    return {};
}

// Makes the pages of a finished sequence findable for later requests.
void Engine::State::remember(Sequence& s) {
    remember(std::span(s.tokens).first(static_cast<size_t>(s.n_computed)), s.tables, true);
}

// The index knows full pages. The last one is filled up with tokens that no prompt has, so that it is found
// by those that are stored; whoever writes behind them writes into a copy. Not of a sequence that still runs.
void Engine::State::remember(std::span<const Token> stored, std::span<const BlockTable> tables,
                             bool last_page) {
    std::vector<Token> filled(stored.begin(), stored.end());
    const auto page_size = static_cast<size_t>(runner.config().page_size);
    if (last_page) filled.resize((filled.size() + page_size - 1) / page_size * page_size, Token{-1});
    for (size_t g = 0; g < groups.size(); ++g)
        if (groups[g].index) groups[g].index->insert(filled, tables[g].pages());
}

Result<CachedPrefix> Engine::export_prefix(std::span<const Token> tokens) {
    State& e = *state_;
    CachedPrefix p;
    auto n = static_cast<int32_t>(tokens.size());
    std::vector<PrefixMatch> matches;
    for (KvGroup& g : e.groups) {
        if (!g.index) return p;
        matches.push_back(g.index->match(tokens));
        n = std::min(n, matches.back().n_tokens);
    }
    p.tokens.assign(tokens.begin(), tokens.begin() + n);
    const auto n_pages =
        static_cast<size_t>((n + e.runner.config().page_size - 1) / e.runner.config().page_size);
    for (size_t g = 0; g < e.groups.size(); ++g) {
        const size_t size = e.runner.page_bytes(static_cast<int32_t>(g));
        p.pages.emplace_back(size * n_pages);
        for (size_t i = 0; i < n_pages; ++i)
            NIBBLE_TRY(e.runner.read_page(static_cast<int32_t>(g), matches[g].pages[i],
                                          std::span(p.pages[g]).subspan(i * size, size)));
    }
    return p;
}

Result<void> Engine::import_prefix(const CachedPrefix& p) {
    State& e = *state_;
    const size_t n = p.tokens.size();
    if (n == 0) return {};
    const auto page_size = static_cast<size_t>(e.runner.config().page_size);
    if (n >= static_cast<size_t>(ctx()))
        return Error{ErrorCode::invalid_argument, "session",
                     cat("holds ", n, " tokens, the context ", ctx(), " including the answer"),
                     "give a larger --ctx"};
    const size_t n_pages = (n + page_size - 1) / page_size;
    if (p.pages.size() != e.groups.size() || !idle())
        return Error{ErrorCode::corrupt, "session", "its parts do not fit this model", ""};
    std::vector<BlockTable> tables;
    for (size_t g = 0; g < e.groups.size(); ++g) {
        const size_t size = e.runner.page_bytes(static_cast<int32_t>(g));
        if (p.pages[g].size() != size * n_pages)
            return Error{
                ErrorCode::corrupt, "session",
                cat("has ", p.pages[g].size(), " bytes of keys and values, ", size * n_pages, " are needed"),
                ""};
        BlockTable& table = tables.emplace_back(*e.groups[g].pool);
        NIBBLE_TRY(table.reserve(static_cast<int32_t>(n)));
        table.advance(static_cast<int32_t>(n));
        for (size_t i = 0; i < n_pages; ++i)
            NIBBLE_TRY(e.runner.write_page(static_cast<int32_t>(g), table.pages()[i],
                                           std::span(p.pages[g]).subspan(i * size, size)));
    }
    e.remember(p.tokens, tables, true);
    return {};
}

Finish Engine::State::finish_of(const Sequence& s, Token token) const {
    if (s.stop.matched()) return Finish::stop;
    if (!s.request.ignore_eos && tokenizer.is_end_of_generation(token)) return Finish::eos;
    if (s.matcher && !s.matcher->may_continue()) return Finish::complete;
    if (s.request.max_tokens >= 0 && s.n_generated >= s.request.max_tokens) return Finish::length;
    if (static_cast<int32_t>(s.tokens.size()) >= runner.config().ctx) return Finish::context;
    return Finish::none;
}

// Under a constraint only tokens that keep to it, as TokenFilter says; nothing if there is none.
Result<std::optional<Token>> Engine::State::pick(Sequence& s, std::span<float> logits) {
    if (!s.matcher) return std::optional(NIBBLE_TRY(s.chain.pick(logits, s.rng)));
    MatcherFilter filter(*s.matcher);
    const Result<Token> token = s.chain.pick(logits, s.rng, &filter);
    if (!token && filter.masked()) return std::optional<Token>();
    NIBBLE_TRY(token);
    NIBBLE_TRY(s.matcher->accept(*token));
    return std::optional(*token);
}

Result<Event> Engine::State::sample(Sequence& s, std::span<float> logits) {
    // A vocabulary padded beyond the tokenizer: ids without text must never be drawn.
    std::fill(logits.begin() + static_cast<int64_t>(tokenizer.n_vocab()), logits.end(),
              -std::numeric_limits<float>::infinity());
    Event e;
    e.request = s.id;
    if (s.request.logprobs > 0)
        e.top = NIBBLE_TRY(top_logprobs(logits, static_cast<size_t>(s.request.logprobs)));
    const std::optional<Token> token = NIBBLE_TRY(pick(s, logits));
    if (!token) {
        e.text = s.stop.push(s.detokenizer.flush()) + s.stop.flush();
        e.finish = Finish::stuck;
        return e;
    }
    e.token = *token;
    if (s.request.logprobs >= 0)
        e.logprob =
            static_cast<double>(logits[static_cast<size_t>(e.token)]) - NIBBLE_TRY(log_sum_exp(logits));
    s.chain.accept(e.token);
    s.tokens.push_back(e.token);
    ++s.n_generated;
    const bool ends = !s.request.ignore_eos && tokenizer.is_end_of_generation(e.token);
    if (!ends) e.text = s.stop.push(s.detokenizer.push(e.token));
    e.finish = finish_of(s, e.token);
    if (e.finish != Finish::none && e.finish != Finish::stop) {
        e.text += s.stop.push(s.detokenizer.flush());
        e.text += s.stop.flush();
    }
    return e;
}

void Engine::State::report_cancelled(StepReport& report) {
    std::erase_if(sequences, [&](const auto& s) {
        if (!s->cancelled) return false;
        report.events.push_back({s->id, -1, s->stop.flush(), Finish::cancelled});
        remember(*s);
        return true;
    });
}

Result<StepReport> Engine::step() {
    State& e = *state_;
    StepReport report;
    e.report_cancelled(report);
    if (e.sequences.empty()) {
        report.idle = report.events.empty();
        return report;
    }
    // The first max_sequences run, the others wait: the cache holds that many of full length, so that a
    // running sequence never lacks a page.
    const RunnerConfig& config = e.runner.config();
    const auto n_running = std::min(e.sequences.size(), static_cast<size_t>(config.max_sequences));
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
    const std::span<float> logits =
        NIBBLE_TRY(e.runner.run(batch, e.config.check_nan ? &nan_check : nullptr));
    if (!nan_check.finding().empty())
        return Error{ErrorCode::internal, "--check-nan", nan_check.finding(),
                     "the weights or a kernel are broken"};

    const auto n_vocab = static_cast<size_t>(spec().n_vocab);
    size_t out = 0;
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
        if (s.request.max_tokens == 0) {  // the prompt alone was wanted
            report.events.push_back({s.id, -1, "", Finish::length});
            ++out;
            continue;
        }
        report.events.push_back(NIBBLE_TRY(e.sample(s, logits.subspan(out++ * n_vocab, n_vocab))));
    }
    for (const Event& event : report.events) {
        if (event.finish == Finish::none) continue;
        std::erase_if(e.sequences, [&](const auto& s) {
            if (s->id != event.request) return false;
            e.remember(*s);
            return true;
        });
    }
    return report;
}

}  // namespace nibble
