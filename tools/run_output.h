// What `nibble run` writes: the text as it comes, one JSON object, or a line of JSON per event.
// Answers of a batch come out in the order of their prompts, whatever the order in which they end.
#pragma once

#include <chrono>
#include <deque>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "src/engine/request.h"
#include "src/text/tokenizer.h"

namespace nibble {

enum class RunFormat : uint8_t { text, json, jsonl };

// One answer: what came so far, and when.
struct RunAnswer {
    using Clock = std::chrono::steady_clock;
    RequestId id = 0;
    std::string before;   // shown first: the prompt with --echo, else the mark of thoughts that it ended with
    bool thinks = false;  // the prompt ended with it
    int64_t prompt_tokens = 0, reused_tokens = 0;  // of the prompt: those that --prompt-cache had
    std::string text;
    std::vector<Token> tokens;
    int64_t guessed = 0;  // of the tokens, see EngineConfig::draft_tokens
    std::vector<Alternative>
        alternatives;                 // of best-of and beams, best first; its text and tokens are those above
    nlohmann::ordered_json logprobs;  // null unless asked for
    Finish finish = Finish::none;
    std::string error;                    // why it did not come to an end
    Clock::time_point start, first, end;  // first: token, or sign of life
    bool begun = false;

    bool ended() const { return finish != Finish::none || !error.empty(); }
    double prompt_seconds() const { return std::chrono::duration<double>(first - start).count(); }
    // Of what was computed; 0 if it was interrupted before.
    double prompt_rate() const;
    double decode_seconds() const { return std::chrono::duration<double>(end - first).count(); }
};

// Seconds until the model was ready, and what of them the weights took: reading, packing, to the device.
struct LoadTime {
    double total = 0, pack = 0;
};

struct RunView {
    RunFormat format = RunFormat::text;
    bool is_list = false;        // --json writes an array, of however many answers
    bool hide_thinking = false;  // text is the answer alone; its thoughts are a field of JSON
};

class RunOutput {
  public:
    // `parameters` and `load` become part of every JSON object.
    RunOutput(RunView view, const Tokenizer& tokenizer, nlohmann::ordered_json parameters, LoadTime load)
        : view_(view), tokenizer_(&tokenizer), parameters_(std::move(parameters)), load_(load) {}

    size_t add(RunAnswer answer);  // in the order of the prompts
    void take(const Event& event);
    void fail(const Error& error);  // the engine can do no more: ends what has not ended
    // Writes what is next in order. Errors: stdout cannot be written.
    Result<void> flush();
    Result<void> finish();                         // after the last event: closes the array of --json
    bool ends_line() const { return ends_line_; }  // what was written so far; nothing does
    const std::vector<RunAnswer>& answers() const { return answers_; }

  private:
    void take_alternatives(RunAnswer& a, const Event& event) const;
    nlohmann::ordered_json details(Token token, const TokenDetail& detail) const;
    std::string visible(size_t index, const Event& event);
    nlohmann::ordered_json text_of(const RunAnswer& a, const std::string& text) const;
    void show(size_t index, const std::string& text);
    void end(size_t index);
    nlohmann::ordered_json result(size_t index) const;

    RunView view_;
    const Tokenizer* tokenizer_;
    nlohmann::ordered_json parameters_;
    LoadTime load_;
    std::vector<RunAnswer> answers_;
    std::vector<std::string> pending_;        // per answer: not written yet
    std::vector<ThoughtSplitter> splitters_;  // per answer
    size_t current_ = 0;
    bool ends_line_ = true;
};

// Values by key, numbers as numbers.
nlohmann::ordered_json to_json(const SamplerParams& params);

}  // namespace nibble
