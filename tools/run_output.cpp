// Each answer collects its own output; only the one that is next in order reaches stdout.
// Text that is not UTF-8 appears as U+FFFD in JSON.
#include "tools/run_output.h"

#include <algorithm>
#include <cstdio>
#include <type_traits>
#include <utility>

#include "ggml/base/cat.h"
#include "tools/cli.h"
#include "tools/json_text.h"

namespace nibble {
namespace {

using Json = nlohmann::ordered_json;

double rate(int64_t n, double seconds) { return n > 0 && seconds > 0 ? static_cast<double>(n) / seconds : 0; }

}  // namespace

double RunAnswer::prompt_rate() const {
    const bool interrupted = finish == Finish::cancelled && tokens.empty();
    return interrupted ? 0 : rate(prompt_tokens - reused_tokens, prompt_seconds());
}

nlohmann::ordered_json to_json(const SamplerParams& params) {
    Json j = Json::object();
    for (const Param& p : param_table())
        std::visit(
            [&](auto field) {
                const auto& value = params.*field;
                using T = std::decay_t<decltype(value)>;
                Json& to = j[std::string(p.key)];
                if constexpr (std::is_same_v<T, std::optional<uint64_t>>)
                    to = value ? Json(*value) : Json();
                else if constexpr (std::is_same_v<T, std::vector<LogitBias>>)
                    to = get(params, p);
                else
                    to = value;
            },
            p.field);
    return j;
}

size_t RunOutput::add(RunAnswer answer) {
    std::string& pending = pending_.emplace_back();
    if (view_.format == RunFormat::text) pending = answer.before;
    if (view_.format == RunFormat::jsonl)
        pending =
            json_text(
                {{"event", "start"}, {"index", answers_.size()}, {"prompt_tokens", answer.prompt_tokens}}) +
            "\n";
    splitters_.emplace_back(answer.thinks);
    answers_.push_back(std::move(answer));
    return answers_.size() - 1;
}

nlohmann::ordered_json RunOutput::details(Token token, const TokenDetail& detail) const {
    Json one = {{"token", token}, {"text", tokenizer_->piece(token)}, {"logprob", detail.logprob}};
    one["top"] = Json::array();
    for (const TokenLogprob& t : detail.top)
        one["top"].push_back(
            {{"token", t.token}, {"text", tokenizer_->piece(t.token)}, {"logprob", t.logprob}});
    return one;
}

// An answer chosen among several comes whole.
void RunOutput::take_alternatives(RunAnswer& a, const Event& e) const {
    a.alternatives = e.alternatives;
    a.tokens = e.alternatives[0].tokens;
    for (size_t i = 0; i < e.alternatives[0].details.size(); ++i)
        a.logprobs.push_back(details(a.tokens[i], e.alternatives[0].details[i]));
}

void RunOutput::take(const Event& e) {
    const auto it = std::ranges::find(answers_, e.request, &RunAnswer::id);
    if (it == answers_.end()) return;
    const auto index = static_cast<size_t>(it - answers_.begin());
    RunAnswer& a = *it;
    a.end = RunAnswer::Clock::now();
    Json one;
    if (!std::exchange(a.begun, true)) a.first = a.end;
    if (e.token >= 0) {
        a.tokens.push_back(e.token);
        a.guessed += e.guessed ? 1 : 0;
        if (!a.logprobs.is_null()) {
            one = details(e.token, {e.logprob, e.top});
            a.logprobs.push_back(one);
        }
    }
    if (!e.alternatives.empty()) take_alternatives(a, e);
    a.text += e.text;
    a.finish = e.finish;
    const std::string text = visible(index, e);
    if (view_.format == RunFormat::text) show(index, text);
    if (view_.format == RunFormat::jsonl && e.token >= 0) {
        Json line = {{"event", "token"}, {"index", index}, {"token", e.token}, {"text", text}};
        if (!one.is_null()) line["logprob"] = e.logprob, line["top"] = one["top"];
        show(index, json_text(line) + "\n");
    }
    if (a.ended()) end(index);
}

void RunOutput::fail(const Error& error) {
    for (size_t i = 0; i < answers_.size(); ++i)
        if (!answers_[i].ended()) {
            answers_[i].error = error.message();
            end(i);
        }
}

void RunOutput::end(size_t index) {
    if (view_.format == RunFormat::text && answers_.size() > 1 && answers_[index].error.empty())
        show(index, "\n");
    if (view_.format == RunFormat::json) show(index, json_text(result(index)));
    if (view_.format == RunFormat::jsonl) {
        Json line = {{"event", "end"}, {"index", index}};
        line.update(result(index));
        show(index, json_text(line) + "\n");
    }
}

// What the event adds to the text that is shown.
std::string RunOutput::visible(size_t index, const Event& e) {
    if (!view_.hide_thinking) return e.text;
    std::string text;
    const auto add = [&](const std::vector<ThoughtSplitter::Piece>& pieces) {
        for (const auto& [piece, thought] : pieces)
            if (!thought) text += piece;
    };
    add(splitters_[index].push(e.text));
    if (e.finish != Finish::none) add(splitters_[index].flush());
    return text;
}

nlohmann::ordered_json RunOutput::text_of(const RunAnswer& a, const std::string& text) const {
    if (!view_.hide_thinking) return {{"text", a.before + text}};
    SplitAnswer split = split_thoughts(text, a.thinks);
    return {{"text", a.before + split.answer}, {"thinking", std::move(split.thoughts)}};
}

void RunOutput::show(size_t index, const std::string& text) { pending_[index] += text; }

nlohmann::ordered_json RunOutput::result(size_t index) const {
    const RunAnswer& a = answers_[index];
    const auto n = static_cast<int64_t>(a.tokens.size());
    Json j = text_of(a, a.text);
    j.update({{"tokens", a.tokens},
              {"finish", a.error.empty() ? name(a.finish) : "error"},
              {"prompt_tokens", a.prompt_tokens}});
    if (!a.error.empty()) j["error"] = a.error;
    if (!a.logprobs.is_null()) j["logprobs"] = a.logprobs;
    if (!a.alternatives.empty()) {
        j["score"] = a.alternatives[0].score;
        j["alternatives"] = Json::array();
        for (const Alternative& x : a.alternatives) {
            Json one = text_of(a, x.text);
            one.update({{"tokens", x.tokens},
                        {"finish", name(x.finish)},
                        {"logprob", x.logprob},
                        {"score", x.score}});
            j["alternatives"].push_back(std::move(one));
        }
        for (size_t i = 0; i < a.alternatives.size() && parameters_.contains("best_of"); ++i)
            j["alternatives"][i]["seed"] = a.alternatives[i].seed;
    }
    j["timings"] = {{"load_ms", load_.total * 1e3},
                    {"pack_ms", load_.pack * 1e3},
                    {"prompt_ms", a.prompt_seconds() * 1e3},
                    {"generation_ms", a.decode_seconds() * 1e3},
                    {"reused_tokens", a.reused_tokens},
                    {"prompt_tokens_per_second", a.prompt_rate()},
                    {"tokens_per_second", rate(n - 1, a.decode_seconds())},
                    {"guessed_tokens", a.guessed}};
    j["parameters"] = parameters_;
    return j;
}

Result<void> RunOutput::flush() {
    while (current_ < answers_.size()) {
        std::string& text = pending_[current_];
        const bool ended = answers_[current_].ended();
        if (view_.format == RunFormat::json && ended && view_.is_list)
            text = (current_ == 0 ? "[\n" : ",\n") + text;
        std::fwrite(text.data(), 1, text.size(), stdout);
        if (!text.empty()) ends_line_ = text.ends_with('\n');
        text.clear();
        if (!ended) break;
        ++current_;
    }
    return flush_output();
}

Result<void> RunOutput::finish() {
    NIBBLE_TRY(flush());
    if (view_.format == RunFormat::json) std::fputs(view_.is_list ? "\n]\n" : "\n", stdout);
    return flush_output();
}

}  // namespace nibble
