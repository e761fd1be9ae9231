// A JSON Schema document: where its references lead, and one schema instead of several that all must hold.
// Bounds the work that a document can ask for; its errors say where in the document they are.
#pragma once

#include "src/text/grammar/json_schema.h"

namespace nibble {

// What the program does not support, and what no schema may say; `where` is a JSON pointer with '#'.
Error refused(const std::string& where, std::string what, std::string fix = {});
Error malformed(const std::string& where, std::string what);

// Whether the keywords other than `key` say nothing about values.
bool only_notes_beside(const Json& s, std::string_view key);

class SchemaDocument {
  public:
    explicit SchemaDocument(const Json& root) : root_(root) {}  // must outlive this
    const Json& root() const { return root_; }

    // The target of a `$ref`: "#" or "#/pointer" (RFC 6901).
    Result<const Json*> resolve(const Json& ref, const std::string& where) const;
    // The same schema without $ref and allOf at the top.
    Result<Json> flattened(const Json& s, const std::string& where) { return flattened(s, where, 0); }
    // One more schema is translated or merged. An Error when there are too many.
    Result<void> count_part(const std::string& where);

  private:
    Result<Json> flattened(const Json& s, const std::string& where, int32_t merges);

    const Json& root_;
    size_t n_parts_ = 0;
    int32_t n_merges_ = 0;
};

}  // namespace nibble
