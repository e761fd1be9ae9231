// JSON Schema (draft 2020-12) as a grammar. Every text of the grammar is valid against the schema; a keyword
// that could not be kept to is refused by name. https://json-schema.org/draft/2020-12
#pragma once

#include <string_view>

#include <nlohmann/json.hpp>

#include "ggml/base/result.h"
#include "src/text/grammar/expr.h"

namespace nibble {

using Json = nlohmann::ordered_json;

// Supported: true and false; type (one or several), enum, const; properties, required, additionalProperties,
// minProperties and maxProperties where they change nothing; items, prefixItems, minItems, maxItems;
// minLength, maxLength; pattern (regex.h, without lengths); format date, time, date-time, duration, uuid,
// ipv4, ipv6, email, hostname, uri; minimum, maximum, exclusiveMinimum, exclusiveMaximum (exact for integers;
// for numbers bounds must be whole); anyOf; oneOf of branches that exclude each other; allOf of schemas that
// can be merged; $ref to the document itself (#, #/...), also recursive; $defs, definitions; annotations.
//
// Layout: properties in the schema's order, optional ones may be left out. Without additionalProperties only
// the listed ones are written; with it others follow them. Without type, keywords tell it (properties: an
// object). White space: see JsonText::space.
Result<RuleId> translate_schema(GrammarSource& source, const Json& schema);

// One schema that says what both say; for allOf, and for keywords beside $ref, anyOf and oneOf. An Error
// names a keyword that cannot be merged.
Result<Json> merge_schemas(const Json& a, const Json& b, std::string_view where);
// Whether it is certain that no value is valid against both (neither holds a $ref at the top).
bool exclude_each_other(const Json& a, const Json& b);

// The regular expression of a format; empty: unknown.
std::string_view format_regex(std::string_view format);

}  // namespace nibble
