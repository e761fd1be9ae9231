// What callers ask of the engine and what they get back, step by step.
// Plain data; no tensors, no terminal.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ggml/base/result.h"
#include "src/sample/beam_search.h"
#include "src/sample/params.h"
#include "src/text/grammar/constraint.h"

namespace nibble {

using RequestId = int64_t;

struct Request {
    std::vector<Token> prompt;       // at least one token, fewer than the context
    SamplerParams sampling;          // without a seed, 0 is used: callers draw one and tell which
    int64_t max_tokens = -1;         // -1: until something else ends it
    std::vector<std::string> stop;   // the text ends before the first of these
    std::vector<Token> stop_tokens;  // end the answer as the model's own ends do
    bool ignore_eos = false;         // end-of-generation tokens are never chosen
    // So many tokens at the end of the prompt are the beginning of the answer: text goes on behind theirs.
    size_t begun = 0;
    // Behind so many tokens of the prompt a state is kept for other prompts; 0: shortly before its end.
    int32_t kept_beginning = 0;
    uint64_t stream = 0;    // tells samples of one prompt and seed apart
    int32_t logprobs = -1;  // >= 0: report log-probabilities, with so many alternatives
    Decoding decoding;      // other than sample: the answer comes whole, at the end
    // What the answer must be, e.g. from Engine::constraint(); may be shared by requests of one engine.
    std::shared_ptr<Constraint> constraint;
};

enum class Finish : uint8_t {
    none,      // still running
    eos,       // the model ended its turn
    stop,      // a stop string appeared
    length,    // max_tokens were generated
    context,   // the context is full
    complete,  // the constraint is met and allows nothing more
    stuck,     // no token of the vocabulary keeps to the constraint
    cancelled,
};
std::string_view name(Finish finish);

// What is known of a generated token beside its id, under the model's own distribution.
struct TokenDetail {
    double logprob = 0;
    std::vector<TokenLogprob> top{};  // the most likely tokens there, in order
};

// One of several answers to a prompt, from which the best is chosen.
struct Alternative {
    std::vector<Token> tokens{};
    std::string text{};
    Finish finish = Finish::none;
    double logprob = 0;                  // of all tokens
    double score = 0;                    // see answer_score()
    uint64_t seed = 0;                   // of best-of: what gives this answer alone
    std::vector<TokenDetail> details{};  // per token, if log-probabilities were asked for
    bool cut = false;                    // by its length, where the constraint asks for more
};

// One generated token of one request. `text` is what became certain to print: it may be empty (half a
// character, the beginning of a stop string) or hold what several tokens held back.
struct Event {
    RequestId request = 0;
    Token token = -1;  // -1: an end without a token (cancelled, stuck)
    std::string text;
    Finish finish = Finish::none;
    bool text_held = false;           // some of its text is held back
    bool guessed = false;             // rightly, see EngineConfig::draft_tokens
    double logprob = 0;               // of the token, under the model's own distribution; if asked for
    std::vector<TokenLogprob> top{};  // the most likely tokens there, in order; if asked for
    // Best-of and beams have two events without a token: when the prompt is computed, and at the end with the
    // answers, best first (complete ones before those that were cancelled or stuck), and the text of the
    // first.
    std::vector<Alternative> alternatives{};
};

struct StepReport {
    std::vector<Event> events;
    int32_t prefill_tokens = 0;  // rows of this step that were prompt
    int32_t prefill_left = 0;    // of prompts, yet to come
    int32_t decode_tokens = 0;   // rows that were generated tokens, rightly guessed ones among them
    int32_t drafted_tokens = 0;  // rows that were guesses, right or wrong
    bool idle = false;           // there was nothing to do
};

}  // namespace nibble
