// Merging two schemas into one, keyword by keyword, and telling whether two exclude each other.
// Only merges that keep the meaning exactly, or narrow it.
#include <algorithm>

#include "ggml/base/cat.h"
#include "src/text/grammar/json_schema.h"

namespace nibble {
namespace {

bool one_of(std::string_view key, std::initializer_list<std::string_view> keys) {
    return std::ranges::find(keys, key) != keys.end();
}

Json as_list(const Json& v) { return v.is_array() ? v : Json::array({v}); }

bool same_type(const Json& a, const Json& b) {  // a: allowed, b: wanted; an integer is a number
    return a == b || (a == "number" && b == "integer");
}

Json common_types(const Json& a, const Json& b) {
    Json both = Json::array();
    for (const Json& x : as_list(a))
        for (const Json& y : as_list(b)) {
            const Json* t = same_type(x, y) ? &y : same_type(y, x) ? &x : nullptr;
            if (t && std::ranges::find(both, *t) == both.end()) both.push_back(*t);
        }
    return both;
}

Json both_of(const Json& a, const Json& b) { return a == b ? a : Json{{"allOf", Json::array({a, b})}}; }

// What a schema says about a property that it does not list.
Json unlisted(const Json& schema) { return schema.value("additionalProperties", Json(true)); }

void merge_properties(Json& out, const Json& a, const Json& b) {
    Json all = Json::object();
    const auto add_from = [&](const Json& own, const Json& other, bool second) {
        const auto list = own.find("properties");
        if (list == own.end()) return;
        for (const auto& [name, schema] : list->items()) {
            const auto others = other.find("properties");
            const bool in_both = others != other.end() && others->contains(name);
            if (in_both && second) continue;
            const Json more = in_both ? (*others)[name] : unlisted(other);
            all[name] = more == Json(true) ? schema : both_of(schema, more);
        }
    };
    add_from(a, b, false);
    add_from(b, a, true);
    if (a.contains("properties") || b.contains("properties")) out["properties"] = all;
    if (a.contains("additionalProperties") && b.contains("additionalProperties"))
        out["additionalProperties"] = both_of(unlisted(a), unlisted(b));
}

bool known_number(const Json& v) { return v.is_number(); }

// Keywords that both have, except those of objects. False: they cannot be merged.
bool merge_keyword(Json& out, const std::string& key, const Json& x, const Json& y) {
    if (x == y) return true;
    if (key == "type") {
        out[key] = common_types(x, y);
    } else if (key == "required") {
        if (!x.is_array() || !y.is_array()) return false;
        for (const Json& name : y)
            if (std::ranges::find(x, name) == x.end()) out[key].push_back(name);
    } else if (key == "enum") {
        if (!x.is_array() || !y.is_array()) return false;
        Json both = Json::array();
        for (const Json& v : x)
            if (std::ranges::find(y, v) != y.end()) both.push_back(v);
        out[key] = both;
    } else if (one_of(key, {"minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"})) {
        if (!known_number(x) || !known_number(y)) return false;
        out[key] = x < y ? y : x;
    } else if (one_of(key, {"maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"})) {
        if (!known_number(x) || !known_number(y)) return false;
        out[key] = x < y ? x : y;
    } else if (key == "items") {
        out[key] = both_of(x, y);
    } else if (key == "allOf") {
        for (const Json& v : y) out[key].push_back(v);
    } else {
        return one_of(key, {"title", "description", "default", "examples", "$comment", "$defs", "definitions",
                            "$schema", "$id", "deprecated", "readOnly", "writeOnly"});
    }
    return true;
}

Json with_enum(Json schema) {
    if (!schema.contains("const")) return schema;
    Json value = Json::array({schema["const"]});
    schema.erase("const");
    if (schema.contains("enum")) {
        const Json& list = schema["enum"];
        if (list.is_array() && std::ranges::find(list, value[0]) == list.end()) value = Json::array();
    }
    schema["enum"] = std::move(value);
    return schema;
}

}  // namespace

Result<Json> merge_schemas(const Json& first, const Json& second, std::string_view where) {
    if (first == Json(true)) return second;
    if (second == Json(true)) return first;
    if (first == Json(false) || second == Json(false)) return Json(false);
    if (!first.is_object() || !second.is_object())
        return Error{ErrorCode::invalid_argument, std::string(where), "is not a schema", ""};
    const Json a = with_enum(first), b = with_enum(second);
    Json out = a;
    for (const auto& [key, value] : b.items()) {
        if (one_of(key, {"properties", "additionalProperties"})) {
            if (!out.contains(key)) out[key] = value;
            continue;
        }
        if (!a.contains(key)) {
            out[key] = value;
        } else if (!merge_keyword(out, key, a[key], value)) {
            return Error{ErrorCode::unsupported, std::string(where),
                         cat("'", key, "' in two schemas that hold together cannot be merged"),
                         "write one schema"};
        }
    }
    // items speaks of what comes after the other's prefixItems.
    for (const auto* s : {&a, &b}) {
        const Json& other = s == &a ? b : a;
        if (s->contains("prefixItems") && !(other == *s) && other.contains("items"))
            return Error{ErrorCode::unsupported, std::string(where),
                         "'prefixItems' and 'items' in two schemas that hold together cannot be merged",
                         "write one schema"};
    }
    merge_properties(out, a, b);
    return out;
}

bool exclude_each_other(const Json& first, const Json& second) {
    if (first == Json(false) || second == Json(false)) return true;
    if (!first.is_object() || !second.is_object()) return false;
    const Json a = with_enum(first), b = with_enum(second);
    const auto excludes = [](const Json& x, const Json& y) {
        return x.is_array() && y.is_array() &&
               std::ranges::none_of(x, [&](const Json& v) { return std::ranges::find(y, v) != y.end(); });
    };
    if (a.contains("enum") && b.contains("enum") && excludes(a["enum"], b["enum"])) return true;
    if (a.contains("type") && b.contains("type") && common_types(a["type"], b["type"]).empty()) return true;
    if (a.value("type", Json()) != "object" || b.value("type", Json()) != "object") return false;
    const Json names = a.value("required", Json::array());
    const Json others = b.value("required", Json::array());
    if (!names.is_array() || !others.is_array()) return false;
    const Json x = a.value("properties", Json::object()), y = b.value("properties", Json::object());
    return std::ranges::any_of(names, [&](const Json& n) {
        if (!n.is_string() || std::ranges::find(others, n) == others.end()) return false;
        const auto name = n.get<std::string>();
        return x.contains(name) && y.contains(name) && exclude_each_other(x[name], y[name]);
    });
}

std::string_view format_regex(std::string_view format) {
    // Without 29 February, so that every date exists.
    static constexpr std::string_view table[][2] = {
        {"date",
         R"(\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)|02-(?:0[1-9]|1\d|2[0-8])))"},
        {"time", R"((?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,9})?(?:Z|[+-](?:[01]\d|2[0-3]):[0-5]\d))"},
        {"date-time",
         R"(\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)|02-(?:0[1-9]|1\d|2[0-8]))T(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,9})?(?:Z|[+-](?:[01]\d|2[0-3]):[0-5]\d))"},
        {"duration",
         R"(P(?:\d{1,6}W|\d{1,6}Y(?:\d{1,6}M(?:\d{1,6}D)?)?|\d{1,6}M(?:\d{1,6}D)?|\d{1,6}D|T(?:\d{1,6}H(?:\d{1,6}M(?:\d{1,6}S)?)?|\d{1,6}M(?:\d{1,6}S)?|\d{1,6}S)))"},
        {"uuid", R"([0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12})"},
        {"ipv4", R"((?:(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)\.){3}(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d))"},
        {"ipv6", R"((?:[0-9a-fA-F]{1,4}:){7}[0-9a-fA-F]{1,4})"},
        {"hostname",
         R"([a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?){0,3})"},
        {"email",
         R"([a-zA-Z0-9_+-]{1,20}(?:\.[a-zA-Z0-9_+-]{1,20}){0,2}@[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?){1,3})"},
        {"uri",
         R"([a-z][a-z0-9+.-]{1,15}://[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?){0,3}(?::[1-9]\d{0,3})?(?:/[a-zA-Z0-9._~!$&'()*+,;=:@/-]*)?(?:\?[a-zA-Z0-9._~!$&'()*+,;=:@/?-]*)?(?:#[a-zA-Z0-9._~!$&'()*+,;=:@/?-]*)?)"},
    };
    for (const auto& [name, regex] : table)
        if (name == format) return regex;
    return {};
}

}  // namespace nibble
