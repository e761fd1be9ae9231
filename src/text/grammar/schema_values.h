// Schemas of strings and numbers as grammar expressions, and the keywords that count something.
// No references and no nesting here: those are the translator's.
#pragma once

#include <set>

#include "src/text/grammar/json_schema.h"
#include "src/text/grammar/json_text.h"

namespace nibble {

// Whether a value is of one of the named types; "integer" also takes 1.0.
bool is_of_type(const Json& v, const std::set<std::string>& types);
// minLength, maxItems, ...: what the keyword says, or `absent` without it.
Result<int32_t> schema_count(const Json& s, const char* key, int32_t absent, const std::string& where);

class SchemaValues {
  public:
    SchemaValues(GrammarSource& source, JsonText& text) : g_(source), text_(text) {}
    Result<ExprId> string(const Json& s, const std::string& where);   // pattern, format or lengths
    Result<ExprId> integer(const Json& s, const std::string& where);  // exact bounds
    Result<ExprId> number(const Json& s, const std::string& where);   // whole bounds

  private:
    GrammarSource& g_;
    JsonText& text_;
};

}  // namespace nibble
