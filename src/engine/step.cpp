// One step: which rows run, and what becomes of their results. Where the device draws tokens by itself, the
// next step is started before the last one's tokens are waited for, so that the device never waits for us.
#include <algorithm>
#include <limits>
#include <utility>

#include "src/engine/nan_check.h"
#include "src/engine/scheduler.h"
#include "src/engine/state.h"

namespace nibble {
namespace {

// Tokens that are drawn here after the device could not tell one: such texts go on as they are.
constexpr int32_t drawn_here_at_once = 16;

}  // namespace

// Every sequence may have one row whose logits are wanted; what is left of those is for guesses, and not much
// of a step while prompts wait for it.
Engine::State::Drafts Engine::State::guess(size_t n) {
    Drafts drafts(n);
    std::vector<int32_t> room(n, 0);
    const RunnerConfig& limits = runner.config();
    int32_t spare = limits.max_outputs - static_cast<int32_t>(n);
    const auto first = sequences.begin(), last = first + static_cast<std::ptrdiff_t>(n);
    if (std::any_of(first, last, [](const auto& s) { return !s->decoding(); }))
        spare = std::min(spare, limits.batch_tokens / 4);
    for (size_t i = 0; i < n; ++i) {
        Sequence& s = *sequences[i];
        if (s.drafters.empty() || !s.decoding()) continue;
        if (s.pending() > 1 + config.draft_tokens) continue;  // it begins again: what is known comes first
        // One token follows the last guess: it too has to have its place.
        int64_t most = limits.ctx - static_cast<int64_t>(s.tokens.size()) - 1;
        if (s.request->max_tokens >= 0) most = std::min(most, s.request->max_tokens - s.n_generated - 1);
        most = std::min<int64_t>({most, config.draft_tokens, spare / static_cast<int32_t>(n - i)});
        room[i] = static_cast<int32_t>(std::max<int64_t>(most, 0));
        for (auto& drafter : s.drafters) drafter->set_company(static_cast<int32_t>(n));
        drafts[i] = guess(s, room[i]);
        spare -= predicts ? room[i] : static_cast<int32_t>(drafts[i].size());
    }
    if (predicts && !predict(room, drafts)) predicts = false;  // the texts do not need it
    return drafts;
}

// By the first drafter that has a guess. One that fails is done with: the text does not need it.
std::vector<Token> Engine::State::guess(Sequence& s, int32_t limit) const {
    std::vector<Token> draft;
    for (size_t d = 0; d < s.drafters.size() && draft.empty();) {
        auto proposed = s.drafters[d]->propose(s.tokens, limit);
        if (!proposed) {
            s.drafters.erase(s.drafters.begin() + static_cast<std::ptrdiff_t>(d));
            continue;
        }
        draft = std::move(*proposed);
        ++d;
    }
    const auto unknown = std::ranges::find_if(draft, [&](Token t) { return t >= runner.spec().n_vocab; });
    draft.erase(unknown, draft.end());
    return draft;
}

// Of the next rows, those whose keys and values are not there yet.
int32_t Engine::State::rows_beyond(const Sequence& s, size_t group, int32_t count) {
    return std::max(0, s.n_computed + count - s.tables[group].length());
}

// Pages for the next rows, of a state for those alone that are sure. A copy of an adopted page needs one page
// more than the sequence: where there is none, the tokens of that page are computed again.
Result<void> Engine::State::reserve(Batch& batch, Sequence& s, int32_t count) {
    const int32_t sure = std::max(1, s.pending());  // a token that the device draws is as good as known
    for (size_t g = 0; g < groups.size(); ++g) {
        const auto copy =
            s.tables[g].reserve(groups[g].states ? std::min(count, sure) : rows_beyond(s, g, count));
        if (copy) {
            if (*copy) batch.copies.push_back({static_cast<int32_t>(g), (*copy)->from, (*copy)->to});
            continue;
        }
        const int32_t over = s.n_computed % runner.config().page_size;
        if ((s.decoding() && !carries_states()) || over == 0) return copy.error();
        NIBBLE_TRY(go_back(s, s.n_computed - over));
        return reserve(batch, s, count);
    }
    return {};
}

// How the device is to draw the sequence's next token, or the one after that; nothing where it cannot.
std::optional<DrawRow> Engine::State::draw_row(const Sequence& s, bool ahead) const {
    const Request& r = *s.request;
    const bool plain = !s.matcher && !s.choice && r.logprobs < 0 && r.max_tokens != 0 && !config.check_nan;
    if (!plain || s.drawn_here > 0 || !runner.draws()) return {};
    if (ahead && !s.drafters.empty()) return {};  // which guesses at what follows a token that is known
    Rng rng = s.rng;
    if (ahead) rng.next_step();
    return s.chain.draw_row(rng, ahead);
}

// The same for a whole step; empty if it cannot for one of them.
std::vector<DrawRow> Engine::State::draw_rows(std::span<const Part> parts, bool ahead) const {
    std::vector<DrawRow> rows;
    for (const Part& part : parts) {
        auto row =
            part.out < 0 || !part.draft.empty() ? std::optional<DrawRow>() : draw_row(*part.sequence, ahead);
        if (!row) return {};
        rows.push_back(std::move(*row));
    }
    return rows;
}

// The state's pages for the next rows. The rows of a guess leave the one before them as it is and write into
// a page of their own, which they fill: nothing is copied.
Result<void> Engine::State::add_state(Batch& batch, Sequence& s, size_t g, int32_t sure, int32_t guessed) {
    BlockTable& table = s.tables[g];
    table.advance(sure);
    Batch::Fork& fork = batch.forks[g].emplace_back();
    if (guessed == 0) {
        batch.pages[g].push_back(table.pages());
        return {};
    }
    s.checkpoint->states.push_back(table.fork());
    NIBBLE_TRY(table.reserve(guessed));
    table.advance(guessed);
    batch.pages[g].push_back(s.checkpoint->states.back().pages());
    fork = {sure, table.pages().front()};
    return {};
}

// The next rows of a sequence; behind the last token that is known, those of the draft, or the one that the
// device draws for it, whose output row in the last step was that of this one.
Result<void> Engine::State::add_rows(Batch& batch, Launched& step, Sequence& s, int32_t count,
                                     std::span<const Token> draft) {
    const auto known = static_cast<int32_t>(s.tokens.size());
    NIBBLE_TRY(reserve(batch, s, count));
    const auto first = static_cast<int32_t>(batch.tokens.size());
    const int32_t sure = draft.empty() ? count : std::min(count, known - s.n_computed);
    if (sure < count && carries_states()) s.checkpoint = Checkpoint{s.n_computed + sure, {}};
    for (size_t g = 0; g < groups.size(); ++g) {
        if (groups[g].states) {
            NIBBLE_TRY(add_state(batch, s, g, sure, count - sure));
            continue;
        }
        BlockTable& table = s.tables[g];
        table.advance(rows_beyond(s, g, count));
        for (int32_t i = 0; i < count; ++i) batch.slots[g].push_back(table.slot(s.n_computed + i));
        batch.pages[g].push_back(table.pages());
    }
    for (int32_t i = 0; i < count; ++i) {
        const int32_t position = s.n_computed + i;
        batch.tokens.push_back(position < known ? s.tokens[static_cast<size_t>(position)]
                               : draft.empty()  ? -1 - static_cast<int32_t>(batch.out_rows.size())
                                                : draft[static_cast<size_t>(position - known)]);
        batch.positions.push_back(position);
    }
    batch.sequences.push_back({first, count});
    s.n_computed += count;
    Part& part = step.parts.emplace_back(Part{&s, count, first, s.n_computed});
    if (s.n_computed < known) return {};
    if (!draft.empty()) {
        part.end = known;
        part.draft.assign(draft.begin(), draft.begin() + (s.n_computed - known));
    }
    part.out = static_cast<int32_t>(batch.out_rows.size());
    for (auto row = first + count - 1 - static_cast<int32_t>(part.draft.size()); row < first + count; ++row) {
        batch.out_rows.push_back(row);
        batch.weighed.push_back({s.chain.weighed_at(), static_cast<int32_t>(tokenizer.n_vocab())});
    }
    return {};
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

Batch Engine::State::empty_batch() const {
    Batch batch;
    batch.slots.resize(groups.size());
    batch.pages.resize(groups.size());
    batch.forks.resize(groups.size());
    return batch;
}

// A state serves only texts that begin with all of its tokens, and the next prompt of a chat often differs
// from this one in its last few, where the answer begins. So a prompt stops once shortly before its end,
// where the state is kept, or where the request says; 0: not, it is too short for that.
int32_t Engine::State::stop_before_end(const Sequence& s) const {
    if (config.prompts_grow) return 0;
    if (s.request->kept_beginning > 0) return s.request->kept_beginning;
    constexpr int32_t differing = 16;
    const int32_t page = runner.config().page_size;
    return std::max(0, static_cast<int32_t>(s.request->prompt.size()) - differing) / page * page;
}

int32_t Engine::State::rows_until_kept(const Sequence& s) const {
    const int32_t stop = stop_before_end(s);
    return !s.decoding() && s.n_computed < stop ? stop - s.n_computed : s.pending();
}

// Of a prompt that takes several steps the state behind the last whole one is kept, and that where it stops:
// a long one leaves other texts their states. The end counts where there is no stop. Of one that grows only
// the last state is of use.
void Engine::State::keep_state(Sequence& s, int32_t end) {
    const auto beginning = [&](int32_t n) { return std::span(s.tokens).first(static_cast<size_t>(n)); };
    const int32_t stop = stop_before_end(s);
    if (stop > 0 && end > stop) return;
    const bool passing = end < stop || config.prompts_grow;
    if (s.kept_state > 0 && passing)
        for (KvGroup& group : groups)
            if (group.known_states) group.known_states->forget(beginning(s.kept_state));
    const bool fresh = remember_states(beginning(end), s.tables);
    s.kept_state = fresh && passing ? end : 0;
}

// A step that was not finished: what it wrote counts for nothing. With a state a sequence begins again, with
// what is known of its prompt.
Result<void> Engine::State::take_back(const Launched& step) {
    for (const Part& part : step.parts) {
        Sequence& s = *part.sequence;
        const int32_t before = s.n_computed - part.rows;
        if (!s.decoding()) remember(std::span(s.tokens).first(static_cast<size_t>(before)), s.tables, false);
        NIBBLE_TRY(go_back(s, before));
    }
    return {};
}

Result<Engine::State::Launched> Engine::State::launch_next() {
    const size_t n = n_running();
    const Drafts drafts = guess(n);
    std::vector<Work> work;
    for (size_t i = 0; i < n; ++i) {
        Sequence& s = *sequences[i];
        if (s.n_computed == 0) adopt_prefix(s);
        const int32_t pending = carries_states() ? rows_until_kept(s) : s.pending();
        work.push_back({pending + static_cast<int32_t>(drafts[i].size()), s.decoding()});
    }
    const std::vector<int32_t> rows =
        schedule(work, {runner.config().batch_tokens, runner.config().max_sequences});
    Batch batch = empty_batch();
    Launched step;
    for (size_t i = 0; i < n; ++i)
        if (rows[i]) NIBBLE_TRY(add_rows(batch, step, *sequences[i], rows[i], drafts[i]));
    if (step.parts.empty()) return Error{ErrorCode::internal, "engine", "no request can go on", ""};
    batch.draws = draw_rows(step.parts, false);
    step.drawn = !batch.draws.empty();
    NanCheck nan_check;
    const Result<void> ran =
        step.drawn ? runner.launch(batch) : runner.step(batch, config.check_nan ? &nan_check : nullptr);
    if (!ran) {
        if (ran.error().code == ErrorCode::cancelled) NIBBLE_TRY(take_back(step));
        return ran.error();
    }
    if (!nan_check.finding().empty())
        return Error{ErrorCode::internal, "--check-nan", nan_check.finding(),
                     "the weights or a kernel are broken"};
    return step;
}

// The step behind one whose tokens are not known yet: of the same sequences, if none of them is sure to end
// with its token and no other waits for its turn.
Result<std::optional<Engine::State::Launched>> Engine::State::launch_ahead(const Launched& last) {
    if (!last.drawn || n_running() != last.parts.size()) return std::optional<Launched>();
    for (size_t i = 0; i < last.parts.size(); ++i) {
        const Sequence* const s = last.parts[i].sequence;
        if (s && !s->decoding() && carries_states())
            return std::optional<Launched>();  // it is to be kept first
        if (!s || s != sequences[i].get() || ends_with_next(*s)) return std::optional<Launched>();
    }
    Batch batch = empty_batch();
    batch.draws = draw_rows(last.parts, true);
    if (batch.draws.empty()) return std::optional<Launched>();
    Launched step;
    step.drawn = true;
    for (const Part& part : last.parts) NIBBLE_TRY(add_rows(batch, step, *part.sequence, 1));
    NIBBLE_TRY(runner.launch(batch));
    return std::optional(std::move(step));
}

// Its results no longer count.
void Engine::State::forget(const Sequence& s) {
    if (!ahead) return;
    for (Part& part : ahead->parts)
        if (part.sequence == &s) part.sequence = nullptr;
}

// The device could not tell the token: the last row is taken back, and what was built on it. Pages that it
// saw are still held: they are dropped once its token is known.
Result<void> Engine::State::repeat(Sequence& s) {
    forget(s);
    // A state begins again, which is not to happen twice.
    s.drawn_here = carries_states() ? std::numeric_limits<int32_t>::max() : drawn_here_at_once;
    return go_back(s, static_cast<int32_t>(s.tokens.size()) - 1);
}

// A state cannot go back: the sequence takes the one that was kept before the guesses, or begins again with
// what is known of it. Keys and values of rows that count stay, though a state needs some of those again.
Result<void> Engine::State::go_back(Sequence& s, int32_t n_computed) {
    int32_t end = n_computed;
    if (n_computed < s.n_computed && carries_states()) {
        const bool kept = s.checkpoint && s.checkpoint->n_computed <= n_computed;
        n_computed = kept ? s.checkpoint->n_computed : 0;
        if (!kept) end = 0;
        for (size_t g = 0, next = 0; kept && g < groups.size(); ++g)
            if (groups[g].states) s.tables[g] = std::move(s.checkpoint->states[next++]);
    }
    s.checkpoint.reset();
    s.n_computed = n_computed;
    for (size_t g = 0; g < groups.size(); ++g)
        NIBBLE_TRY(s.tables[g].truncate(groups[g].states ? n_computed : end));
    return {};
}

// Each row's token is drawn as without guesses; the row behind it counts if it was computed for that token.
Result<void> Engine::State::verify(const Part& part, StepReport& report) {
    Sequence& s = *part.sequence;
    const size_t most = part.draft.size();
    size_t drawn = 0;
    bool ended = false;
    for (bool goes_on = true; goes_on; ++drawn) {
        auto e = sample(s, static_cast<size_t>(part.out) + drawn);
        if (!e && drawn == 0) return e.error();
        if (!e) break;  // what came before is told; the next step computes this row again and fails
        e->guessed = drawn < most && e->token == part.draft[drawn];
        ended = e->finish != Finish::none;
        goes_on = e->guessed && !ended;
        report.events.push_back(std::move(*e));
    }
    const size_t right = drawn - 1;  // rows of guesses that count; the last token drawn is yet to be computed
    report.drafted_tokens += static_cast<int32_t>(most);
    const int32_t end = part.end + static_cast<int32_t>(right);
    report.decode_tokens -= static_cast<int32_t>(most - right);
    NIBBLE_TRY(go_back(s, end));
    if (!ended) report.decode_tokens -= end - s.n_computed;  // computed again
    return {};
}

// Pages behind the windows of the row that follows `end` rows are dropped; before that they are made known,
// so that the next request finds them while nobody needs the memory.
void Engine::State::keep_to_windows(Sequence& s, int32_t end) {
    bool known = false;
    for (size_t g = 0; g < groups.size(); ++g) {
        const int32_t first = end - groups[g].window + 1;
        if (groups[g].window == 0 || first < s.tables[g].begin() + runner.config().page_size) continue;
        if (!std::exchange(known, true))
            remember(std::span(s.tokens).first(static_cast<size_t>(end)), s.tables, false);
        s.tables[g].drop_before(first);
    }
}

// What there is for the predictor to read: all rows of a sequence, or its output rows.
void Engine::State::note_rows(const Part& part) const {
    const auto guessed = static_cast<int32_t>(part.draft.size());
    const bool all = runner.predictor()->reads_all(), any = all || part.out >= 0;
    Sequence::Reading& r = part.sequence->reading;
    r.count = all ? part.rows : any ? 1 + guessed : 0;
    r.row = all ? part.first : part.out;
    r.first = part.end + guessed - r.count;
}

Result<void> Engine::State::collect(const Launched& step, StepReport& report) {
    std::vector<Token> drawn;
    if (step.drawn) drawn = NIBBLE_TRY(runner.drawn(ahead ? 1 : 0));
    std::vector<Row> choices;
    for (const Part& part : step.parts) {
        if (!part.sequence) continue;
        Sequence& s = *part.sequence;
        const auto row = static_cast<size_t>(std::max(0, part.out));
        const bool again = step.drawn && drawn[row] < 0;
        (s.decoding() ? report.decode_tokens : report.prefill_tokens) += part.rows - (again ? 1 : 0);
        if (again) {
            NIBBLE_TRY(repeat(s));
            continue;
        }
        if (predicts) note_rows(part);
        const bool unread = predicts && runner.predictor()->reads_all();
        const int32_t end = s.checkpoint ? s.checkpoint->n_computed : part.end;
        keep_to_windows(s, unread ? std::min(end, s.reading.first) : end);
        if (!s.decoding() && carries_states()) keep_state(s, part.end);
        if (part.out < 0) continue;
        if (!s.decoding())
            remember(std::span(s.tokens).first(static_cast<size_t>(part.end)), s.tables, false);
        if (s.request->max_tokens == 0) {  // the prompt alone was wanted
            report.events.push_back({s.id, -1, "", Finish::length});
        } else if (s.choice) {
            choices.push_back({&s, NIBBLE_TRY(logits_of(row))});
        } else if (!step.drawn) {
            NIBBLE_TRY(verify(part, report));
        } else {
            s.rng.next_step();
            report.events.push_back(append(s, drawn[row]));
        }
    }
    report_ended(report);
    for (size_t i = 0; i < choices.size();) {  // those of one request stand together
        size_t n = 1;
        while (i + n < choices.size() && choices[i + n].sequence->choice == choices[i].sequence->choice) ++n;
        NIBBLE_TRY(choose(std::span(choices).subspan(i, n), report));
        i += n;
    }
    return {};
}

Result<StepReport> Engine::State::step() {
    StepReport report;
    report_cancelled(report);
    if (sequences.empty()) {
        ahead.reset();
        report.idle = report.events.empty();
        return report;
    }
    const bool started =
        ahead && std::ranges::any_of(ahead->parts, [](const Part& p) { return p.sequence != nullptr; });
    auto launched = started ? Result<Launched>(std::move(*ahead)) : launch_next();
    if (!launched && launched.error().code == ErrorCode::cancelled) return report;
    const Launched step = NIBBLE_TRY(std::move(launched));
    ahead = NIBBLE_TRY(launch_ahead(step));
    NIBBLE_TRY(collect(step, report));
    for (const auto& s : sequences)
        if (!s->decoding()) report.prefill_left += s->pending();
    return report;
}

Result<StepReport> Engine::step() {
    auto report = state_->step();
    if (!report) {  // rows of the step are counted as computed, and may not be
        state_->ahead.reset();
        state_->sequences.clear();
    }
    return report;
}

}  // namespace nibble
