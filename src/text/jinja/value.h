// The values of a running template: Python's None, bool, int, float, str, list, tuple, dict, and objects.
// Strings are immutable; lists and dicts are shared by reference, as in Python, and live for one rendering.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "src/text/jinja/text.h"

namespace nibble::jinja {

class Value;
struct List;
struct Dict;
struct Object;
using TextRef = std::shared_ptr<const Text>;
using ListRef = std::shared_ptr<List>;
using DictRef = std::shared_ptr<Dict>;
using ObjectRef = std::shared_ptr<Object>;

// A name or attribute that is not there. Printing it gives nothing; using it is an error that says why.
struct Undefined {
    const std::string* name = nullptr;  // lives in the template; null when the key was computed
    std::string_view owner = {};        // what lacks it ("dict"); empty for a variable. Static storage.
};
struct None {};

enum class Kind : uint8_t { undefined, none, boolean, integer, real, text, list, dict, object };

class Value {
  public:
    using Data = std::variant<Undefined, None, bool, int64_t, double, TextRef, ListRef, DictRef, ObjectRef>;

    Value() = default;  // undefined
    Value(Undefined u) : data_(u) {}
    Value(None) : data_(None{}) {}
    Value(bool b) : data_(b) {}
    Value(int64_t i) : data_(i) {}
    Value(double d) : data_(d) {}
    Value(TextRef t) : data_(std::move(t)) {}
    Value(ListRef l) : data_(std::move(l)) {}
    Value(DictRef d) : data_(std::move(d)) {}
    Value(ObjectRef o) : data_(std::move(o)) {}
    Value(const char*) = delete;  // would become a bool

    Kind kind() const { return static_cast<Kind>(data_.index()); }
    bool is(Kind k) const { return kind() == k; }
    bool is_undefined() const { return is(Kind::undefined); }
    bool is_none() const { return is(Kind::none); }

    // Null or empty unless the value is of that kind.
    const Undefined* undefined() const { return std::get_if<Undefined>(&data_); }
    const Text* text() const { return pointee<TextRef>(); }
    List* list() const { return pointee<ListRef>(); }
    Dict* dict() const { return pointee<DictRef>(); }
    Object* object() const { return pointee<ObjectRef>(); }
    const double* real() const { return std::get_if<double>(&data_); }
    // Booleans are integers, as in Python. Returns false for any other kind.
    bool as_integer(int64_t& out) const;
    bool as_number(double& out) const;  // integer, boolean or real

    const Data& data() const { return data_; }
    // Gives up the string so that its only owner may extend it; empty unless this is a string.
    TextRef take_text();

  private:
    template <class Ref>
    typename Ref::element_type* pointee() const {
        const Ref* ref = std::get_if<Ref>(&data_);
        return ref ? ref->get() : nullptr;
    }

    Data data_;
};

// How deep a value nests and how many values it holds when written out in full: what recursion over it costs.
// Bounded when a container is made (budget.h), so that comparing, printing and freeing need no limits.
struct Extent {
    uint32_t depth = 0;
    uint32_t weight = 1;
    bool objects = false;  // holds an Object, which may refer back to what holds it
};

// A list, a tuple, a view of a dict, or a generator (whose items can be taken once).
struct List {
    enum class Flavor : uint8_t { list, tuple, view, generator };
    std::vector<Value> items;
    Flavor flavor = Flavor::list;
    bool held = false;  // is inside another container, whose extent counts it: must not change any more
    Extent extent{1, 1};
    size_t taken = 0;  // items that a generator has given out
};

// Keeps the order of insertion. Linear search: the dicts of chat templates have a handful of keys.
struct Dict {
    std::vector<std::pair<Value, Value>> entries;
    bool held = false;
    Extent extent{1, 1};

    const Value* find(std::string_view key) const;
    const Value* find(const Value& key) const;
};

// Everything else: namespaces, macros, the loop variable, bound methods, functions, cyclers, joiners.
struct Object {
    enum class Type : uint8_t { name_space, macro, loop, bound_method, function, cycler, joiner };
    explicit Object(Type t) : type(t) {}
    virtual ~Object() = default;
    const Type type;
    Extent extent{1, 1, true};
};

std::string_view type_name(const Value& v);  // Python's: "str", "NoneType", …; static storage
std::string describe(const Undefined& u);    // "'x' is undefined"
bool truthy(const Value& v);
bool is_hashable(const Value& v);
Extent extent(const Value& v);
void mark_held(const Value& v);

Value no_value();  // None, what a method without a result returns
Value make_text(std::string bytes, bool untrusted = false);
Value make_text(Text text);

}  // namespace nibble::jinja
