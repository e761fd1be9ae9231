// Splits a template into literal text and the tokens of its tags, with the white space rules of trim_blocks,
// lstrip_blocks and the '-' and '+' marks (Jinja's "Template Designer Documentation": White Space Control).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ggml/base/result.h"

namespace nibble::jinja {

enum class Tok : uint8_t {
    data,
    variable_begin,
    variable_end,
    block_begin,
    block_end,
    name,
    string,
    integer,
    real,
    add,
    sub,
    mul,
    div,
    floor_div,
    mod,
    pow,
    tilde,
    eq,
    ne,
    lt,
    le,
    gt,
    ge,
    assign,
    dot,
    comma,
    colon,
    semicolon,
    pipe,
    lparen,
    rparen,
    lbracket,
    rbracket,
    lbrace,
    rbrace,
    end,
};

struct Token {
    Tok type = Tok::end;
    uint32_t line = 0;
    std::string text;  // data, names, and strings with their escapes resolved
    int64_t integer = 0;
    double real = 0;
};

// The last token is Tok::end. `name` is the template's, for errors ("name:line").
Result<std::vector<Token>> tokenize(std::string_view source, const std::string& name);

std::string_view spelling(Tok t);  // "'%}'", "a name", … for errors

}  // namespace nibble::jinja
