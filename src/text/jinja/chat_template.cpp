// Rendering of chat templates: JSON to values with their trust, then the interpreter, then segments.
// Numbers beyond 64 bits become floats; JSON nests at most as deep as the interpreter's containers.
#include "src/text/jinja/chat_template.h"

#include <algorithm>
#include <array>

#include "ggml/base/cat.h"
#include "src/text/jinja/interpreter.h"
#include "src/text/jinja/parser.h"

namespace nibble {
namespace {

using Json = nlohmann::ordered_json;
using jinja::Budget;
using jinja::Value;

constexpr std::array<std::string_view, 7> known_roles = {"system", "user",     "assistant", "developer",
                                                         "tool",   "function", "ipython"};

Result<Value> to_value(Budget& budget, const Json& json, uint32_t depth = 0) {
    if (depth > budget.limits().nesting) {
        return jinja::failure(cat("JSON nested more than ", budget.limits().nesting, " deep"));
    }
    switch (json.type()) {
        case Json::value_t::boolean:
            return Value(json.get<bool>());
        case Json::value_t::number_integer:
            return Value(json.get<int64_t>());
        case Json::value_t::number_unsigned: {
            const auto u = json.get<uint64_t>();
            return u <= INT64_MAX ? Value(static_cast<int64_t>(u)) : Value(static_cast<double>(u));
        }
        case Json::value_t::number_float:
            return Value(json.get<double>());
        case Json::value_t::string:
            return budget.text(json.get_ref<const std::string&>(), true);
        case Json::value_t::array: {
            std::vector<Value> items;
            items.reserve(json.size());
            for (const Json& item : json) items.push_back(NIBBLE_TRY(to_value(budget, item, depth + 1)));
            return budget.list(std::move(items));
        }
        case Json::value_t::object: {
            std::vector<std::pair<Value, Value>> entries;
            entries.reserve(json.size());
            for (const auto& [key, item] : json.items()) {
                Value k = NIBBLE_TRY(budget.text(key, true));
                entries.emplace_back(std::move(k), NIBBLE_TRY(to_value(budget, item, depth + 1)));
            }
            return budget.dict(std::move(entries));
        }
        default:
            return Value(jinja::None{});
    }
}

// Messages, with the roles that every template knows trusted.
Result<Value> messages_value(Budget& budget, const Json& messages) {
    if (!messages.is_array()) return jinja::failure("'messages' must be a list");
    Value all = NIBBLE_TRY(to_value(budget, messages));
    for (const Value& message : all.list()->items) {
        jinja::Dict* dict = message.dict();
        if (!dict) return jinja::failure("each message must be an object with a role");
        for (auto& [key, value] : dict->entries) {
            if (key.text()->view() != "role" || !value.text()) continue;
            const bool known =
                std::find(known_roles.begin(), known_roles.end(), value.text()->view()) != known_roles.end();
            if (known) value = jinja::make_text(value.text()->str());
        }
    }
    return all;
}

std::tm local_time() {
    const std::time_t seconds = std::time(nullptr);
    std::tm t{};
    localtime_r(&seconds, &t);
    return t;
}

Result<jinja::NamedValues> variables(Budget& budget, const ChatTemplate::Input& in) {
    jinja::NamedValues v;
    v.emplace_back("messages", NIBBLE_TRY(messages_value(budget, in.messages)));
    v.emplace_back("tools", NIBBLE_TRY(to_value(budget, in.tools)));
    v.emplace_back("documents", Value(jinja::None{}));
    v.emplace_back("add_generation_prompt", Value(in.add_generation_prompt));
    v.emplace_back("bos_token", jinja::make_text(in.bos_token));
    v.emplace_back("eos_token", jinja::make_text(in.eos_token));
    if (in.extra.is_null()) return v;
    if (!in.extra.is_object()) return jinja::failure("the extra variables of a template must be an object");
    for (const auto& [name, json] : in.extra.items())
        v.emplace_back(name, NIBBLE_TRY(to_value(budget, json)));
    return v;
}

Result<jinja::Text> run(const jinja::Program& program, const jinja::Limits& limits,
                        const ChatTemplate::Input& in) {
    jinja::Interpreter interpreter(program, limits, in.now ? *in.now : local_time());
    auto vars = variables(interpreter.budget(), in);
    if (!vars) {
        Error e = std::move(vars).error();
        if (e.where.empty()) e.where = "conversation";
        return e;
    }
    return interpreter.run(*vars);
}

}  // namespace

Result<ChatTemplate> ChatTemplate::parse(std::string source, std::string name, const jinja::Limits& limits) {
    ChatTemplate t;
    t.program_ = std::make_shared<const jinja::Program>(NIBBLE_TRY(jinja::parse(source, name)));
    t.source_ = std::move(source);
    t.name_ = std::move(name);
    t.limits_ = limits;
    return t;
}

Result<std::string> ChatTemplate::render(const Input& input) const {
    return NIBBLE_TRY(run(*program_, limits_, input)).take();
}

Result<std::vector<TemplateSegment>> ChatTemplate::render_segments(const Input& input) const {
    const jinja::Text text = NIBBLE_TRY(run(*program_, limits_, input));
    std::vector<TemplateSegment> segments;
    size_t at = 0;
    const auto add = [&](size_t end, bool from_template) {
        if (at < end) segments.push_back({text.str().substr(at, end - at), from_template});
        at = end;
    };
    for (const jinja::ByteSpan& span : text.untrusted()) {
        add(span.begin, true);
        add(span.end, false);
    }
    add(text.size(), true);
    return segments;
}

bool ChatTemplate::mentions(std::string_view variable) const {
    const auto& symbols = program_->symbols;
    return std::find(symbols.begin(), symbols.end(), variable) != symbols.end();
}

}  // namespace nibble
