// Guesses by the model's own predictor: it reads each row that a step computed, with the token behind it, and
// tells the token after that; what it tells it can read as well. Or it tells a block of tokens at once.
// All texts are guessed at together. What it read behind the end of a text is written over later.
#include <algorithm>
#include <cmath>
#include <limits>

#include "src/engine/state.h"

namespace nibble {
namespace {

// Of the tokens a text has of late; where more of them are not among the first of the vocabulary, guesses are
// looked for among all.
constexpr size_t of_late = 128;
constexpr size_t few_rare = of_late / 16;

bool is_rare_text(std::span<const Token> tokens, int32_t n_first) {
    const auto late = tokens.last(std::min(of_late, tokens.size()));
    return std::ranges::count_if(late, [&](Token t) { return t >= n_first; }) > std::ptrdiff_t{few_rare};
}

// Of a token, among those that matter.
double probability(std::span<const float> logits, Token token) {
    constexpr float negligible = 16;
    const float best = *std::ranges::max_element(logits);
    double sum = 0;
    for (const float l : logits)
        if (l > best - negligible) sum += std::exp(static_cast<double>(l - best));
    return std::exp(static_cast<double>(logits[static_cast<size_t>(token)] - best)) / sum;
}

}  // namespace

// A row of the predictor: position p with the token at p + 1.
void Engine::State::add_row(Batch& batch, const Sequence& s, int32_t position, Token next) const {
    batch.tokens.push_back(next);
    batch.positions.push_back(position);
    add_slots(batch, s, position);
}

void Engine::State::add_slots(Batch& batch, const Sequence& s, int32_t position) const {
    for (const int32_t group : runner.predictor()->groups()) {
        const auto g = static_cast<size_t>(group);
        batch.slots[g].push_back(s.tables[g].slot(position));
    }
}

void Engine::State::add_pages(Batch& batch, const Sequence& s) const {
    for (size_t g = 0; g < groups.size(); ++g) batch.pages[g].push_back(s.tables[g].pages());
}

// Its rows in the batch are those from `first` on.
void Engine::State::close_rows(Batch& batch, const Sequence& s, int32_t first) const {
    batch.sequences.push_back({first, static_cast<int32_t>(batch.tokens.size()) - first});
    add_pages(batch, s);
}

// The rows of the last step that it has not read, as far as the token behind them is known: a wrong guess
// ends them.
void Engine::State::add_unread(Batch& batch, std::vector<float>& rows, Sequence& s,
                               std::span<const std::span<float>> hidden) const {
    const auto width = static_cast<size_t>(runner.spec().n_embd);
    Sequence::Reading& r = s.reading;
    int32_t begin = std::max(r.first, r.n_read);
    const int32_t end =
        std::min(r.first + std::exchange(r.count, 0), static_cast<int32_t>(s.tokens.size()) - 1);
    if (!runner.predictor()->reads_all()) begin = std::max(begin, end - 1);
    for (int32_t p = begin; p < end; ++p) {
        add_row(batch, s, p, s.tokens[static_cast<size_t>(p) + 1]);
        for (const std::span<float> part : hidden) {
            const auto row = part.subspan(static_cast<size_t>(r.row + p - r.first) * width, width);
            rows.insert(rows.end(), row.begin(), row.end());
        }
    }
    r.n_read = std::max(r.n_read, end);
}

// Pages for what it reads of its own guess, or for its block.
bool Engine::State::prepare(Sequence& s, int32_t limit) {
    const int32_t block = runner.predictor()->block_size();
    const int32_t end = static_cast<int32_t>(s.tokens.size()) + (block > 0 ? block - 1 : limit);
    if (end > runner.config().ctx) return false;
    for (const int32_t group : runner.predictor()->groups()) {
        BlockTable& table = s.tables[static_cast<size_t>(group)];
        const auto copy = table.reserve(std::max(0, end - table.length()));
        if (!copy) return false;
        if (!*copy) continue;
        const Batch::Copy now{group, (*copy)->from, (*copy)->to};
        if (!runner.copy_pages({&now, 1})) return false;
    }
    return true;
}

// Whether the guess goes on with the token that the request's own chain draws, with the numbers that it will
// draw the real one with: where both models agree on what is likely, they agree on what is drawn.
bool Engine::State::extend(Prediction& p, std::span<const float> logits, int32_t n_texts) {
    Sequence& s = *p.sequence;
    guessed_logits.assign(static_cast<size_t>(runner.spec().n_vocab),
                          -std::numeric_limits<float>::infinity());
    std::ranges::copy(logits, guessed_logits.begin());
    forbid_padding(guessed_logits);
    const auto token = p.chain.pick(guessed_logits, p.rng);
    if (!token) {  // what it attends to is not what it read: of a prefix that another request left behind
        s.predictions.give_up();
        return false;
    }
    const double worth = prediction_worth.at(s.tokens.size(), n_texts);
    if (!s.predictions.add(*token, probability(guessed_logits, *token), worth)) return false;
    p.draft->push_back(*token);
    p.chain.accept(*token);
    return static_cast<int32_t>(p.draft->size()) < p.limit;
}

// What is left of sequences that end, for those that go on from what they leave behind.
void Engine::State::read_rest(const std::function<bool(const Sequence&)>& ends) {
    Batch batch = empty_batch();
    std::vector<float> rows;
    if (!predicts || !runner.predictor()->reads_all()) return;
    for (const auto& s : sequences) {
        if (s->drafters.empty() || s->reading.count == 0 || !ends(*s)) continue;
        const auto hidden = runner.hidden();
        const auto first = static_cast<int32_t>(batch.tokens.size());
        if (hidden) add_unread(batch, rows, *s, *hidden);
        if (static_cast<int32_t>(batch.tokens.size()) > first) close_rows(batch, *s, first);
    }
    if (!batch.tokens.empty() && !runner.predictor()->read(runner.spec(), batch, rows)) predicts = false;
}

// Of each text a block, whose rows tell one token each: as many of them are believed as are worth it.
Result<void> Engine::State::predict_blocks(std::span<Prediction> predictions, bool all, int32_t n_texts) {
    if (predictions.empty()) return {};
    Predictor& predictor = *runner.predictor();
    Batch batch = empty_batch();
    for (Prediction& p : predictions) {
        const Sequence& s = *p.sequence;
        const int32_t first = static_cast<int32_t>(s.tokens.size()) - 1;
        p.limit = std::min(p.limit, predictor.block_size() - 1);
        predictor.add_block(batch, s.tokens.back(), first, p.limit);
        for (int32_t i = 0; i < predictor.block_size(); ++i) {
            add_slots(batch, s, first + i);
            add_pages(batch, s);
        }
    }
    NIBBLE_TRY(predictor.guess(runner.spec(), batch));
    const std::span<const float> logits = NIBBLE_TRY(predictor.logits(predictor.states(), all));
    const size_t n_tokens = logits.size() / batch.out_rows.size();
    size_t row = 0;
    for (Prediction& p : predictions) {
        const auto of_text = logits.subspan(row * n_tokens, static_cast<size_t>(p.limit) * n_tokens);
        for (size_t at = 0; at < of_text.size() && extend(p, of_text.subspan(at, n_tokens), n_texts);)
            at += n_tokens;
        row += static_cast<size_t>(p.limit);
    }
    return {};
}

Result<void> Engine::State::predict(std::span<const int32_t> limits, Drafts& drafts) {
    const ModelSpec& spec = runner.spec();
    Predictor& predictor = *runner.predictor();
    const auto width = static_cast<size_t>(spec.n_embd);
    Batch batch = empty_batch();
    std::vector<float> rows;
    std::vector<Prediction> predictions;
    bool all = false;
    std::vector<std::span<float>> hidden;
    for (size_t i = 0; i < sequences.size(); ++i) {
        Sequence& s = *sequences[i];
        if (s.drafters.empty() || s.reading.count == 0) continue;
        if (hidden.empty()) hidden = NIBBLE_TRY(runner.hidden());
        const auto first = static_cast<int32_t>(batch.tokens.size());
        add_unread(batch, rows, s, hidden);
        if (static_cast<int32_t>(batch.tokens.size()) == first) continue;
        if (i < limits.size() && limits[i] > 0 && drafts[i].empty() && s.predictions.ready(s.tokens) &&
            prepare(s, limits[i])) {
            s.predictions.begin(s.tokens.size());
            all |= is_rare_text(s.tokens, first_tokens(spec.n_vocab));
            if (predictor.block_size() == 0)
                batch.out_rows.push_back(static_cast<int32_t>(batch.tokens.size()) - 1);
            predictions.push_back({&s, &drafts[i], limits[i], s.chain.clone(), s.rng});
        }
        close_rows(batch, s, first);
    }
    if (predictor.block_size() > 0) {
        if (!batch.tokens.empty()) NIBBLE_TRY(predictor.read(spec, batch, rows));
        return predict_blocks(predictions, all, static_cast<int32_t>(limits.size()));
    }
    while (!batch.tokens.empty()) {
        const std::span<const float> next = NIBBLE_TRY(predictor.read(spec, batch, rows));
        if (predictions.empty()) return {};
        const std::span<const float> logits = NIBBLE_TRY(predictor.logits(predictor.states(), all));
        const size_t n_tokens = logits.size() / predictions.size();
        std::vector<Prediction> going_on;
        batch = empty_batch();
        rows.clear();
        for (size_t r = 0; r < predictions.size(); ++r) {
            Prediction& p = predictions[r];
            if (!extend(p, logits.subspan(r * n_tokens, n_tokens), static_cast<int32_t>(limits.size())))
                continue;
            const auto row = static_cast<int32_t>(batch.tokens.size());
            const Sequence& s = *p.sequence;
            const size_t behind = s.tokens.size() + (predictor.reads_all() ? p.draft->size() : 0);
            add_row(batch, s, static_cast<int32_t>(behind) - 2, p.draft->back());
            close_rows(batch, s, row);
            batch.out_rows.push_back(row);
            const auto state = next.subspan(r * width, width);
            rows.insert(rows.end(), state.begin(), state.end());
            going_on.push_back(std::move(p));
        }
        predictions = std::move(going_on);
    }
    return {};
}

}  // namespace nibble
