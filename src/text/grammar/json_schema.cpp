// Translating a schema, keyword by keyword; a keyword that no branch here has read is refused by name.
// Schemas that are referred to become rules, so that recursion in the schema is recursion in the grammar.
#include "src/text/grammar/json_schema.h"

#include <algorithm>
#include <map>
#include <set>

#include "ggml/base/cat.h"
#include "src/text/bounded_json.h"
#include "src/text/grammar/grammar.h"
#include "src/text/grammar/scanner.h"
#include "src/text/grammar/schema_document.h"
#include "src/text/grammar/schema_values.h"

namespace nibble {
namespace {

constexpr size_t max_schema_text = 1 << 18;  // merging copies
constexpr size_t max_key_length = 200;       // of a listed property beside additionalProperties

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
    Translator(GrammarSource& source, const Json& root)
        : g_(source), doc_(root), text_(source), values_(source, text_) {}

    Result<RuleId> document() {
        const RuleId rule = g_.add_rule("#");
        by_ref_["#"] = rule;
        const ExprId body = NIBBLE_TRY(schema(doc_.root(), "#"));
        g_.define(rule, body);
        return rule;
    }

  private:
    // A rule of its own for what is used more than once.
    ExprId as_rule(ExprId body, const std::string& where) {
        const RuleId rule = g_.add_rule(where);
        g_.define(rule, body);
        return g_.reference(rule);
    }

    Result<ExprId> schema(const Json& s, const std::string& where) {
        NIBBLE_TRY(doc_.count_part(where));
        if (++depth_ > max_grammar_nesting)
            return refused(where, cat("is nested more than ", max_grammar_nesting, " deep"));
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
            const Json merged = NIBBLE_TRY(doc_.flattened(s, where));
            return schema(merged, where);
        }
        if (s.contains("anyOf")) return alternatives(s, "anyOf", where);
        if (s.contains("oneOf")) return alternatives(s, "oneOf", where);
        return plain(s, where);
    }

    Result<ExprId> reference(const Json& ref, const std::string& where) {
        const Json* const target = NIBBLE_TRY(doc_.resolve(ref, where));
        const auto name = ref.get<std::string>();
        if (const auto known = by_ref_.find(name); known != by_ref_.end()) return g_.reference(known->second);
        const RuleId rule = g_.add_rule(name);
        by_ref_[name] = rule;
        const ExprId body = NIBBLE_TRY(schema(*target, name));
        g_.define(rule, body);
        return g_.reference(rule);
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
            if (key == "oneOf" || !alone) flat.push_back(NIBBLE_TRY(doc_.flattened(branch, at)));
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
                        return refused(where, cat("'oneOf' branches ", i, " and ", j, " may both hold"),
                                       "use anyOf, or tell them apart by type or by a required const");
        if (key == "oneOf" && flat.size() > 256) return refused(where, "'oneOf' has more than 256 branches");
        return g_.choice(std::move(ways));
    }

    // The types that the schema allows, after `type` or else what the keywords speak of.
    Result<Types> types_of(const Json& s, const std::string& where) {
        Types types, spoken;
        for (const auto& [key, unused] : s.items()) {
            const std::string_view subject = subject_of(key);
            if (subject == "?")
                return refused(where, cat("the keyword '", key, "' is not supported"), "leave it out");
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
            if (t == "string") ways.push_back(NIBBLE_TRY(values_.string(s, where)));
            if (t == "number") ways.push_back(NIBBLE_TRY(values_.number(s, where)));
            if (t == "integer" && !types.count("number"))
                ways.push_back(NIBBLE_TRY(values_.integer(s, where)));
            if (t == "object") ways.push_back(NIBBLE_TRY(object(s, where)));
            if (t == "array") ways.push_back(NIBBLE_TRY(array(s, where)));
        }
        return g_.choice(std::move(ways));
    }

    Result<ExprId> listed_values(const Json& s, const Types& types, const std::string& where) {
        for (const auto& [key, unused] : s.items())
            if (!subject_of(key).empty())
                return refused(where, cat("'", key, "' beside 'enum' or 'const'"), "leave it out");
        if (s.contains("enum") && !s["enum"].is_array()) return malformed(where, "'enum' is not a list");
        const Json list = s.contains("enum") ? s["enum"] : Json::array({s["const"]});
        std::vector<ExprId> ways;
        for (const Json& v : list) {
            if (!is_of_type(v, types)) continue;
            if (s.contains("const") && v != s["const"]) continue;
            ways.push_back(g_.text(v.dump(-1, ' ', false, Json::error_handler_t::replace)));
        }
        return g_.choice(std::move(ways));
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
        if (NIBBLE_TRY(schema_count(s, "minProperties", 0, where)) > n_required)
            return refused(where, "'minProperties' above the number of required properties");
        const int32_t most = NIBBLE_TRY(schema_count(s, "maxProperties", unbounded, where));
        if (most != unbounded && (extra || static_cast<size_t>(most) < list.size()))
            return refused(where, "'maxProperties' below the number of possible properties");
        // rest: after a member, with a comma; first: before any.
        ExprId rest = g_.text(""), first = rest;
        if (extra) {
            for (const std::string& name : names)
                if (name.size() > max_key_length)
                    return refused(where, cat("a property name longer than ", max_key_length,
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
        const int32_t min = NIBBLE_TRY(schema_count(s, "minItems", 0, where));
        int32_t max = NIBBLE_TRY(schema_count(s, "maxItems", unbounded, where));
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
    SchemaDocument doc_;
    JsonText text_;
    SchemaValues values_;
    std::map<std::string, RuleId> by_ref_;
    int32_t depth_ = 0;
};

}  // namespace

Result<RuleId> translate_schema(GrammarSource& source, const Json& schema) {
    return Translator(source, schema).document();
}

Result<Grammar> Grammar::from_json_schema(std::string_view text) {
    NIBBLE_TRY(Scanner::check(text, "schema", max_schema_text));
    const Json schema =
        NIBBLE_TRY(parse_bounded<Json>(text, "schema", 2 * max_grammar_nesting, ErrorCode::invalid_argument));
    GrammarSource source;
    const RuleId root = NIBBLE_TRY(translate_schema(source, schema));
    return compile(source, root);
}

}  // namespace nibble
