// References into the document itself; $ref and allOf by merging, which copies.
// Recursion is bounded by the number of merges on the way to one schema.
#include "src/text/grammar/schema_document.h"

#include <algorithm>

#include "ggml/base/cat.h"
#include "src/text/grammar/scanner.h"

namespace nibble {
namespace {

constexpr int32_t max_merges = 64, max_all_merges = 2048;  // allOf, $ref and anyOf on the way to one schema
constexpr size_t max_parts = 1 << 16;                      // of one document

std::optional<size_t> array_index(const std::string& key, size_t size) {
    Scanner in(key, "");
    const auto n = in.take_number(1 << 20);
    if (!n || !in.done() || static_cast<size_t>(*n) >= size) return std::nullopt;
    return static_cast<size_t>(*n);
}
std::string unescaped(std::string s) {  // RFC 6901
    for (const auto& [from, to] : {std::pair{"~1", "/"}, std::pair{"~0", "~"}})
        for (size_t at = 0; (at = s.find(from, at)) != std::string::npos; ++at) s.replace(at, 2, to);
    return s;
}

}  // namespace

Error refused(const std::string& where, std::string what, std::string fix) {
    return {ErrorCode::unsupported, cat("schema ", where), std::move(what), std::move(fix)};
}

Error malformed(const std::string& where, std::string what) {
    return {ErrorCode::invalid_argument, cat("schema ", where), std::move(what), ""};
}

bool only_notes_beside(const Json& s, std::string_view key) {
    return std::ranges::all_of(s.items(), [&](const auto& item) {
        return item.key() == key || item.key() == "$defs" || item.key() == "definitions" ||
               item.key() == "title" || item.key() == "description" || item.key() == "default" ||
               item.key() == "$comment" || item.key() == "examples" || item.key() == "$schema" ||
               item.key() == "$id";
    });
}

Result<void> SchemaDocument::count_part(const std::string& where) {
    if (++n_parts_ > max_parts) return refused(where, cat("has more than ", max_parts, " parts"));
    return {};
}

Result<const Json*> SchemaDocument::resolve(const Json& ref, const std::string& where) const {
    if (!ref.is_string()) return malformed(where, "'$ref' is not a string");
    const auto text = ref.get<std::string>();
    if (!text.starts_with("#"))
        return refused(where, cat("'$ref' to '", text, "': only references into the schema itself"));
    if (text == "#") return &root_;
    if (text[1] != '/') return refused(where, cat("'$ref' to '", text, "': anchors are not supported"));
    const Json* at = &root_;
    for (size_t from = 2; from <= text.size();) {
        const size_t to = std::min(text.find('/', from), text.size());
        const std::string key = unescaped(text.substr(from, to - from));
        const auto index = at->is_array() ? array_index(key, at->size()) : std::nullopt;
        if (at->is_object() && at->contains(key)) {
            at = &(*at)[key];
        } else if (index) {
            at = &(*at)[*index];
        } else {
            return malformed(where, cat("'$ref' to '", text, "', which does not exist"));
        }
        from = to + 1;
    }
    return at;
}

Result<Json> SchemaDocument::flattened(const Json& s, const std::string& where, int32_t merges) {
    if (merges > max_merges || ++n_merges_ > max_all_merges)
        return refused(where, cat("'$ref' and 'allOf' lead on more than ", max_merges, " times, or ",
                                  max_all_merges, " in all"));
    if (!s.is_object()) return s;
    Json own = s;
    own.erase("$ref");
    own.erase("allOf");
    if (s.contains("$ref")) {
        const Json* const target = NIBBLE_TRY(resolve(s["$ref"], where));
        Json other = NIBBLE_TRY(flattened(*target, where, merges + 1));
        if (other.is_object()) other.erase("$defs");
        own = NIBBLE_TRY(merge_schemas(own, other, cat("schema ", where)));
    }
    if (!s.contains("allOf")) return own;
    if (!s["allOf"].is_array()) return malformed(where, "'allOf' is not a list");
    for (const Json& part : s["allOf"]) {
        NIBBLE_TRY(count_part(where));
        const Json other = NIBBLE_TRY(flattened(part, where, merges + 1));
        own = NIBBLE_TRY(merge_schemas(own, other, cat("schema ", where)));
    }
    if (own.is_object() && (own.contains("$ref") || own.contains("allOf")))
        return flattened(own, where, merges + 1);
    return own;
}

}  // namespace nibble
