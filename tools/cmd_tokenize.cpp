// nibble tokenize: ids and pieces of a text, or the text of ids; for people and for scripts.
// Needs only a vocabulary: weights are neither required nor read.
#include <charconv>
#include <cstdio>

#include <unistd.h>

#include "src/model/vocab_file.h"
#include "tools/options.h"
#include "tools/standard_input.h"

namespace nibble {
namespace {

struct TokenizeCommand {
    ModelOption model;
    std::string text;
    bool has_text = false, ids = false, detokenize = false, special = false, bos = false;

    Result<int> operator()() const;
    Result<std::string> input() const;
    Result<int> print_text(const Tokenizer& tokenizer, const std::string& input) const;
};

// A piece for people: control characters and broken UTF-8 as escapes.
std::string printable(std::string_view piece) {
    std::string s;
    for (const char c : piece) {
        const auto u = static_cast<unsigned char>(c);
        char hex[5];
        if (c == '\n')
            s += "\\n";
        else if (c == '\t')
            s += "\\t";
        else if (c == '\r')
            s += "\\r";
        else if (u < 0x20 || u == 0x7f)
            std::snprintf(hex, sizeof hex, "\\x%02x", u), s += hex;
        else
            s += c;
    }
    return s;
}

Result<std::string> TokenizeCommand::input() const {
    if (has_text) return text;
    if (::isatty(STDIN_FILENO))
        return Error{ErrorCode::invalid_argument, "text", "is missing",
                     "give it as an argument or pipe it in"};
    return read_standard_input();
}

Result<int> TokenizeCommand::print_text(const Tokenizer& tokenizer, const std::string& input) const {
    std::vector<Token> tokens;
    const char *p = input.data(), *end = p + input.size();
    while (p != end) {
        if (std::string_view(" \t\r\n,[]").find(*p) != std::string_view::npos) {
            ++p;
            continue;
        }
        Token t = 0;
        const auto r = std::from_chars(p, end, t);
        if (r.ec != std::errc{} || t < 0 || static_cast<size_t>(t) >= tokenizer.n_vocab())
            return Error{ErrorCode::invalid_argument, "--detokenize",
                         cat("'", std::string_view(p, std::min<size_t>(20, static_cast<size_t>(end - p))),
                             "' is not a token id"),
                         cat("ids are 0 to ", tokenizer.n_vocab() - 1)};
        tokens.push_back(t);
        p = r.ptr;
    }
    const std::string out = tokenizer.decode(tokens);
    std::fwrite(out.data(), 1, out.size(), stdout);
    return exit_ok;
}

Result<int> TokenizeCommand::operator()() const {
    const std::string given = NIBBLE_TRY(input());
    const TensorFile file = NIBBLE_TRY(TensorFile::open(NIBBLE_TRY(model.path())));
    const Tokenizer tokenizer = NIBBLE_TRY(read_tokenizer(file));
    if (detokenize) return print_text(tokenizer, given);
    EncodeOptions options;
    options.parse_special = special;
    options.add_bos = bos;
    const std::vector<Token> tokens = tokenizer.encode(given, options);
    std::string out;
    for (const Token t : tokens)
        out += ids ? cat(out.empty() ? "" : " ", t) : cat(t, "\t", printable(tokenizer.piece(t)), "\n");
    if (ids) out += "\n";
    std::fwrite(out.data(), 1, out.size(), stdout);
    return exit_ok;
}

std::function<Result<int>()> setup(Flags& flags) {
    auto c = std::make_shared<TokenizeCommand>();
    flags.each_value(
        "text", [c](const std::string& text) { c->text = text, c->has_text = true; },
        "the text [standard input]");
    c->model.add(flags);
    const auto ids = flags.on("--ids", c->ids, "ids only, separated by spaces, on one line");
    const auto back = flags.on("--detokenize", c->detokenize, "the input is ids; print their text exactly");
    const auto special =
        flags.on("--special", c->special, "special tokens in the text are parsed, not taken as text");
    const auto bos = flags.on("--bos", c->bos, "add the BOS and EOS tokens that the model asks for");
    for (const Flag o : {ids, special, bos}) back.excludes(o);
    flags.examples(
        "  nibble tokenize \"Once upon a time\"\n  nibble tokenize --ids < story.txt | nibble "
        "tokenize --detokenize");
    return [c] { return (*c)(); };
}

}  // namespace

extern const Command tokenize_command;
const Command tokenize_command{"tokenize", "Show the tokens of a text, or the text of tokens", setup};

}  // namespace nibble
