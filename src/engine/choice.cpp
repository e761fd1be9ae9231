// Answers that are chosen among several: best-of draws each of them, a beam search weighs all continuations.
// Sequences of a request share the pages of what they have in common, and copy one when they part.
#include <algorithm>
#include <iterator>
#include <limits>

#include "src/engine/state.h"

namespace nibble {
namespace {

constexpr float never = -std::numeric_limits<float>::infinity();

bool has_token(std::span<const float> logits) {
    return std::ranges::any_of(logits, [](float l) { return l != never; });
}

bool is_complete(const Alternative& a) {
    return a.finish != Finish::cancelled && a.finish != Finish::stuck && !a.cut;
}

bool better(const Alternative& a, const Alternative& b) {
    if (is_complete(a) != is_complete(b)) return is_complete(a);
    return a.score > b.score;
}

void add(Alternative& answer, const Event& e, TokenDetail detail, bool keep_details) {
    answer.tokens.push_back(e.token);
    answer.text += e.text;
    answer.logprob += detail.logprob;
    if (keep_details) answer.details.push_back(std::move(detail));
}

}  // namespace

std::unique_ptr<Sequence> Engine::State::fork(const Sequence& s) const {
    auto twin = std::unique_ptr<Sequence>(new Sequence{s.id,
                                                       s.request,
                                                       s.tokens,
                                                       s.n_computed,
                                                       s.n_generated,
                                                       {},
                                                       s.chain.clone(),
                                                       s.rng,
                                                       s.detokenizer,
                                                       s.stop,
                                                       s.matcher,
                                                       s.cancelled,
                                                       s.drawn_here,
                                                       s.choice,
                                                       s.answer});
    for (const BlockTable& table : s.tables) twin->tables.push_back(table.fork());
    return twin;
}

// The answer as it is now, as one of those to choose from.
Alternative Engine::State::ended(Sequence& s, Finish finish) {
    if (finish == Finish::cancelled || finish == Finish::stuck) s.answer.text += rest_of(s);
    s.answer.finish = finish;
    s.answer.cut =
        s.matcher && (finish == Finish::length || finish == Finish::context) && !s.matcher->may_end();
    s.answer.score =
        answer_score(s.answer.logprob, s.answer.tokens.size(), s.choice->decoding.length_penalty);
    return std::move(s.answer);
}

Event Engine::State::chosen(RequestId id, Choice& choice) const {
    Event e;
    e.request = id;
    e.alternatives = std::move(choice.ended);
    std::ranges::stable_sort(e.alternatives, better);
    if (e.alternatives.size() > static_cast<size_t>(choice.decoding.width))
        e.alternatives.resize(static_cast<size_t>(choice.decoding.width));
    e.text = e.alternatives[0].text;
    e.finish = e.alternatives[0].finish;
    e.logprob = e.alternatives[0].logprob;
    return e;
}

Result<void> Engine::State::choose(std::span<const Row> rows, StepReport& report) {
    const RequestId id = rows[0].sequence->id;
    const std::shared_ptr<Choice> choice = rows[0].sequence->choice;
    const auto ours = [&](const auto& s) { return s->choice == choice; };
    const auto first = std::ranges::find_if(sequences, ours);
    const auto last = std::find_if_not(first, sequences.end(), ours);
    if (!rows[0].sequence->decoding()) report.events.push_back({id, -1, ""});
    Sequences now;
    std::move(first, last, std::back_inserter(now));
    const auto place = sequences.erase(first, last) - sequences.begin();
    Sequences next =
        NIBBLE_TRY(choice->decoding.kind == Decoding::Kind::beams ? extend_beams(std::move(now), rows)
                                                                  : draw_each(std::move(now), rows));
    const bool done = next.empty();
    sequences.insert(sequences.begin() + place, std::make_move_iterator(next.begin()),
                     std::make_move_iterator(next.end()));
    if (done) report.events.push_back(chosen(id, *choice));
    return {};
}

// Answer i is what seed + i gives alone: the same chain, the same numbers, and rows of a batch are as if
// alone.
Result<Engine::State::Sequences> Engine::State::draw_each(Sequences sequences, std::span<const Row> rows) {
    std::vector<std::span<float>> logits(sequences.size());
    for (const Row& row : rows)
        for (size_t i = 0; i < sequences.size(); ++i)
            if (sequences[i].get() == row.sequence) logits[i] = row.logits;
    if (!sequences[0]->decoding()) {
        const auto width = static_cast<size_t>(sequences[0]->choice->decoding.width);
        while (sequences.size() < width) {
            auto twin = fork(*sequences[0]);
            twin->answer.seed += sequences.size();
            twin->rng = Rng(twin->answer.seed, twin->request->stream);
            sequences.push_back(std::move(twin));
        }
        logits.assign(width, logits[0]);
    }
    Sequences next;
    for (size_t i = 0; i < sequences.size(); ++i) {
        Sequence& s = *sequences[i];
        if (!logits[i].empty()) {
            Event e = NIBBLE_TRY(sample(s, logits[i]));
            if (e.token >= 0)
                add(s.answer, e, {e.logprob, e.top}, s.request->logprobs >= 0);
            else
                s.answer.text += e.text;
            if (e.finish != Finish::none) {
                s.choice->ended.push_back(ended(s, e.finish));
                continue;
            }
        }
        next.push_back(std::move(sequences[i]));
    }
    return next;
}

Result<Engine::State::BeamLogits> Engine::State::weigh(const Sequence& s, std::span<float> logits) const {
    forbid_padding(logits);
    BeamLogits row{logits, NIBBLE_TRY(log_sum_exp(logits)), {}};
    if (s.request->logprobs > 0)
        row.top = NIBBLE_TRY(top_logprobs(logits, static_cast<size_t>(s.request->logprobs), row.log_sum));
    if (s.matcher) forbid_what_breaks(*s.matcher, logits);
    if (s.request->ignore_eos)
        for (const Token t : tokenizer.ends()) logits[static_cast<size_t>(t)] = never;
    return row;
}

// The search that beam_search.h defines, by the n best tokens of every beam: fewer beams than asked for if
// too many of those ended.
Result<Engine::State::Extended> Engine::State::extend_beams(const Sequences& beams,
                                                            std::span<const BeamLogits> rows,
                                                            size_t n) const {
    const auto width = static_cast<size_t>(beams[0]->choice->decoding.width);
    std::vector<double> logprobs;
    std::vector<std::vector<TokenLogprob>> tokens;
    for (size_t i = 0; i < beams.size(); ++i) {
        logprobs.push_back(beams[i]->answer.logprob);
        tokens.emplace_back();
        if (has_token(rows[i].logits))
            tokens.back() = NIBBLE_TRY(top_logprobs(rows[i].logits, n, rows[i].log_sum));
    }
    const auto continuations = best_continuations(logprobs, tokens, n);
    Extended result;
    result.more = continuations.size() == n;
    for (size_t rank = 0; rank < continuations.size() && result.beams.size() < width; ++rank) {
        const Continuation& c = continuations[rank];
        auto beam = fork(*beams[c.beam]);
        if (beam->matcher) NIBBLE_TRY(beam->matcher->accept(c.token));
        const Event e = append(*beam, c.token);
        add(beam->answer, e, {c.token_logprob, rows[c.beam].top}, beam->request->logprobs >= 0);
        if (e.finish == Finish::none)
            result.beams.push_back(std::move(beam));
        else if (rank < width)
            result.ended.push_back(ended(*beam, e.finish));
    }
    return result;
}

Result<Engine::State::Sequences> Engine::State::extend_beams(Sequences beams, std::span<const Row> rows) {
    if (rows.size() != beams.size())
        return Error{ErrorCode::internal, "beams", "were not computed together", ""};
    Choice& choice = *beams[0]->choice;
    const auto width = static_cast<size_t>(choice.decoding.width);
    std::vector<BeamLogits> weighed;
    for (size_t i = 0; i < beams.size(); ++i) {
        weighed.push_back(NIBBLE_TRY(weigh(*beams[i], rows[i].logits)));
        if (!has_token(rows[i].logits)) choice.ended.push_back(ended(*beams[i], Finish::stuck));
    }
    // As many as go on if only the model's ends end an answer; stop strings and constraints end others, too.
    size_t n = width + beams.size() * tokenizer.ends().size();
    Extended step = NIBBLE_TRY(extend_beams(beams, weighed, n));
    while (step.more && step.beams.size() < width && !ends_with_next(*beams[0])) {
        n *= 4;
        step = NIBBLE_TRY(extend_beams(beams, weighed, n));
    }
    std::ranges::move(step.ended, std::back_inserter(choice.ended));
    Sequences next = std::move(step.beams);
    if (next.empty() || choice.ended.size() < width) return next;
    std::ranges::stable_sort(choice.ended, better);
    choice.ended.resize(width);
    const Alternative& best = next[0]->answer;
    const double score = answer_score(best.logprob, best.tokens.size(), choice.decoding.length_penalty);
    if (is_complete(choice.ended.back()) && score <= choice.ended.back().score) next.clear();
    return next;
}

}  // namespace nibble
