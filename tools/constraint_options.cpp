// Reading the grammar that an answer must follow.
// One of the three flags at most.
#include "tools/constraint_options.h"

#include "ggml/base/cat.h"
#include "src/text/utf8.h"
#include "tools/standard_input.h"

namespace nibble {

void ConstraintOptions::add(Flags& flags, const std::string& group) {
    const auto g = flags.value("--grammar", grammar, "the answer follows this GBNF grammar; - is stdin")
                       .type_name("FILE");
    const auto s = flags.value("--json-schema", schema, "the answer is JSON after this schema; - is stdin")
                       .type_name("FILE");
    const auto r = flags
                       .each_value(
                           "--regex", [this](const std::string& text) { regex = text, has_regex = true; },
                           "the answer matches this regular expression")
                       .type_name("RE");
    g.group("More about the answer");
    for (const auto o : {s, r}) o.group(group);
    g.excludes(s).excludes(r);
    s.excludes(r);
}

bool ConstraintOptions::reads_standard_input() const { return grammar == "-" || schema == "-"; }

namespace {

// What cannot be kept to is a wrong use, whatever is wrong with it.
Result<std::optional<Grammar>> read_as(const std::string& source, Result<Grammar> compiled) {
    if (compiled) return std::optional(std::move(*compiled));
    Error e = compiled.error();
    e.code = ErrorCode::invalid_argument;
    e.where = e.where.empty() ? source : cat(source, ": ", e.where);
    return e;
}

}  // namespace

Result<std::optional<Grammar>> ConstraintOptions::read() const {
    if (has_regex) return read_as("--regex", Grammar::from_regex(regex));
    const std::string& file = grammar.empty() ? schema : grammar;
    if (file.empty()) return std::optional<Grammar>();
    const std::string whole = NIBBLE_TRY(read_input(file));
    const std::string_view text = without_byte_order_mark(whole);
    return read_as(input_name(file),
                   grammar.empty() ? Grammar::from_json_schema(text) : Grammar::from_gbnf(text));
}

}  // namespace nibble
