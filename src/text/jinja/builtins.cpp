// Looking built-ins up, binding arguments to parameters, and attribute access.
// Tables are short and scanned: a comparison of string views costs less than hashing the name.
#include "src/text/jinja/builtins.h"

#include <algorithm>

#include "ggml/base/cat.h"
#include "src/text/jinja/operators.h"
#include "src/text/jinja/print.h"

namespace nibble::jinja {
namespace {

const Builtin* find(std::span<const Builtin> table, std::string_view name) {
    for (const Builtin& row : table) {
        if (row.name == name) return &row;
    }
    return nullptr;
}

uint64_t text_size(const Value& v) { return v.text() ? v.text()->size() : 0; }

// Puts named arguments in their places after the positional ones.
Result<void> bind(Call& call, const Builtin& row) {
    const size_t count = static_cast<size_t>(std::find(row.parameters.begin(), row.parameters.end(), "") -
                                             row.parameters.begin());
    if (call.raw.positional.size() > count) {
        return failure(
            cat("'", row.name, "' takes at most ", count, " arguments, not ", call.raw.positional.size()));
    }
    for (size_t i = 0; i < call.raw.positional.size(); ++i) call.bound[i] = &call.raw.positional[i];
    for (const auto& [name, value] : call.raw.named) {
        const auto at = static_cast<size_t>(std::find(row.parameters.begin(), row.parameters.end(), name) -
                                            row.parameters.begin());
        if (at >= count) return failure(cat("'", row.name, "' has no argument '", name, "'"));
        if (call.bound[at])
            return failure(cat("the argument '", name, "' of '", row.name, "' is given twice"));
        call.bound[at] = &value;
    }
    for (size_t i = 0; i < row.required; ++i) {
        if (!call.bound[i])
            return failure(cat("'", row.name, "' needs the argument '", row.parameters[i], "'"));
    }
    return {};
}

// Attributes of objects; empty if there is none of that name.
Result<std::optional<Value>> object_attribute(Budget& budget, Object& o, std::string_view name) {
    using Found = std::optional<Value>;
    if (o.type == Object::Type::name_space) {
        auto& space = static_cast<Namespace&>(o);
        if (!budget.spend_lookup(space.attributes.size(), name.size())) return budget.exhausted();
        const Value* v = space.find(name);
        return v ? Found(*v) : Found();
    }
    if (o.type == Object::Type::loop) return static_cast<LoopObject&>(o).attribute(name);
    if (o.type == Object::Type::cycler && name == "current") {
        Cycler& cycler = static_cast<Cycler&>(o);
        return Found(cycler.items[cycler.at]);
    }
    return Found();
}

}  // namespace

Result<int64_t> Call::integer(size_t i, int64_t absent) const {
    int64_t value = absent;
    if (bound[i] && !bound[i]->as_integer(value)) {
        if (const Undefined* u = bound[i]->undefined()) return failure(describe(*u));
        return failure(cat("an integer is needed, not ", type_name(*bound[i])));
    }
    return value;
}

Result<TextRef> Call::text(size_t i, std::string_view absent) const {
    if (!bound[i]) return TextRef(std::make_shared<Text>(std::string(absent)));
    return as_text(budget, *bound[i]);
}

const Builtin* find_filter(std::string_view name) {
    if (const Builtin* row = find(text_filters(), name)) return row;
    if (const Builtin* row = find(list_filters(), name)) return row;
    return find(number_filters(), name);
}

Result<Value> invoke(Runtime& runtime, const Builtin& row, const Value& self, Arguments arguments) {
    Call call{runtime, runtime.budget, self, arguments, {}};
    uint64_t bytes = text_size(self);
    for (const Value& v : arguments.positional) bytes += text_size(v);
    for (const auto& [name, v] : arguments.named) bytes += text_size(v);
    Budget& budget = runtime.budget;
    if (!budget.spend_scan(bytes)) return budget.exhausted();
    if (!row.variadic) NIBBLE_TRY(bind(call, row));
    if (!budget.enter()) return budget.too_deep();  // `map` calls a filter, which may be `map`
    auto result = row.run(call);
    budget.leave();
    return result;
}

Result<Value> get_attribute(Runtime& runtime, const Value& v, const std::string& name) {
    if (const Undefined* u = v.undefined()) return failure(describe(*u));
    if (const Builtin* method = find_method(v, name))
        return Value(ObjectRef(std::make_shared<BoundMethod>(v, *method)));
    if (const Dict* dict = v.dict()) {
        if (!runtime.budget.spend_lookup(dict->entries.size(), name.size()))
            return runtime.budget.exhausted();
        if (const Value* found = dict->find(name)) return *found;
    } else if (Object* object = v.object()) {
        auto found = NIBBLE_TRY(object_attribute(runtime.budget, *object, name));
        if (found) return std::move(*found);
    }
    return Value(Undefined{&name, type_name(v)});
}

Result<Value> get_item(Runtime& runtime, const Value& v, const Value& key) {
    if (const Undefined* u = v.undefined()) return failure(describe(*u));
    auto found = NIBBLE_TRY(element(runtime.budget, v, key));
    if (found) return std::move(*found);
    const Text* name = key.text();
    if (!name) return Value(Undefined{nullptr, type_name(v)});
    if (const Builtin* method = find_method(v, name->view())) {
        return Value(ObjectRef(std::make_shared<BoundMethod>(v, *method)));
    }
    if (Object* object = v.object()) {
        auto attribute = NIBBLE_TRY(object_attribute(runtime.budget, *object, name->view()));
        if (attribute) return std::move(*attribute);
    }
    return Value(Undefined{nullptr, type_name(v)});
}

BoundMethod::BoundMethod(Value r, const Builtin& b)
    : Object(Type::bound_method), receiver(std::move(r)), row(b) {
    extent = jinja::extent(receiver);
    ++extent.depth;  // so that methods of lists of methods of lists … stay within the nesting limit
}

Value* Namespace::find(std::string_view name) {
    for (auto& [key, value] : attributes) {
        if (key == name) return &value;
    }
    return nullptr;
}

void Namespace::set(std::string_view name, Value v) {
    if (Value* old = find(name)) {
        *old = std::move(v);
    } else {
        attributes.emplace_back(name, std::move(v));
    }
}

}  // namespace nibble::jinja
