// Text to parameter and back, one function per type of field.
// std::from_chars and std::to_chars throughout: no locale.
#include "src/sample/params.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <type_traits>

#include "ggml/base/cat.h"

namespace nibble {

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

Error refuse(const Param& param, std::string_view text) {
    return {ErrorCode::invalid_argument, std::string(param.key), cat("'", text, "' is not allowed"),
            cat("allowed: ", allowed_text(param))};
}

std::string_view trimmed(std::string_view s) {
    while (!s.empty() && s.front() == ' ') s.remove_prefix(1);
    while (!s.empty() && s.back() == ' ') s.remove_suffix(1);
    return s;
}

template <class T>
bool parse(std::string_view text, T& value) {
    text = trimmed(text);
    if (text.starts_with('+')) text.remove_prefix(1);
    const auto r = std::from_chars(text.data(), text.data() + text.size(), value);
    return r.ec == std::errc() && r.ptr == text.data() + text.size();
}

bool in_range(const Param& p, double v) {
    // Written so that NaN fails.
    if (!(v >= p.min && v <= p.max)) return false;
    return p.step == 0 || std::fmod(v - p.min, p.step) == 0;
}

bool bias_in_range(const Param& p, double v) { return v == -infinity || in_range(p, v); }

// "15:-2.5,7:-inf"
bool parse_biases(const Param& p, std::string_view text, std::vector<LogitBias>& biases) {
    text = trimmed(text);
    while (!text.empty()) {
        const size_t comma = std::min(text.find(','), text.size());
        const std::string_view item = text.substr(0, comma);
        const size_t colon = item.find(':');
        LogitBias b;
        if (colon == item.npos || !parse(item.substr(0, colon), b.token) || b.token < 0) return false;
        if (!parse(item.substr(colon + 1), b.bias) || !bias_in_range(p, b.bias)) return false;
        biases.push_back(b);
        if (comma == text.size()) break;
        text.remove_prefix(comma + 1);
        if (trimmed(text).empty()) return false;
    }
    return true;
}

bool parse_strings(std::string_view text, std::vector<std::string>& strings) {
    if (text.empty()) return true;
    std::string current;
    for (size_t i = 0; i < text.size(); ++i) {
        if (text[i] == ',') {
            strings.push_back(std::exchange(current, {}));
        } else if (text[i] != '\\') {
            current += text[i];
        } else if (++i == text.size()) {
            return false;
        } else if (text[i] == 'n' || text[i] == 't') {
            current += text[i] == 'n' ? '\n' : '\t';
        } else if (text[i] == '\\' || text[i] == ',') {
            current += text[i];
        } else {
            return false;
        }
    }
    strings.push_back(current);
    return std::ranges::none_of(strings, &std::string::empty);
}

std::string escaped(const std::string& s) {
    std::string out;
    for (char c : s) {
        if (c == '\n' || c == '\t') {
            out += c == '\n' ? "\\n" : "\\t";
            continue;
        }
        if (c == '\\' || c == ',') out += '\\';
        out += c;
    }
    return out;
}

// One overload per alternative of ParamField; false: refused.
bool read(const Param& p, std::string_view text, double& v) { return parse(text, v) && in_range(p, v); }
bool read(const Param& p, std::string_view text, int32_t& v) { return parse(text, v) && in_range(p, v); }
bool read(const Param&, std::string_view text, std::optional<uint64_t>& v) {
    v.reset();
    return trimmed(text) == "random" || parse(text, v.emplace());
}
bool read(const Param&, std::string_view text, std::string& v) {
    v = text;
    return true;
}
bool read(const Param&, std::string_view text, std::vector<std::string>& v) { return parse_strings(text, v); }
bool read(const Param& p, std::string_view text, std::vector<LogitBias>& v) {
    return parse_biases(p, text, v);
}

std::string write(double v) { return cat(v); }
std::string write(int32_t v) { return cat(v); }
std::string write(const std::optional<uint64_t>& v) { return v ? cat(*v) : "random"; }
std::string write(const std::string& v) { return v; }
std::string write(const std::vector<std::string>& v) {
    std::string s;
    for (size_t i = 0; i < v.size(); ++i) s += cat(i ? "," : "", escaped(v[i]));
    return s;
}
std::string write(const std::vector<LogitBias>& v) {
    std::string s;
    for (size_t i = 0; i < v.size(); ++i) s += cat(i ? "," : "", v[i].token, ':', v[i].bias);
    return s;
}

template <class T>
bool valid(const Param& p, const T& v) {
    if constexpr (std::is_arithmetic_v<T>) return in_range(p, v);
    if constexpr (std::is_same_v<T, std::vector<LogitBias>>) {
        return std::ranges::all_of(
            v, [&](const LogitBias& b) { return b.token >= 0 && bias_in_range(p, b.bias); });
    }
    return true;
}

}  // namespace

std::span<const Param> param_table() { return chain_table::params; }

const Param* find_param(std::string_view name) {
    while (name.starts_with('-')) name.remove_prefix(1);
    const auto same = [](char a, char b) {
        return a == b || (a == '-' && b == '_') || (a == '_' && b == '-');
    };
    for (const Param& p : chain_table::params) {
        if (std::ranges::equal(name, p.key, same) || std::ranges::equal(name, p.flag.substr(2), same))
            return &p;
    }
    return nullptr;
}

std::string get(const SamplerParams& params, const Param& param) {
    return std::visit([&](auto field) { return write(params.*field); }, param.field);
}

std::string default_text(const Param& param) { return get(SamplerParams{}, param); }

std::string allowed_text(const Param& p) {
    if (std::holds_alternative<std::string SamplerParams::*>(p.field)) {
        std::string names;
        for (const Link& l : chain_table::links) names += cat(names.empty() ? "" : ",", l.name);
        return cat("a list of ", names);
    }
    if (std::holds_alternative<std::optional<uint64_t> SamplerParams::*>(p.field))
        return "random, or an integer from 0 to 18446744073709551615";
    if (std::holds_alternative<std::vector<std::string> SamplerParams::*>(p.field))
        return "strings separated by ',', with \\n \\t \\\\ \\, for special characters";
    if (std::holds_alternative<std::vector<LogitBias> SamplerParams::*>(p.field))
        return cat("TOKEN:BIAS,... with token ids and biases from ", p.min, " to ", p.max, ", or -inf");
    const bool integer = std::holds_alternative<int32_t SamplerParams::*>(p.field);
    if (p.step > 0 && p.min + p.step == p.max) return cat(p.min, " or ", p.max);
    if (integer)
        return cat("an integer from ", static_cast<int64_t>(p.min), " to ", static_cast<int64_t>(p.max));
    return cat("a number from ", p.min, " to ", p.max);
}

Result<void> set(SamplerParams& params, const Param& param, std::string_view text) {
    return std::visit(
        [&](auto field) -> Result<void> {
            auto value = std::decay_t<decltype(params.*field)>();
            if (!read(param, text, value)) return refuse(param, text);
            if constexpr (std::is_same_v<decltype(value), std::string>) NIBBLE_TRY(chain_order(value));
            params.*field = std::move(value);
            return {};
        },
        param.field);
}

Result<void> set(SamplerParams& params, std::string_view name, std::string_view text) {
    if (const Param* param = find_param(name)) return set(params, *param, text);
    std::string keys;
    for (const Param& p : chain_table::params) keys += cat(keys.empty() ? "" : ", ", p.key);
    return Error{ErrorCode::invalid_argument, std::string(name), "there is no such sampling parameter",
                 cat("known: ", keys)};
}

Result<void> validate(const SamplerParams& params) {
    for (const Param& p : chain_table::params) {
        const bool ok = std::visit([&](auto field) { return valid(p, params.*field); }, p.field);
        if (!ok) return refuse(p, get(params, p));
    }
    NIBBLE_TRY(chain_order(params.samplers));
    return {};
}

Result<std::vector<const Link*>> chain_order(std::string_view samplers) {
    std::vector<const Link*> order;
    const auto bad = [](std::string what) {
        return Error{ErrorCode::invalid_argument, "samplers", std::move(what),
                     cat("allowed: ", allowed_text(*find_param("samplers")))};
    };
    while (!trimmed(samplers).empty()) {
        const size_t end = std::min(samplers.find_first_of(",;"), samplers.size());
        const std::string_view name = trimmed(samplers.substr(0, end));
        const auto link = std::ranges::find(chain_table::links, name, &Link::name);
        if (link == chain_table::links.end()) return bad(cat("there is no sampler '", name, "'"));
        if (std::ranges::find(order, &*link) != order.end()) return bad(cat("'", name, "' is listed twice"));
        order.push_back(&*link);
        samplers.remove_prefix(std::min(end + 1, samplers.size()));
    }
    return order;
}

}  // namespace nibble
