// Splitter over PCRE2 with JIT; the table of regexes by GGUF `pre` kind.
// std::regex is not an option: it recurses once per character and overflows the stack.
#define PCRE2_CODE_UNIT_WIDTH 8
#include "src/text/split.h"

#include <pcre2.h>

#include "ggml/base/cat.h"
#include "src/text/pcre.h"

namespace nibble {
namespace {

constexpr std::string_view digit = R"(\p{N})";
constexpr std::string_view gpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view llama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view qwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view tekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view o200k =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view newline = R"([\r\n])",
                           cjk = R"([\x{4e00}-\x{9fa5}\x{0800}-\x{4e00}\x{ac00}-\x{d7ff}]+)";

struct Kind {
    std::string_view pre;
    std::vector<std::string_view> passes;
};

const std::vector<Kind>& kinds() {
    static const std::vector<Kind> table = {
        {"gpt-2", {gpt2}},
        {"default", {gpt2}},
        {"llama-bpe", {llama3}},
        {"llama3", {llama3}},
        {"dbrx", {llama3}},
        {"smaug-bpe", {llama3}},
        {"qwen2", {qwen2}},
        {"stablelm2", {qwen2}},
        {"deepseek-r1-qwen", {qwen2}},
        {"smollm", {digit, gpt2}},
        {"starcoder", {digit, gpt2}},
        {"refact", {digit, gpt2}},
        {"command-r", {digit, gpt2}},
        {"deepseek-llm",
         {newline, R"(\s?[\p{Lu}\p{Ll}\p{Lt}]+)",
          R"(\s?[!-/:-~\x{ff01}-\x{ff0f}\x{ff1a}-\x{ff5e}\x{2018}-\x{201f}\x{3000}-\x{3002}]+)", R"(\s+$)",
          cjk, R"(\p{N}+)"}},
        {"deepseek-coder", {newline, R"(\s?\p{L}+)", R"(\s?\p{P}+)", cjk, digit}},
        {"tekken", {tekken}},
        {"gpt-4o", {o200k}},
        {"o200k", {o200k}},
    };
    return table;
}

}  // namespace

struct Splitter::Pass {
    std::shared_ptr<pcre2_code> code;

    // Appends the pieces of `text`: matches, and what lies between them.
    void split(std::string_view text, pcre2_match_data* data, pcre2_match_context* context,
               std::vector<std::string_view>& out) const {
        const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
        size_t done = 0, from = 0;
        const auto emit = [&](size_t begin, size_t end) {
            if (end > begin) out.push_back(text.substr(begin, end - begin));
        };
        while (from < text.size()) {
            // A failed match (none, or a limit was hit) leaves the rest as one piece: never an endless loop.
            if (pcre2_match(code.get(), subject, text.size(), from, 0, data, context) < 0) break;
            const PCRE2_SIZE* span = pcre2_get_ovector_pointer(data);
            if (span[1] == span[0]) {
                from = span[1] + 1;
                continue;
            }
            emit(done, span[0]);
            emit(span[0], span[1]);
            done = from = span[1];
        }
        emit(done, text.size());
    }
};

Result<std::vector<std::string>> split_regexes(std::string_view pre) {
    for (const Kind& k : kinds())
        if (k.pre == pre) return std::vector<std::string>(k.passes.begin(), k.passes.end());
    return Error{ErrorCode::unsupported, "tokenizer.ggml.pre",
                 cat("'", pre, "' is not a known way of splitting words"),
                 "the tokens would be wrong, so the model is refused"};
}

Result<Splitter> Splitter::create(std::span<const std::string> regexes) {
    Splitter s;
    for (const std::string& regex : regexes)
        s.passes_.push_back(std::make_shared<Pass>(Pass{NIBBLE_TRY(compile_regex(regex, "split regex"))}));
    return s;
}

std::vector<std::string_view> Splitter::split(std::string_view text) const {
    std::vector<std::string_view> pieces{text}, next;
    if (text.empty()) return {};
    const std::unique_ptr<pcre2_match_data, void (*)(pcre2_match_data*)> data(
        pcre2_match_data_create(1, nullptr), pcre2_match_data_free);
    const std::unique_ptr<pcre2_match_context, void (*)(pcre2_match_context*)> context(
        pcre2_match_context_create(nullptr), pcre2_match_context_free);
    const std::unique_ptr<pcre2_jit_stack, void (*)(pcre2_jit_stack*)> stack(
        pcre2_jit_stack_create(32 * 1024, 16 * 1024 * 1024, nullptr), pcre2_jit_stack_free);
    pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
    for (const auto& pass : passes_) {
        next.clear();
        for (const std::string_view piece : pieces) pass->split(piece, data.get(), context.get(), next);
        pieces.swap(next);
    }
    return pieces;
}

}  // namespace nibble
