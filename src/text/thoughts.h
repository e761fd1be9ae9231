// Thoughts: what a model writes for itself before it answers. In text they stand between <think> and
// </think>, whatever the tokens are by which a family of models marks them.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/text/vocab.h"

namespace nibble {

constexpr std::string_view think_open = "<think>", think_close = "</think>";

// How a family marks parts of an answer. `open` and `close` are tokens. With a `name_end` (a token, or a
// character of text) the part begins with a name, which is not shown: it holds thoughts unless its name is
// one of `answers`.
struct ThoughtMarks {
    std::string_view open, close, name_end;
    std::span<const std::string_view> answers{};
    std::string_view next{};    // a token behind which the name of the next part follows, too
    std::string_view direct{};  // begins an answer without thoughts
    bool control = true;        // of marks that are text nothing has to be said, if they are <think> already
};

// Those of a vocabulary, and the ids there.
struct ThoughtTokens {
    const ThoughtMarks* marks = nullptr;
    Token open = -1, close = -1, name_end = -1, next = -1;
};
// `id_of`: the token of a name, -1 if there is none, or it has to be a control token and is not.
std::optional<ThoughtTokens> find_thought_tokens(
    const std::function<Token(std::string_view name, bool control)>& id_of);

// Follows the parts of one answer, token by token.
class PartReader {
  public:
    // What the token adds to the text: its bytes, `text` (of a control token none), unless they are a mark or
    // a name. `tokens` are those of the vocabulary, the same at each call.
    std::string push(const ThoughtTokens& tokens, Token token, std::string_view text);

  private:
    std::string begin(const ThoughtMarks& marks);
    std::string end(const ThoughtMarks& marks);
    std::string shown(std::string_view text);

    bool naming_ = false, thinking_ = false, gap_ = false;
    std::string name_;
};

// Tells thoughts from answer in text that comes in pieces of any size. The tags, and white space between the
// thoughts and the answer, count as thoughts.
class ThoughtSplitter {
  public:
    struct Piece {
        std::string text;
        bool thought;
    };
    explicit ThoughtSplitter(bool thinking = false) : thinking_(thinking) {}  // it begins inside of thoughts

    std::vector<Piece> push(std::string_view text);
    std::vector<Piece> flush();  // what was held back: the beginning of a tag

  private:
    void put(std::vector<Piece>& out, std::string_view text);

    bool thinking_, behind_ = false;  // behind: thoughts have ended, and no answer has begun
    std::string held_;
};

struct SplitAnswer {
    std::string thoughts, answer;  // without tags and the white space at the ends of the thoughts
};
SplitAnswer split_thoughts(std::string_view text, bool thinking = false);

}  // namespace nibble
