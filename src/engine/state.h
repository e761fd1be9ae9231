// What the engine knows between two steps. Internal to the engine: its parts are in several files.
// Sequences are kept in order of arrival; those of one request stand together.
#pragma once

#include <functional>

#include "src/engine/engine.h"
#include "src/engine/sequence.h"

namespace nibble {

struct Engine::State {
    EngineConfig config;
    ModelRunner runner;
    Tokenizer tokenizer;
    std::optional<Engine> draft_model;
    std::vector<KvGroup> groups;
    std::vector<std::unique_ptr<Sequence>> sequences;  // running and waiting, in order of arrival
    RequestId next_id = 1;
    std::shared_ptr<const TokenTrie> token_trie;  // made for the first constraint
    Result<void> load_draft_model(std::span<Backend* const> backends);
    Worth worth(double step_bytes) const;
    std::vector<std::unique_ptr<Drafter>> make_drafters(const SamplerParams& sampling);

    Result<void> make_groups();
    // What every group has of these tokens, and its pages of them; nothing where prefixes are not kept.
    struct KnownPrefix {
        int32_t n_tokens = 0;
        std::vector<PrefixMatch> groups;
    };
    KnownPrefix known_prefix(std::span<const Token> tokens);
    void adopt_prefix(Sequence& s);  // of its prompt
    size_t pages_for(const KvGroup& group, size_t n_tokens) const;
    bool carries_states() const { return has_states(runner.spec()); }
    int32_t rows_until_kept(const Sequence& s) const;
    void keep_state(Sequence& s, int32_t end);

    // A step that was started. Of each sequence in it, in the order of the rows:
    struct Part {
        Sequence* sequence = nullptr;  // null: its results no longer count
        int32_t rows = 0;
        int32_t first = 0;           // of the rows, in the batch
        int32_t end = 0;             // one more than the last position, guesses left out
        int32_t out = -1;            // its output row, if it has one: the first of 1 + draft.size()
        std::vector<Token> draft{};  // guessed tokens behind those that are known
    };
    struct Launched {
        std::vector<Part> parts;
        bool drawn = false;  // by the device: the tokens are yet to be waited for
    };
    std::optional<Launched> ahead;  // behind the last one that was reported
    Batch empty_batch() const;
    std::optional<DrawRow> draw_row(const Sequence& s, bool ahead) const;
    std::vector<DrawRow> draw_rows(std::span<const Part> parts, bool ahead) const;
    // By sequence, of the first n: what may follow its tokens.
    using Drafts = std::vector<std::vector<Token>>;
    Drafts guess(size_t n);
    std::vector<Token> guess(Sequence& s, int32_t limit) const;
    // The same by the model's predictor, where there is no guess yet.
    bool predicts = false;
    Worth prediction_worth{};
    std::vector<float> guessed_logits{};  // of the whole vocabulary
    struct Prediction {
        Sequence* sequence = nullptr;
        std::vector<Token>* draft = nullptr;
        int32_t limit = 0;
        Chain chain;
        Rng rng;
    };
    Result<void> predict(std::span<const int32_t> limits, Drafts& drafts);
    Result<void> predict_blocks(std::span<Prediction> predictions, bool all, int32_t n_texts);
    void add_unread(Batch& batch, std::vector<float>& rows, Sequence& s,
                    std::span<const std::span<float>> hidden) const;
    void add_row(Batch& batch, const Sequence& s, int32_t position, Token next) const;
    void add_slots(Batch& batch, const Sequence& s, int32_t position) const;
    void add_pages(Batch& batch, const Sequence& s) const;
    void close_rows(Batch& batch, const Sequence& s, int32_t first) const;
    void read_rest(const std::function<bool(const Sequence&)>& ends);
    bool prepare(Sequence& s, int32_t limit);
    bool extend(Prediction& p, std::span<const float> logits, int32_t n_texts);
    static int32_t rows_beyond(const Sequence& s, size_t group, int32_t count);
    Result<void> add_state(Batch& batch, Sequence& s, size_t group, int32_t sure, int32_t guessed);
    Result<void> add_rows(Batch& batch, Launched& step, Sequence& s, int32_t count,
                          std::span<const Token> draft = {});
    Result<Launched> launch_next();
    Result<void> take_back(const Launched& step);
    Result<std::optional<Launched>> launch_ahead(const Launched& last);
    void note_rows(const Part& part) const;
    Result<void> collect(const Launched& step, StepReport& report);
    Result<StepReport> step();
    void keep_to_windows(Sequence& s, int32_t end);
    void forget(const Sequence& s);
    Result<void> repeat(Sequence& s);
    Result<void> go_back(Sequence& s, int32_t n_computed);
    Result<void> verify(const Part& part, StepReport& report);

    Result<Event> sample(Sequence& s, size_t row);  // of the last step's outputs
    Result<Event> sample(Sequence& s, std::span<float> logits);
    Result<std::span<float>> logits_of(size_t row);
    Result<std::optional<Token>> pick(Sequence& s, std::span<float> logits);
    Result<std::optional<Token>> pick(Sequence& s, const FirstTokens& first);
    void forbid_padding(std::span<float> logits) const;
    Event append(Sequence& s, Token token) const;
    static std::string rest_of(Sequence& s);
    Finish finish_of(const Sequence& s, Token token) const;
    bool ends_with_next(const Sequence& s) const;  // whatever token that is
    void remember(Sequence& s);
    void remember(std::span<const Token> stored, std::span<const BlockTable> tables, bool last_page);
    bool remember_states(std::span<const Token> stored, std::span<const BlockTable> tables);
    int32_t stop_before_end(const Sequence& s) const;
    Result<void> reserve(Batch& batch, Sequence& s, int32_t count);
    size_t n_running() const;
    void report_cancelled(StepReport& report);
    void report_ended(StepReport& report);

    // Of best-of and beams: the logits of sequences that are computed, and how their request goes on.
    struct Row {
        Sequence* sequence = nullptr;
        std::span<float> logits;
    };
    using Sequences = std::vector<std::unique_ptr<Sequence>>;
    std::unique_ptr<Sequence> fork(const Sequence& s) const;
    Result<void> choose(std::span<const Row> rows, StepReport& report);
    Result<Sequences> draw_each(Sequences sequences, std::span<const Row> rows);
    Result<Sequences> extend_beams(Sequences beams, std::span<const Row> rows);
    // The logits of a beam, those that may not follow at -inf, and what they were before.
    struct BeamLogits {
        std::span<float> logits;
        double log_sum = 0;
        std::vector<TokenLogprob> top;  // if log-probabilities were asked for
    };
    Result<BeamLogits> weigh(const Sequence& s, std::span<float> logits) const;
    struct Extended {
        Sequences beams;
        std::vector<Alternative> ended;
        bool more = false;  // there are other tokens than those n
    };
    Result<Extended> extend_beams(const Sequences& beams, std::span<const BeamLogits> rows, size_t n) const;
    static Alternative ended(Sequence& s, Finish finish);
    Event chosen(RequestId id, Choice& choice) const;
};

// -inf for every token that does not keep to the grammar.
void forbid_what_breaks(const Matcher& matcher, std::span<float> logits);

}  // namespace nibble
