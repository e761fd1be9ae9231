// Splitter over PCRE2 with JIT; the table of regexes by GGUF `pre` kind.
// std::regex is not an option: it recurses once per character and overflows the stack.
#define PCRE2_CODE_UNIT_WIDTH 8
#include "src/text/split.h"

#include <algorithm>

#include <pcre2.h>

#include "ggml/base/cat.h"
#include "src/text/pcre.h"
#include "src/text/utf8.h"

namespace nibble {
namespace {

constexpr std::string_view digit = R"(\p{N})";
constexpr std::string_view gpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view llama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view qwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view qwen35 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view tekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view o200k =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view newline = R"([\r\n])", cjk = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+",
                           kana = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+";
constexpr std::string_view deepseek3 =
    R"re([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re";
constexpr std::string_view asian =
    "[\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f\u2f00-\u2fdf\u0e40-"
    "\u0e7f"
    "\u0e80-\u0eff\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af\u1100-\u11ff]+";
// Digits by threes from the right.
constexpr std::string_view threes = R"(\d{1,3}(?=(?:\d{3})*\b))",
                           number_threes = R"(\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N})))";
constexpr std::string_view lines = R"([^\n]+|[\n]+)";
constexpr std::string_view seed =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)";

struct Kind {
    std::string_view pre;
    std::vector<std::string_view> passes;
};

const std::vector<Kind>& kinds() {
    static const std::vector<Kind> table = {
        {"gpt-2", {gpt2}},
        {"default", {gpt2}},
        {"olmo", {gpt2}},
        {"mellum", {gpt2}},
        {"phi-2", {gpt2}},
        {"llama-bpe", {llama3}},
        {"llama3", {llama3}},
        {"llama-v3", {llama3}},
        {"falcon3", {llama3}},
        {"glm4", {llama3}},
        {"lfm2", {llama3}},
        {"pixtral", {llama3}},
        {"chatglm-bpe", {llama3}},
        {"dbrx", {llama3}},
        {"smaug-bpe", {llama3}},
        {"qwen2", {qwen2}},
        {"qwen35", {qwen35}},
        {"stablelm2", {qwen2}},
        {"deepseek-r1-qwen", {qwen2}},
        {"smollm", {digit, gpt2}},
        {"starcoder", {digit, gpt2}},
        {"mellum2", {digit, gpt2}},
        {"refact", {digit, gpt2}},
        {"command-r", {digit, gpt2}},
        {"deepseek-llm",
         {newline, R"(\s?[\p{Lu}\p{Ll}\p{Lt}]+)",
          R"(\s?[!-/:-~\x{ff01}-\x{ff0f}\x{ff1a}-\x{ff5e}\x{2018}-\x{201f}\x{3000}-\x{3002}]+)", R"(\s+$)",
          cjk, R"(\p{N}+)"}},
        {"deepseek-coder", {newline, R"(\s?\p{L}+)", R"(\s?\p{P}+)", cjk, digit}},
        {"deepseek-v3", {R"(\p{N}{1,3})", kana, deepseek3}},
        {"hunyuan-dense", {R"(\p{N}{1,3})", kana, deepseek3}},
        {"hunyuan", {qwen2}},
        {"seed-coder", {seed}},
        {"exaone4", {gpt2}},
        {"tekken", {tekken}},
        {"gpt-4o", {o200k}},
        {"o200k", {o200k}},
        {"llama4", {o200k}},
        {"minimax-m2", {o200k}},
        {"laguna", {lines, qwen2}},
        {"tiny_aya", {threes, o200k}},
        {"cohere2moe", {threes, o200k}},
        {"afmoe", {number_threes, asian, deepseek3}},
    };
    return table;
}

bool known(std::string_view regex) {
    return std::ranges::any_of(
        kinds(), [&](const Kind& k) { return std::ranges::find(k.passes, regex) != k.passes.end(); });
}

// What Unicode calls White_Space. PCRE2's own \s adds U+180E, which the regexes were not written for.
constexpr std::string_view white_space =
    R"(\t-\r\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";

// Spells \s out, and \S outside of brackets. Oniguruma, which these regexes are written for, nests and
// intersects classes; PCRE2 would read the same characters as something else, so they are refused.
Result<std::string> spell_white_space(std::string_view regex) {
    std::string out;
    bool in_class = false;
    for (size_t i = 0; i < regex.size(); ++i) {
        const char c = regex[i];
        if (c == '\\' && i + 1 < regex.size()) {
            const char escaped = regex[++i];
            if (escaped == 's')
                out += in_class ? std::string(white_space) : cat("[", white_space, "]");
            else if (escaped == 'S' && !in_class)
                out += cat("[^", white_space, "]");
            else
                out.append({c, escaped});
            continue;
        }
        if (in_class && (c == '[' || regex.substr(i).starts_with("&&")))
            return Error{ErrorCode::unsupported, "split regex",
                         cat("nested character class at character ", i, " of '", regex, "'"),
                         "the tokens would be wrong, so the model is refused"};
        if (c == '[') in_class = true;
        if (c == ']') in_class = false;
        out += c;
    }
    return out;
}

// The length of the valid UTF-8 (or, with `valid` false, of the invalid bytes) that text begins with.
size_t run_length(std::string_view text, bool valid) {
    size_t i = 0;
    while (i < text.size()) {
        const int n = valid_utf8_at(text.substr(i));
        if ((n > 0) != valid) break;
        i += valid ? static_cast<size_t>(n) : 1;
    }
    return i;
}

constexpr size_t fallback_chunk = 4096;
constexpr size_t max_passes = 16;
constexpr size_t free_steps = 128;  // of one attempt to match, which no budget counts

// Prose, and long runs of what regexes repeat: a regex that goes over any text again and again does it here.
std::string sample_text() {
    std::string text;
    for (const std::string_view unit : {"a", " ", "A", "1", "!", "\n", "\u4e00"}) {
        for (int i = 0; i < 400; ++i) text += unit;
        text += "The 3 mice's house, \u00fcber 1999!\r\n\t x = f(y[0]);\n";
    }
    return text + "#$%&*+,-/:<>?@\\^_`{|}~";
}

}  // namespace

struct Splitter::Pass {
    std::shared_ptr<pcre2_code> code;
    bool known;  // from the table: harmless, and not to be watched
};

// What one call of split() needs: match data, limits, and a bigger JIT stack once the small one overflows.
class Splitter::Run {
  public:
    Run(size_t text_size, Budget& budget)
        : data_(pcre2_match_data_create(1, nullptr), pcre2_match_data_free),
          context_(pcre2_match_context_create(nullptr), pcre2_match_context_free),
          budget_(budget),
          // One match backtracks over at most the whole text a few times, unless the regex is hostile.
          most_(std::min<size_t>(1'000'000 + 64 * text_size, UINT32_MAX)) {}
    // Appends matches and what lies between them. `text` is valid UTF-8.
    void split(const Pass& pass, std::string_view text, std::vector<std::string_view>& out);

  private:
    int search(const Pass& pass, std::string_view text, size_t& from);
    int match_here(const pcre2_code* code, std::string_view text, size_t from);
    int match(const pcre2_code* code, std::string_view text, size_t from, size_t limit, uint32_t options);

    std::unique_ptr<pcre2_match_data, void (*)(pcre2_match_data*)> data_;
    std::unique_ptr<pcre2_match_context, void (*)(pcre2_match_context*)> context_;
    std::unique_ptr<pcre2_jit_stack, void (*)(pcre2_jit_stack*)> stack_{nullptr, pcre2_jit_stack_free};
    Budget& budget_;
    size_t most_;
};

// PCRE2 counts the steps anew wherever a match may begin.
int Splitter::Run::match(const pcre2_code* code, std::string_view text, size_t from, size_t limit,
                         uint32_t options) {
    if (!data_ || !context_) return PCRE2_ERROR_NOMEMORY;
    pcre2_set_match_limit(context_.get(), static_cast<uint32_t>(limit));
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    const auto attempt = [&] {
        return pcre2_match(code, subject, text.size(), from, PCRE2_NO_UTF_CHECK | options, data_.get(),
                           context_.get());
    };
    const int found = attempt();
    if (found != PCRE2_ERROR_JIT_STACKLIMIT || stack_) return found;
    stack_.reset(pcre2_jit_stack_create(64 * 1024, 16 * 1024 * 1024, nullptr));
    pcre2_jit_stack_assign(context_.get(), nullptr, stack_.get());
    return attempt();
}

// A match that begins at `from`. How many steps it takes is known from the limits that it exceeds.
int Splitter::Run::match_here(const pcre2_code* code, std::string_view text, size_t from) {
    for (size_t limit = free_steps;; limit = std::min(8 * limit, most_)) {
        const int found = match(code, text, from, limit, PCRE2_ANCHORED);
        if (found >= 0 || found == PCRE2_ERROR_NOMATCH) return found;
        budget_.spend(limit);
        if (found != PCRE2_ERROR_MATCHLIMIT || limit == most_ || budget_.spent()) return found;
    }
}

// The first match at or behind `from`. With few steps for each place in the text at first, which is all that
// most matches need; place by place where they are not enough. On errors `from` is where it happened.
int Splitter::Run::search(const Pass& pass, std::string_view text, size_t& from) {
    const pcre2_code* code = pass.code.get();
    if (pass.known) return match(code, text, from, most_, 0);
    while (from < text.size()) {
        if (budget_.spent()) return PCRE2_ERROR_MATCHLIMIT;
        int found = match(code, text, from, free_steps, 0);
        if (found != PCRE2_ERROR_MATCHLIMIT && found != PCRE2_ERROR_JIT_STACKLIMIT) return found;
        const size_t steps = budget_.left();
        while (from < text.size() && budget_.left() == steps) {  // up to the place that takes more
            found = match_here(code, text, from);
            if (found != PCRE2_ERROR_NOMATCH) return found;
            from += static_cast<size_t>(std::max(1, valid_utf8_at(text.substr(from))));
        }
    }
    return PCRE2_ERROR_NOMATCH;
}

void Splitter::Run::split(const Pass& pass, std::string_view text, std::vector<std::string_view>& out) {
    size_t done = 0, from = 0;
    const auto emit = [&](size_t end) {
        if (end > done) out.push_back(text.substr(done, end - done));
        done = std::max(done, end);
    };
    while (from < text.size()) {
        const int found = search(pass, text, from);
        if (found == PCRE2_ERROR_NOMATCH) break;
        if (found < 0) {
            size_t end = std::min(text.size(), from + fallback_chunk);
            while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) ++end;
            emit(end);
            from = end;
            continue;
        }
        const PCRE2_SIZE* span = pcre2_get_ovector_pointer(data_.get());
        if (span[1] > span[0] && span[0] >= done) {
            emit(span[0]);
            emit(span[1]);
            from = done;
        } else {  // an empty match (\K can even make a backward one): go on behind the next character
            from = std::max<size_t>(from, span[1]);
            from +=
                from < text.size() ? static_cast<size_t>(std::max(1, valid_utf8_at(text.substr(from)))) : 1;
        }
    }
    emit(text.size());
}

Result<std::vector<std::string>> split_regexes(std::string_view pre) {
    for (const Kind& k : kinds())
        if (k.pre == pre) return std::vector<std::string>(k.passes.begin(), k.passes.end());
    return Error{ErrorCode::unsupported, "tokenizer.ggml.pre",
                 cat("'", pre, "' is not a known way of splitting words"),
                 "the tokens would be wrong, so the model is refused"};
}

// An ordinary regex takes far less than this for the sample text.
constexpr size_t sample_steps = 1'000'000;

Result<Splitter> Splitter::create(std::span<const std::string> regexes) {
    if (regexes.size() > max_passes)
        return Error{ErrorCode::unsupported, "split regexes",
                     cat("there are ", regexes.size(), ", at most ", max_passes, " are allowed"),
                     "the tokens would be wrong, so the model is refused"};
    Splitter s;
    const std::string sample = sample_text();
    std::vector<std::string_view> pieces;
    for (const std::string& regex : regexes) {
        const std::string spelled = NIBBLE_TRY(spell_white_space(regex));
        s.passes_.push_back(std::make_shared<Pass>(
            Pass{NIBBLE_TRY(compile_regex(spelled, "split regex", Subjects::valid_utf8)), known(regex)}));
        if (s.passes_.back()->known) continue;
        Budget budget = Budget::of_steps(sample_steps);
        Run(sample.size(), budget).split(*s.passes_.back(), sample, pieces);
        if (budget.spent())
            return Error{ErrorCode::unsupported, "split regex",
                         cat("'", regex, "' takes more than ", sample_steps, " steps for ", sample.size(),
                             " bytes of ordinary text"),
                         "a long one would take hours, so the model is refused"};
    }
    return s;
}

std::vector<std::string_view> Splitter::split(std::string_view text) const {
    Budget budget(text.size());
    return split(text, budget);
}

std::vector<std::string_view> Splitter::split(std::string_view text, Budget& budget) const {
    std::vector<std::string_view> pieces, next;
    Run run(text.size(), budget);
    if (!passes_.empty()) pieces.reserve(text.size() / 4 + 1);
    for (size_t i = 0; i < text.size();) {
        if (const size_t n = run_length(text.substr(i), true)) {
            const std::string_view valid = text.substr(i, n);
            if (passes_.empty())
                pieces.push_back(valid);
            else
                run.split(*passes_[0], valid, pieces);
            i += n;
        }
        if (const size_t n = run_length(text.substr(i), false)) {
            pieces.push_back(text.substr(i, n));
            i += n;
        }
    }
    for (size_t p = 1; p < passes_.size(); ++p) {
        next.clear();
        for (const std::string_view piece : pieces) {
            const bool valid = run_length(piece, true) == piece.size();
            if (valid)
                run.split(*passes_[p], piece, next);
            else
                next.push_back(piece);
        }
        pieces.swap(next);
    }
    return pieces;
}

}  // namespace nibble
