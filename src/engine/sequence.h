// The state of one request: tokens, cache tables, sampler, text. Internal to the engine.
// Cache positions [0, n_computed) are stored, or will be by steps that were started: tokens[n_computed..] are
// pending. While a step runs there may be more of them than tokens: one that the device draws, or guesses.
// Keys and values may be further than that where only a state had to go back.
#pragma once

#include <optional>
#include <vector>

#include "src/engine/drafter.h"
#include "src/engine/request.h"
#include "src/kv/block_table.h"
#include "src/kv/prefix_index.h"
#include "src/kv/state_index.h"
#include "src/sample/chain.h"
#include "src/text/detokenizer.h"
#include "src/text/stop.h"

namespace nibble {

// Pages of the layers that share a window, or the states of those that carry one: there a page is as long as
// the context, so that a sequence has one, and it is copied when it is written and others have it too.
struct KvGroup {
    std::unique_ptr<PagePool> pool;
    std::unique_ptr<PrefixIndex> index;  // null: prefixes are not reused, or have states:
    std::unique_ptr<StateIndex> known_states;
    int32_t window = 0;
    bool states = false;
};

// The states that a sequence had after so many tokens: it goes back there from a wrong guess.
struct Checkpoint {
    int32_t n_computed = 0;
    std::vector<BlockTable> states;  // per KV group that has some
};

// The sequences of a request whose answer is chosen among several: what they share.
struct Choice {
    Decoding decoding;
    std::vector<Alternative> ended{};
};

struct Sequence {
    RequestId id = 0;
    std::shared_ptr<const Request> request;
    std::vector<Token> tokens;  // prompt and what was generated
    int32_t n_computed = 0;
    int64_t n_generated = 0;
    std::vector<BlockTable> tables;  // per KV group
    Chain chain;
    Rng rng;
    Detokenizer detokenizer;
    StopMatcher stop;
    std::optional<Matcher> matcher;  // of request.constraint
    bool cancelled = false;
    int32_t drawn_here = 0;            // so many tokens are yet to be drawn here, not by the device
    std::shared_ptr<Choice> choice{};  // null: an answer of its own, reported token by token
    Alternative answer{};              // so far, of a choice
    std::vector<std::unique_ptr<Drafter>> drafters{};  // the first that has a guess is believed
    int32_t kept_state = 0;  // behind so many tokens of the prompt, until one further on is; 0: none
    std::optional<Checkpoint> checkpoint{};  // while guesses are checked, if there are states
    // What the model's predictor has read, if it guesses for this sequence: the positions before n_read, and
    // of the last step's rows, `count` from position `first` on, those that are to come.
    struct Reading {
        int32_t n_read = 0;
        int32_t row = 0, first = 0, count = 0;
    };
    Reading reading{};
    GuessRecord predictions{};

    int32_t pending() const { return static_cast<int32_t>(tokens.size()) - n_computed; }
    bool decoding() const { return n_generated > 0; }
};

}  // namespace nibble
