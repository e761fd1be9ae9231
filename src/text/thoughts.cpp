// The marks of each family are rows of a table; a new one is a row. Sources: OpenAI's "Harmony response
// format", Google's "Gemma 4 prompt formatting", the chat templates of Magistral, Command A and Seed-OSS.
#include "src/text/thoughts.h"

#include <algorithm>
#include <utility>

namespace nibble {
namespace {

constexpr std::string_view white = " \t\r\n";
constexpr size_t longest_name = 64;  // what is longer is no name but text

// "assistant" names a part that has no channel.
constexpr std::string_view harmony_answers[] = {"final", "commentary", "assistant"};
constexpr ThoughtMarks families[] = {
    {.open = "<|channel|>",
     .close = "<|end|>",
     .name_end = "<|message|>",
     .answers = harmony_answers,
     .next = "<|start|>",
     .direct = "<|channel|>final<|message|>"},
    {.open = "<|channel>", .close = "<channel|>", .name_end = "\n"},
    {.open = "[THINK]", .close = "[/THINK]", .name_end = ""},
    {.open = "<|START_THINKING|>", .close = "<|END_THINKING|>", .name_end = ""},
    {.open = "<seed:think>", .close = "</seed:think>", .name_end = "", .control = false},
    {.open = think_open, .close = think_close, .name_end = ""},
};

// How many bytes at the end of text begin the tag.
size_t partial(std::string_view text, std::string_view tag) {
    for (size_t n = std::min(text.size(), tag.size() - 1); n > 0; --n)
        if (text.ends_with(tag.substr(0, n))) return n;
    return 0;
}

}  // namespace

std::optional<ThoughtTokens> find_thought_tokens(
    const std::function<Token(std::string_view name, bool control)>& id_of) {
    for (const ThoughtMarks& f : families) {
        const auto find = [&](std::string_view name, Token& id) {
            if (!name.empty() && name != "\n") id = id_of(name, f.control);
            return name.empty() || name == "\n" || id >= 0;
        };
        ThoughtTokens ids{&f};
        if (find(f.open, ids.open) && find(f.close, ids.close) && find(f.name_end, ids.name_end) &&
            find(f.next, ids.next))
            return ids;
    }
    return {};
}

std::string PartReader::shown(std::string_view text) {
    if (text.empty()) return {};
    const bool gap = std::exchange(gap_, false) && text[0] != '\n';
    return std::string(gap ? "\n\n" : "").append(text);
}

std::string PartReader::begin(const ThoughtMarks& marks) {
    naming_ = false;
    const auto named = [&](std::string_view n) { return std::string_view(name_).starts_with(n); };
    if (thinking_ || std::ranges::any_of(marks.answers, named)) return {};
    thinking_ = true;
    return shown(think_open);
}

// Thoughts may have begun in the prompt, where parts have no names.
std::string PartReader::end(const ThoughtMarks& marks) {
    gap_ = true;
    return std::exchange(thinking_, false) || marks.name_end.empty() ? std::string(think_close) : "";
}

std::string PartReader::push(const ThoughtTokens& tokens, Token token, std::string_view text) {
    const ThoughtMarks& marks = *tokens.marks;
    if (token == tokens.open || (tokens.next >= 0 && token == tokens.next)) {
        std::string out = thinking_ ? end(marks) : "";  // one that was not closed
        name_.clear();
        naming_ = !marks.name_end.empty();
        return naming_ ? out : out + begin(marks);
    }
    if (token == tokens.close) {
        std::string out = naming_ ? begin(marks) : "";
        return out + end(marks);
    }
    if (!naming_) return shown(text);
    if (tokens.name_end >= 0 && token == tokens.name_end) return begin(marks);
    const size_t at = tokens.name_end < 0 ? text.find(marks.name_end) : std::string_view::npos;
    name_ += text.substr(0, at);
    if (at != std::string_view::npos) {
        std::string out = begin(marks);
        return out + shown(text.substr(at + marks.name_end.size()));
    }
    if (name_.size() <= longest_name) return {};
    naming_ = false;
    return shown(name_);
}

void ThoughtSplitter::put(std::vector<Piece>& out, std::string_view text) {
    if (behind_ && !thinking_) {
        const size_t n = std::min(text.find_first_not_of(white), text.size());
        if (n > 0) out.push_back({std::string(text.substr(0, n)), true});
        text.remove_prefix(n);
        behind_ = text.empty();
    }
    if (!text.empty()) out.push_back({std::string(text), thinking_});
}

std::vector<ThoughtSplitter::Piece> ThoughtSplitter::push(std::string_view text) {
    std::vector<Piece> out;
    held_ += text;
    std::string_view rest = held_;
    for (;;) {
        const std::string_view tag = thinking_ ? think_close : think_open;
        const size_t at = rest.find(tag);
        if (at == std::string_view::npos) break;
        put(out, rest.substr(0, at));
        if (!thinking_) behind_ = false;
        thinking_ = true;
        put(out, tag);
        thinking_ = tag == think_open;
        behind_ = !thinking_;
        rest.remove_prefix(at + tag.size());
    }
    const size_t sure = rest.size() - partial(rest, thinking_ ? think_close : think_open);
    put(out, rest.substr(0, sure));
    held_ = std::string(rest.substr(sure));
    return out;
}

std::vector<ThoughtSplitter::Piece> ThoughtSplitter::flush() {
    std::vector<Piece> out;
    put(out, held_);
    held_.clear();
    return out;
}

SplitAnswer split_thoughts(std::string_view text, bool thinking) {
    SplitAnswer split;
    ThoughtSplitter splitter(thinking);
    for (const auto& pieces : {splitter.push(text), splitter.flush()})
        for (const auto& [piece, thought] : pieces)
            if (!thought)
                split.answer += piece;
            else if (piece != think_open && piece != think_close)
                split.thoughts += piece;
    std::string& t = split.thoughts;
    t.erase(t.find_last_not_of(white) + 1);
    t.erase(0, t.find_first_not_of(white));
    return split;
}

}  // namespace nibble
