// Translating a schema, keyword by keyword; a keyword that no branch here has read is refused by name.
// Schemas that are referred to become rules, so that recursion in the schema is recursion in the grammar.
#include "src/text/grammar/json_schema.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "ggml/base/cat.h"
#include "src/text/grammar/grammar.h"
#include "src/text/grammar/json_text.h"
#include "src/text/grammar/regex.h"
#include "src/text/grammar/scanner.h"

namespace nibble {
namespace {

constexpr int32_t max_merges = 64, max_all_merges = 2048;  // allOf, $ref and anyOf on the way to one schema
constexpr size_t max_schema_text = 1 << 18;                // merging copies
constexpr size_t max_schemas = 1 << 16;                    // translated from one document
constexpr size_t max_key_length = 200;                     // of a listed property beside additionalProperties

using Types = std::set<std::string>;
const Types& all_types() {
    static const Types types = {"null", "boolean", "object", "array", "number", "string", "integer"};
    return types;
}

// Keywords by what they speak of; "" for those of every schema.
std::string_view subject_of(const std::string& key) {
    static const std::map<std::string, std::string_view> subjects = {
        {"type", ""},
        {"enum", ""},
        {"const", ""},
        {"properties", "object"},
        {"required", "object"},
        {"additionalProperties", "object"},
        {"minProperties", "object"},
        {"maxProperties", "object"},
        {"items", "array"},
        {"prefixItems", "array"},
        {"minItems", "array"},
        {"maxItems", "array"},
        {"minLength", "string"},
        {"maxLength", "string"},
        {"pattern", "string"},
        {"format", "string"},
        {"minimum", "number"},
        {"maximum", "number"},
        {"exclusiveMinimum", "number"},
        {"exclusiveMaximum", "number"},
    };
    static const std::set<std::string> notes = {"title",
                                                "description",
                                                "default",
                                                "examples",
                                                "$comment",
                                                "$defs",
                                                "definitions",
                                                "$schema",
                                                "$id",
                                                "deprecated",
                                                "readOnly",
                                                "writeOnly",
                                                "contentMediaType",
                                                "contentEncoding"};
    if (const auto it = subjects.find(key); it != subjects.end()) return it->second;
    return notes.count(key) || key.starts_with("x-") ? "" : "?";
}

class Translator {
  public:
    Translator(GrammarSource& source, const Json& root) : g_(source), root_(root), text_(source) {}

    Result<RuleId> document() {
        const RuleId rule = g_.add_rule("#");
        by_ref_["#"] = rule;
        const ExprId body = NIBBLE_TRY(schema(root_, "#"));
        g_.define(rule, body);
        return rule;
    }

  private:
    Error refuse(const std::string& where, std::string what, std::string fix = {}) const {
        return {ErrorCode::unsupported, cat("schema ", where), std::move(what), std::move(fix)};
    }
    Error malformed(const std::string& where, std::string what) const {
        return {ErrorCode::invalid_argument, cat("schema ", where), std::move(what), ""};
    }

    // A rule of its own for what is used more than once.
    ExprId as_rule(ExprId body, const std::string& where) {
        const RuleId rule = g_.add_rule(where);
        g_.define(rule, body);
        return g_.reference(rule);
    }

    Result<const Json*> resolve(const Json& ref, const std::string& where) const {
        if (!ref.is_string()) return malformed(where, "'$ref' is not a string");
        const auto text = ref.get<std::string>();
        if (!text.starts_with("#"))
            return refuse(where, cat("'$ref' to '", text, "': only references into the schema itself"));
        if (text == "#") return &root_;
        if (text[1] != '/') return refuse(where, cat("'$ref' to '", text, "': anchors are not supported"));
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
    static std::optional<size_t> array_index(const std::string& key, size_t size) {
        Scanner in(key, "");
        const auto n = in.take_number(1 << 20);
        if (!n || !in.done() || static_cast<size_t>(*n) >= size) return std::nullopt;
        return static_cast<size_t>(*n);
    }
    static std::string unescaped(std::string s) {  // RFC 6901
        for (const auto& [from, to] : {std::pair{"~1", "/"}, std::pair{"~0", "~"}})
            for (size_t at = 0; (at = s.find(from, at)) != std::string::npos; ++at) s.replace(at, 2, to);
        return s;
    }

    Result<ExprId> schema(const Json& s, const std::string& where) {
        if (++n_schemas_ > max_schemas) return refuse(where, cat("has more than ", max_schemas, " parts"));
        if (++depth_ > max_grammar_nesting)
            return refuse(where, cat("is nested more than ", max_grammar_nesting, " deep"));
        auto result = any_schema(s, where);
        --depth_;
        return result;
    }

    Result<ExprId> any_schema(const Json& s, const std::string& where) {
        if (s == Json(true) || (s.is_object() && s.empty())) return text_.value();
        if (s == Json(false)) return g_.choice({});
        if (!s.is_object()) return malformed(where, "is neither an object nor true or false");
        if (s.contains("$ref") && only_notes_beside(s, "$ref")) return reference(s["$ref"], where);
        if (s.contains("$ref") || s.contains("allOf")) {
            const Json merged = NIBBLE_TRY(flattened(s, where, 0));
            return schema(merged, where);
        }
        if (s.contains("anyOf")) return alternatives(s, "anyOf", where);
        if (s.contains("oneOf")) return alternatives(s, "oneOf", where);
        return plain(s, where);
    }

    static bool only_notes_beside(const Json& s, std::string_view key) {
        return std::ranges::all_of(s.items(), [&](const auto& item) {
            return item.key() == key || item.key() == "$defs" || item.key() == "definitions" ||
                   item.key() == "title" || item.key() == "description" || item.key() == "default" ||
                   item.key() == "$comment" || item.key() == "examples" || item.key() == "$schema" ||
                   item.key() == "$id";
        });
    }

    Result<ExprId> reference(const Json& ref, const std::string& where) {
        const Json* const target = NIBBLE_TRY(resolve(ref, where));
        const auto name = ref.get<std::string>();
        if (const auto known = by_ref_.find(name); known != by_ref_.end()) return g_.reference(known->second);
        const RuleId rule = g_.add_rule(name);
        by_ref_[name] = rule;
        const ExprId body = NIBBLE_TRY(schema(*target, name));
        g_.define(rule, body);
        return g_.reference(rule);
    }

    // Without $ref and allOf at the top.
    Result<Json> flattened(const Json& s, const std::string& where, int32_t merges) {
        if (merges > max_merges || ++n_merges_ > max_all_merges)
            return refuse(where, cat("'$ref' and 'allOf' lead on more than ", max_merges, " times, or ",
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
            if (++n_schemas_ > max_schemas)
                return refuse(where, cat("has more than ", max_schemas, " parts"));
            const Json other = NIBBLE_TRY(flattened(part, where, merges + 1));
            own = NIBBLE_TRY(merge_schemas(own, other, cat("schema ", where)));
        }
        if (own.is_object() && (own.contains("$ref") || own.contains("allOf")))
            return flattened(own, where, merges + 1);
        return own;
    }

    Result<ExprId> alternatives(const Json& s, const std::string& key, const std::string& where) {
        if (!s[key].is_array() || s[key].empty()) return malformed(where, cat("'", key, "' is not a list"));
        Json base = s;
        base.erase(key);
        const bool alone = only_notes_beside(s, key);
        std::vector<Json> flat;
        std::vector<ExprId> ways;
        for (size_t i = 0; i < s[key].size(); ++i) {
            const Json& branch = s[key][i];
            const std::string at = cat(where, "/", key, "/", i);
            if (key == "oneOf" || !alone) flat.push_back(NIBBLE_TRY(flattened(branch, at, 0)));
            if (alone) {
                ways.push_back(NIBBLE_TRY(schema(branch, at)));
            } else {
                const Json merged = NIBBLE_TRY(merge_schemas(base, flat.back(), cat("schema ", at)));
                ways.push_back(NIBBLE_TRY(schema(merged, at)));
            }
        }
        if (key == "oneOf" && flat.size() <= 256)
            for (size_t i = 0; i < flat.size(); ++i)
                for (size_t j = i + 1; j < flat.size(); ++j)
                    if (!exclude_each_other(flat[i], flat[j]))
                        return refuse(where, cat("'oneOf' branches ", i, " and ", j, " may both hold"),
                                      "use anyOf, or tell them apart by type or by a required const");
        if (key == "oneOf" && flat.size() > 256) return refuse(where, "'oneOf' has more than 256 branches");
        return g_.choice(std::move(ways));
    }

    // The types that the schema allows, after `type` or else what the keywords speak of.
    Result<Types> types_of(const Json& s, const std::string& where) {
        Types types, spoken;
        for (const auto& [key, unused] : s.items()) {
            const std::string_view subject = subject_of(key);
            if (subject == "?")
                return refuse(where, cat("the keyword '", key, "' is not supported"), "leave it out");
            if (!subject.empty()) spoken.insert(std::string(subject));
        }
        if (!s.contains("type")) return spoken.empty() ? all_types() : spoken;
        for (const Json& t : s["type"].is_array() ? s["type"] : Json::array({s["type"]})) {
            if (!t.is_string() || !all_types().count(t.get<std::string>()))
                return malformed(where,
                                 cat("'type' is ", t.dump(-1, ' ', false, Json::error_handler_t::replace)));
            types.insert(t.get<std::string>());
        }
        return types;
    }

    Result<ExprId> plain(const Json& s, const std::string& where) {
        const Types types = NIBBLE_TRY(types_of(s, where));
        if (s.contains("enum") || s.contains("const")) return listed_values(s, types, where);
        if (types == all_types()) return text_.value();
        std::vector<ExprId> ways;
        for (const std::string& t : types) {
            if (t == "null") ways.push_back(g_.text("null"));
            if (t == "boolean") ways.push_back(g_.choice({g_.text("true"), g_.text("false")}));
            if (t == "string") ways.push_back(NIBBLE_TRY(string(s, where)));
            if (t == "number") ways.push_back(NIBBLE_TRY(number(s, where)));
            if (t == "integer" && !types.count("number")) ways.push_back(NIBBLE_TRY(integer(s, where)));
            if (t == "object") ways.push_back(NIBBLE_TRY(object(s, where)));
            if (t == "array") ways.push_back(NIBBLE_TRY(array(s, where)));
        }
        return g_.choice(std::move(ways));
    }

    static bool is_of(const Json& v, const Types& types) {
        const bool whole =
            v.is_number_integer() || (v.is_number() && std::trunc(v.get<double>()) == v.get<double>());
        return (v.is_null() && types.count("null")) || (v.is_boolean() && types.count("boolean")) ||
               (v.is_string() && types.count("string")) || (v.is_array() && types.count("array")) ||
               (v.is_object() && types.count("object")) || (v.is_number() && types.count("number")) ||
               (whole && types.count("integer"));
    }

    Result<ExprId> listed_values(const Json& s, const Types& types, const std::string& where) {
        for (const auto& [key, unused] : s.items())
            if (!subject_of(key).empty())
                return refuse(where, cat("'", key, "' beside 'enum' or 'const'"), "leave it out");
        if (s.contains("enum") && !s["enum"].is_array()) return malformed(where, "'enum' is not a list");
        const Json list = s.contains("enum") ? s["enum"] : Json::array({s["const"]});
        std::vector<ExprId> ways;
        for (const Json& v : list) {
            if (!is_of(v, types)) continue;
            if (s.contains("const") && v != s["const"]) continue;
            ways.push_back(g_.text(v.dump(-1, ' ', false, Json::error_handler_t::replace)));
        }
        return g_.choice(std::move(ways));
    }

    // A count keyword, or `absent`.
    Result<int32_t> count(const Json& s, const char* key, int32_t absent, const std::string& where) {
        if (!s.contains(key)) return absent;
        const Json& v = s[key];
        const double n = v.is_number() ? v.get<double>() : -1;
        if (n < 0 || std::trunc(n) != n) return malformed(where, cat("'", key, "' is not a count"));
        if (n > max_repeat) return refuse(where, cat("'", key, "' is larger than ", max_repeat));
        return static_cast<int32_t>(n);
    }

    Result<ExprId> string(const Json& s, const std::string& where) {
        const int32_t min = NIBBLE_TRY(count(s, "minLength", 0, where));
        const int32_t max = NIBBLE_TRY(count(s, "maxLength", unbounded, where));
        const bool lengths = s.contains("minLength") || s.contains("maxLength");
        if (s.contains("pattern") + s.contains("format") + lengths > 1)
            return refuse(where, "'pattern', 'format' and lengths together are not supported",
                          "put the length into the pattern: {m,n}");
        if (s.contains("pattern")) {
            if (!s["pattern"].is_string()) return malformed(where, "'pattern' is not a string");
            RegexOptions options;
            options.write = JsonText::written;
            options.search = true;
            const std::string what = cat("schema ", where, "/pattern");
            return text_.quoted(NIBBLE_TRY(parse_regex(g_, s["pattern"].get<std::string>(), what, options)));
        }
        if (s.contains("format")) {
            if (!s["format"].is_string()) return malformed(where, "'format' is not a string");
            const auto format = s["format"].get<std::string>();
            const std::string_view regex = format_regex(format);
            if (regex.empty()) return refuse(where, cat("the format '", format, "' is not supported"));
            return text_.quoted(NIBBLE_TRY(parse_regex(g_, regex, format)));
        }
        if (max != unbounded && max < min) return g_.choice({});
        return text_.string(min, max);
    }

    // The stricter of an inclusive and an exclusive bound; sign -1 for upper bounds.
    Result<std::optional<double>> bound(const Json& s, const char* key, const std::string& where) {
        if (!s.contains(key)) return std::optional<double>();
        if (!s[key].is_number()) return malformed(where, cat("'", key, "' is not a number"));
        return std::optional(s[key].get<double>());
    }

    Result<ExprId> integer(const Json& s, const std::string& where) {
        constexpr auto most = static_cast<double>(JsonText::largest);
        const auto clamped = [most](double v) { return static_cast<int64_t>(std::clamp(v, -most, most)); };
        int64_t min = -JsonText::largest, max = JsonText::largest;
        const auto exact = [&](const char* key, double rounded) {  // beyond 2^53 a double would be off
            return s[key].is_number_integer() && std::abs(rounded) <= most ? s[key].get<int64_t>()
                                                                           : clamped(rounded);
        };
        if (const auto v = NIBBLE_TRY(bound(s, "minimum", where))) min = exact("minimum", std::ceil(*v));
        if (const auto v = NIBBLE_TRY(bound(s, "maximum", where))) max = exact("maximum", std::floor(*v));
        if (const auto v = NIBBLE_TRY(bound(s, "exclusiveMinimum", where)))
            min = std::max(min, exact("exclusiveMinimum", std::floor(*v)) + 1);
        if (const auto v = NIBBLE_TRY(bound(s, "exclusiveMaximum", where)))
            max = std::min(max, exact("exclusiveMaximum", std::ceil(*v)) - 1);
        return text_.integer(min, max);
    }

    Result<ExprId> number(const Json& s, const std::string& where) {
        std::optional<JsonText::Bound> ends[2];
        for (const bool upper : {false, true})
            for (const bool open : {false, true}) {
                const char* const key =
                    upper ? (open ? "exclusiveMaximum" : "maximum") : (open ? "exclusiveMinimum" : "minimum");
                const auto v = NIBBLE_TRY(bound(s, key, where));
                if (!v) continue;
                if (std::trunc(*v) != *v || std::abs(*v) > 1e15)
                    return refuse(where, cat("'", key, "' of ", *v, " for a number: bounds must be whole"),
                                  "use a whole bound, or integer");
                const JsonText::Bound b{static_cast<int64_t>(*v), open};
                auto& end = ends[upper];
                const bool stricter = !end || (upper ? b.value < end->value : b.value > end->value) ||
                                      (b.value == end->value && open);
                if (stricter) end = b;
            }
        return text_.number(ends[0], ends[1]);
    }

    struct Property {
        ExprId member;  // "name": value
        bool required;
    };

    Result<std::vector<Property>> properties(const Json& s, const Json& others, const std::string& where,
                                             std::vector<std::string>& names) {
        Json list = s.value("properties", Json::object());
        if (!list.is_object()) return malformed(where, "'properties' is not an object");
        std::set<std::string> required;
        const Json given = s.value("required", Json::array());
        if (!given.is_array()) return malformed(where, "'required' is not a list");
        for (const Json& name : given) {
            if (!name.is_string()) return malformed(where, "'required' holds something that is no string");
            required.insert(name.get<std::string>());
            if (!list.contains(name.get<std::string>())) list[name.get<std::string>()] = others;
        }
        std::vector<Property> result;
        for (const auto& [name, value] : list.items()) {
            const std::string at = cat(where, "/properties/", name);
            names.push_back(name);
            const bool needed = required.count(name) > 0;
            if (value == Json(false) && !needed) continue;
            const ExprId content = NIBBLE_TRY(schema(value, at));
            const ExprId key = g_.text(Json(name).dump(-1, ' ', false, Json::error_handler_t::replace));
            result.push_back({as_rule(g_.sequence({key, text_.colon(), content}), at), needed});
        }
        return result;
    }

    Result<ExprId> object(const Json& s, const std::string& where) {
        const bool open = s.contains("additionalProperties");
        const Json others = open ? s["additionalProperties"] : Json(true);
        std::vector<std::string> names;
        const auto list = NIBBLE_TRY(properties(s, others, where, names));
        const bool free_form = !s.contains("properties") && !s.contains("required") && !open;
        const bool extra = (open && others != Json(false)) || free_form;
        const auto n_required = std::ranges::count(list, true, &Property::required);
        if (NIBBLE_TRY(count(s, "minProperties", 0, where)) > n_required)
            return refuse(where, "'minProperties' above the number of required properties");
        const int32_t most = NIBBLE_TRY(count(s, "maxProperties", unbounded, where));
        if (most != unbounded && (extra || static_cast<size_t>(most) < list.size()))
            return refuse(where, "'maxProperties' below the number of possible properties");
        // rest: after a member, with a comma; first: before any.
        ExprId rest = g_.text(""), first = rest;
        if (extra) {
            for (const std::string& name : names)
                if (name.size() > max_key_length)
                    return refuse(where, cat("a property name longer than ", max_key_length,
                                             " bytes beside additionalProperties"));
            const ExprId content = NIBBLE_TRY(schema(others, cat(where, "/additionalProperties")));
            const ExprId member =
                as_rule(g_.sequence({text_.other_key(names), text_.colon(), content}), cat(where, "/..."));
            rest = as_rule(g_.any_number(g_.sequence({text_.comma(), member})), where);
            first = as_rule(g_.optional(g_.sequence({member, rest})), where);
        }
        for (auto p = list.rbegin(); p != list.rend(); ++p) {
            const ExprId alone = g_.sequence({p->member, rest});
            first = as_rule(p->required ? alone : g_.choice({alone, first}), where);
            const ExprId more = g_.sequence({text_.comma(), p->member});
            rest = as_rule(g_.sequence({p->required ? more : g_.optional(more), rest}), where);
        }
        return g_.sequence({g_.text("{"), text_.space(), first, text_.space(), g_.text("}")});
    }

    Result<ExprId> array(const Json& s, const std::string& where) {
        const int32_t min = NIBBLE_TRY(count(s, "minItems", 0, where));
        int32_t max = NIBBLE_TRY(count(s, "maxItems", unbounded, where));
        const Json prefix = s.value("prefixItems", Json::array());
        if (!prefix.is_array()) return malformed(where, "'prefixItems' is not a list");
        const auto n_prefix = static_cast<int32_t>(prefix.size());
        const Json rest_schema = s.value("items", Json(n_prefix == 0 || min > n_prefix));
        if (rest_schema == Json(false)) max = max == unbounded ? n_prefix : std::min(max, n_prefix);
        if (max != unbounded && max < min) return g_.choice({});
        ExprId tail = g_.text("");
        if (max == unbounded || max > n_prefix) {
            const ExprId item =
                as_rule(NIBBLE_TRY(schema(rest_schema, cat(where, "/items"))), cat(where, "/items"));
            const ExprId next = g_.sequence({text_.comma(), item});
            const int32_t least = std::max(min - n_prefix, 0);
            const int32_t most = max == unbounded ? unbounded : max - n_prefix;
            if (n_prefix > 0) {
                tail = g_.repeat(next, least, most);
            } else {
                const auto less = [](int32_t n) { return n == unbounded ? n : std::max(n - 1, 0); };
                tail = g_.sequence({item, g_.repeat(next, less(least), less(most))});
                if (least == 0) tail = g_.optional(tail);
            }
        }
        for (int32_t i = n_prefix; i-- > 0;) {
            const std::string at = cat(where, "/prefixItems/", i);
            const ExprId item = NIBBLE_TRY(schema(prefix[static_cast<size_t>(i)], at));
            if (max != unbounded && i >= max) continue;
            const ExprId here = i > 0 ? g_.sequence({text_.comma(), item, tail}) : g_.sequence({item, tail});
            tail = as_rule(i >= min ? g_.optional(here) : here, at);
        }
        return g_.sequence({g_.text("["), text_.space(), tail, text_.space(), g_.text("]")});
    }

    GrammarSource& g_;
    const Json& root_;
    JsonText text_;
    std::map<std::string, RuleId> by_ref_;
    size_t n_schemas_ = 0;
    int32_t depth_ = 0, n_merges_ = 0;
};

}  // namespace

Result<RuleId> translate_schema(GrammarSource& source, const Json& schema) {
    return Translator(source, schema).document();
}

Result<Grammar> Grammar::from_json_schema(std::string_view text) {
    NIBBLE_TRY(Scanner::check(text, "schema", max_schema_text));
    // Comparing and copying values recurses: the depth is checked before there is a value.
    int32_t depth = 0, deepest = 0;
    bool in_string = false;
    for (size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if (in_string && c == '\\') ++i;
        if (c == '"') in_string = !in_string;
        if (in_string) continue;
        if (c == '[' || c == '{') deepest = std::max(deepest, ++depth);
        if (c == ']' || c == '}') --depth;
    }
    if (deepest > 2 * max_grammar_nesting)
        return Error{ErrorCode::unsupported, "schema", cat("is nested ", deepest, " deep"),
                     cat("at most ", 2 * max_grammar_nesting)};
    const Json schema = Json::parse(text, nullptr, false);
    if (schema.is_discarded()) return Error{ErrorCode::invalid_argument, "schema", "is not valid JSON", ""};
    GrammarSource source;
    const RuleId root = NIBBLE_TRY(translate_schema(source, schema));
    return compile(source, root);
}

}  // namespace nibble
