// A plain validator for the keywords that nibble translates, written from the specification and not from the
// translator: what a schema test is checked against.
#pragma once

#include <cmath>
#include <string>

#include <nlohmann/json.hpp>

namespace nibble::grammar_test {

using nlohmann::json;

class Validator {
  public:
    explicit Validator(json root) : root_(std::move(root)) {}
    bool valid(const json& v) const { return valid(root_, v); }

  private:
    static size_t characters(const std::string& s) {
        size_t n = 0;
        for (const char c : s) n += (c & 0xC0) != 0x80;
        return n;
    }
    static bool is(const std::string& type, const json& v) {
        if (type == "integer") return v.is_number() && std::trunc(v.get<double>()) == v.get<double>();
        return (type == "number" && v.is_number()) || (type == "string" && v.is_string()) ||
               (type == "boolean" && v.is_boolean()) || (type == "null" && v.is_null()) ||
               (type == "object" && v.is_object()) || (type == "array" && v.is_array());
    }
    bool valid(const json& s, const json& v) const {
        if (s.is_boolean()) return s.get<bool>();
        if (s.contains("$ref")) {
            const auto ref = s["$ref"].get<std::string>();
            if (!valid(ref == "#" ? root_ : root_.at(json::json_pointer(ref.substr(1))), v)) return false;
        }
        if (s.contains("type")) {
            bool any = false;
            for (const json& t : s["type"].is_array() ? s["type"] : json::array({s["type"]})) any |= is(t, v);
            if (!any) return false;
        }
        if (s.contains("const") && s["const"] != v) return false;
        if (s.contains("enum") && std::find(s["enum"].begin(), s["enum"].end(), v) == s["enum"].end())
            return false;
        for (const json& part : s.value("allOf", json::array()))
            if (!valid(part, v)) return false;
        for (const char* key : {"anyOf", "oneOf"}) {
            if (!s.contains(key)) continue;
            int n = 0;
            for (const json& part : s[key]) n += valid(part, v);
            if (n == 0 || (std::string(key) == "oneOf" && n > 1)) return false;
        }
        return numbers(s, v) && strings(s, v) && arrays(s, v) && objects(s, v);
    }
    static bool numbers(const json& s, const json& v) {
        if (!v.is_number()) return true;
        const auto x = v.get<double>();
        return !(s.contains("minimum") && x < s["minimum"].get<double>()) &&
               !(s.contains("maximum") && x > s["maximum"].get<double>()) &&
               !(s.contains("exclusiveMinimum") && x <= s["exclusiveMinimum"].get<double>()) &&
               !(s.contains("exclusiveMaximum") && x >= s["exclusiveMaximum"].get<double>());
    }
    static bool strings(const json& s, const json& v) {
        if (!v.is_string()) return true;
        const size_t n = characters(v.get<std::string>());
        return n >= s.value("minLength", size_t{0}) && n <= s.value("maxLength", SIZE_MAX);
    }
    bool arrays(const json& s, const json& v) const {
        if (!v.is_array()) return true;
        if (v.size() < s.value("minItems", size_t{0}) || v.size() > s.value("maxItems", SIZE_MAX))
            return false;
        const json prefix = s.value("prefixItems", json::array());
        for (size_t i = 0; i < v.size(); ++i)
            if (!valid(i < prefix.size() ? prefix[i] : s.value("items", json(true)), v[i])) return false;
        return true;
    }
    bool objects(const json& s, const json& v) const {
        if (!v.is_object()) return true;
        for (const json& name : s.value("required", json::array()))
            if (!v.contains(name.get<std::string>())) return false;
        const json list = s.value("properties", json::object());
        for (const auto& [name, value] : v.items())
            if (!valid(list.contains(name) ? list[name] : s.value("additionalProperties", json(true)), value))
                return false;
        return true;
    }

    json root_;
};

}  // namespace nibble::grammar_test
