// The tables of filters, tests, methods and functions: one row each, with parameter names for keyword
// arguments. Rows have static storage; adding a filter is adding a function and a row.
#pragma once

#include <array>
#include <ctime>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "ggml/base/result.h"
#include "src/text/jinja/budget.h"
#include "src/text/jinja/string_format.h"
#include "src/text/jinja/value.h"

namespace nibble::jinja {

// What the built-in functions share during one rendering.
struct Runtime {
    Budget budget;
    std::tm now{};  // local time, for strftime_now
    // Namespaces may refer to themselves; they are emptied at the end so that nothing leaks.
    std::vector<ObjectRef> kept;
};

struct Arguments {
    std::vector<Value> positional;
    NamedValues named;
};

// One call: arguments bound to the row's parameters, null where absent.
struct Call {
    Runtime& runtime;
    Budget& budget;
    const Value& self;  // what a filter, test or method works on; undefined for functions
    Arguments& raw;     // as given; what a variadic row uses
    std::array<const Value*, 5> bound{};

    const Value* arg(size_t i) const { return bound[i]; }
    // With a default for an absent argument; a wrong type is an error.
    Result<int64_t> integer(size_t i, int64_t absent) const;
    Result<TextRef> text(size_t i, std::string_view absent) const;  // str() of anything
    bool flag(size_t i, bool absent) const { return bound[i] ? truthy(*bound[i]) : absent; }
};

struct Builtin {
    std::string_view name;
    Result<Value> (*run)(Call&);
    std::array<std::string_view, 5> parameters{};
    uint8_t required = 0;
    bool variadic = false;  // takes its arguments raw
};

const Builtin* find_filter(std::string_view name);
const Builtin* find_test(std::string_view name);
const Builtin* find_function(std::string_view name);
// The method of a str, list, tuple, dict, cycler; null when it has none of that name.
const Builtin* find_method(const Value& receiver, std::string_view name);

// Pays for one pass over every string that the row is given, so that no row can forget it; rows pay for
// what they do beyond that.
Result<Value> invoke(Runtime& runtime, const Builtin& row, const Value& self, Arguments arguments);

// v.name: a method, then an element; `name` must outlive the result. Missing: undefined. Of undefined: an
// error.
Result<Value> get_attribute(Runtime& runtime, const Value& v, const std::string& name);
// v[key]: an element, then a method.
Result<Value> get_item(Runtime& runtime, const Value& v, const Value& key);

// Parts of the tables.
std::span<const Builtin> text_filters();
std::span<const Builtin> list_filters();
std::span<const Builtin> number_filters();
std::span<const Builtin> text_methods();

// Used by both filters and methods.
Result<Value> strip(Call& call, bool left, bool right);  // self as text, characters in argument 0
// `map` appends what a code point becomes.
Result<Value> map_characters(Budget& budget, const Text& text,
                             const std::function<void(uint32_t, std::string&)>& map);
Result<Value> map_case(Budget& budget, const Text& text, uint32_t (*map)(uint32_t));
Result<Value> capitalize(Budget& budget, const Text& text);
Result<Value> center(Budget& budget, const Text& text, int64_t width, int64_t left_of, std::string_view fill);
Result<Value> replace(Budget& budget, const Text& text, const Text& from, const Text& to, int64_t count);
Result<Value> join(Budget& budget, const Text& separator, const std::vector<Value>& items, bool strict);
std::vector<std::pair<size_t, size_t>> split_lines(const Text& text);  // byte ranges without the line ends

// Objects that the interpreter needs to know.
struct Namespace final : Object {
    Namespace() : Object(Type::name_space) {}
    NamedValues attributes;
    Value* find(std::string_view name);
    void set(std::string_view name, Value v);
};
struct BoundMethod final : Object {
    BoundMethod(Value receiver, const Builtin& row);
    const Value receiver;
    const Builtin& row;
};
struct Function final : Object {
    explicit Function(const Builtin& r) : Object(Type::function), row(r) {}
    const Builtin& row;
};
struct Cycler final : Object {
    Cycler() : Object(Type::cycler) {}
    std::vector<Value> items;
    size_t at = 0;
};
struct Joiner final : Object {
    Joiner() : Object(Type::joiner) {}
    Value separator;
    bool used = false;
};
// The `loop` variable; its attributes are known to the interpreter alone.
struct LoopObject : Object {
    LoopObject() : Object(Type::loop) {}
    virtual Result<std::optional<Value>> attribute(std::string_view name) = 0;  // empty if there is none
    virtual int64_t index0() const = 0;
    std::vector<Value> last_changed;  // arguments of the last loop.changed(…)
    bool has_changed = false;
};

}  // namespace nibble::jinja
