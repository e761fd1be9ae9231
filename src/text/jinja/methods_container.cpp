// The methods of list, tuple, dict, loop and cycler. A list or dict may be changed only while no other
// container holds it, and never to hold an object: that keeps nesting bounded and free of cycles.
// (transformers' sandbox refuses every change, but templates exist that collect names with append.)
#include <algorithm>

#include "ggml/base/cat.h"
#include "src/text/jinja/builtins.h"
#include "src/text/jinja/operators.h"

namespace nibble::jinja {
namespace {

Result<List*> own_list(Call& c) {
    List* list = c.self.list();
    if (list->held) {
        return failure("a list inside another list or dict cannot be changed", ErrorCode::unsupported,
                       "build a new list with '+'");
    }
    return list;
}

Result<Dict*> own_dict(Call& c) {
    Dict* dict = c.self.dict();
    if (dict->held)
        return failure("a dict inside another list or dict cannot be changed", ErrorCode::unsupported);
    return dict;
}

// Whether `v` may be put into the receiver.
Result<void> can_hold(Call& c, const Value& v) {
    const bool itself = (v.list() && v.list() == c.self.list()) || (v.dict() && v.dict() == c.self.dict());
    if (itself) return failure(cat("a ", type_name(v), " cannot hold itself"));
    if (extent(v).objects)
        return failure(cat("a ", type_name(v), " cannot be put into an existing container"),
                       ErrorCode::unsupported);
    return {};
}

Result<Value> list_append(Call& c) {
    List* list = NIBBLE_TRY(own_list(c));
    NIBBLE_TRY(can_hold(c, *c.arg(0)));
    NIBBLE_TRY(c.budget.append(*list, *c.arg(0)));
    return no_value();
}

Result<Value> list_extend(Call& c) {
    List* list = NIBBLE_TRY(own_list(c));
    for (Value& item : NIBBLE_TRY(iterate(c.budget, *c.arg(0)))) {
        NIBBLE_TRY(can_hold(c, item));
        NIBBLE_TRY(c.budget.append(*list, std::move(item)));
    }
    return no_value();
}

Result<Value> list_insert(Call& c) {
    List* list = NIBBLE_TRY(own_list(c));
    const auto size = static_cast<int64_t>(list->items.size());
    int64_t at = NIBBLE_TRY(c.integer(0, 0));
    if (at < 0) at += size;
    at = std::clamp<int64_t>(at, 0, size);
    NIBBLE_TRY(can_hold(c, *c.arg(1)));
    if (!c.budget.spend(list->items.size() / 8)) return c.budget.exhausted();
    NIBBLE_TRY(c.budget.append(*list, *c.arg(1)));
    std::rotate(list->items.begin() + at, list->items.end() - 1, list->items.end());
    return no_value();
}

Result<Value> list_pop(Call& c) {
    List* list = NIBBLE_TRY(own_list(c));
    const auto size = static_cast<int64_t>(list->items.size());
    int64_t at = NIBBLE_TRY(c.integer(0, -1));
    if (at < 0) at += size;
    if (at < 0 || at >= size)
        return failure(cat("pop from a list of ", size, " at ", NIBBLE_TRY(c.integer(0, -1))));
    if (!c.budget.spend(list->items.size() / 8)) return c.budget.exhausted();
    Value item = std::move(list->items[static_cast<size_t>(at)]);
    list->items.erase(list->items.begin() + at);
    return item;
}

Result<Value> list_index(Call& c) {
    const List& list = *c.self.list();
    for (size_t i = 0; i < list.items.size(); ++i) {
        if (NIBBLE_TRY(compare(c.budget, Op::eq, list.items[i], *c.arg(0))))
            return Value(static_cast<int64_t>(i));
    }
    return failure("the value to find is not in the list");
}

Result<Value> list_count(Call& c) {
    int64_t n = 0;
    for (const Value& item : c.self.list()->items)
        n += NIBBLE_TRY(compare(c.budget, Op::eq, item, *c.arg(0)));
    return Value(n);
}

Result<Value> list_copy(Call& c) { return c.budget.list(NIBBLE_TRY(iterate(c.budget, c.self))); }

Result<Value> dict_get(Call& c) {
    auto found = NIBBLE_TRY(element(c.budget, c.self, *c.arg(0)));
    if (found) return std::move(*found);
    return c.arg(1) ? *c.arg(1) : Value(None{});
}

Result<Value> dict_items(Call& c) {
    std::vector<Value> pairs;
    for (const auto& [key, value] : c.self.dict()->entries) {
        pairs.push_back(NIBBLE_TRY(c.budget.list({key, value}, List::Flavor::tuple)));
    }
    return c.budget.list(std::move(pairs), List::Flavor::view);
}

Result<Value> dict_keys(Call& c) {
    return c.budget.list(NIBBLE_TRY(iterate(c.budget, c.self)), List::Flavor::view);
}

Result<Value> dict_values(Call& c) {
    std::vector<Value> values;
    for (const auto& entry : c.self.dict()->entries) values.push_back(entry.second);
    return c.budget.list(std::move(values), List::Flavor::view);
}

Result<Value> dict_copy(Call& c) { return c.budget.dict(c.self.dict()->entries); }

Result<void> merge(Call& c, Dict& into, const Value& from) {
    if (!from.dict()) return failure(cat("a dict is needed, not ", type_name(from)));
    for (const auto& [key, value] : std::vector(from.dict()->entries)) {
        NIBBLE_TRY(can_hold(c, value));
        NIBBLE_TRY(c.budget.set(into, key, value));
    }
    return {};
}

Result<Value> dict_update(Call& c) {
    Dict* dict = NIBBLE_TRY(own_dict(c));
    if (c.raw.positional.size() > 1) return failure("'update' takes one dict and named values");
    for (const Value& from : c.raw.positional) NIBBLE_TRY(merge(c, *dict, from));
    for (auto& [name, value] : c.raw.named) {
        NIBBLE_TRY(can_hold(c, value));
        NIBBLE_TRY(c.budget.set(*dict, make_text(name), value));
    }
    return no_value();
}

Result<Value> dict_setdefault(Call& c) {
    auto found = NIBBLE_TRY(element(c.budget, c.self, *c.arg(0)));
    if (found) return std::move(*found);
    Dict* dict = NIBBLE_TRY(own_dict(c));
    const Value value = c.arg(1) ? *c.arg(1) : Value(None{});
    NIBBLE_TRY(can_hold(c, value));
    NIBBLE_TRY(c.budget.set(*dict, *c.arg(0), value));
    return value;
}

Result<Value> dict_pop(Call& c) {
    Dict* dict = NIBBLE_TRY(own_dict(c));
    if (!c.budget.spend(dict->entries.size())) return c.budget.exhausted();
    const Value* found = is_hashable(*c.arg(0)) ? dict->find(*c.arg(0)) : nullptr;
    if (!found && c.arg(1)) return *c.arg(1);
    if (!found) return failure("the key to pop is not in the dict");
    Value value = *found;
    std::erase_if(dict->entries, [&](const auto& entry) { return &entry.second == found; });
    return value;
}

Result<Value> loop_cycle(Call& c) {
    const auto& choices = c.raw.positional;
    if (choices.empty()) return failure("'loop.cycle' needs at least one value");
    const auto& loop = static_cast<const LoopObject&>(*c.self.object());
    return choices[static_cast<size_t>(loop.index0()) % choices.size()];
}

Result<Value> loop_changed(Call& c) {
    auto& loop = static_cast<LoopObject&>(*c.self.object());
    bool same = loop.has_changed && loop.last_changed.size() == c.raw.positional.size();
    for (size_t i = 0; same && i < c.raw.positional.size(); ++i) {
        same = NIBBLE_TRY(compare(c.budget, Op::eq, loop.last_changed[i], c.raw.positional[i]));
    }
    if (!same) {
        for (const Value& v : c.raw.positional) {
            // Holding a loop in itself would leak it.
            if (extent(v).objects) return failure("'loop.changed' compares plain values");
        }
        loop.last_changed = c.raw.positional;
        loop.has_changed = true;
    }
    return Value(!same);
}

Result<Value> cycler_next(Call& c) {
    auto& cycler = static_cast<Cycler&>(*c.self.object());
    Value v = cycler.items[cycler.at];
    cycler.at = (cycler.at + 1) % cycler.items.size();
    return v;
}

Result<Value> cycler_reset(Call& c) {
    static_cast<Cycler&>(*c.self.object()).at = 0;
    return no_value();
}

constexpr Builtin tuple_rows[] = {{"index", list_index, {"value"}, 1}, {"count", list_count, {"value"}, 1}};
constexpr Builtin list_rows[] = {
    {"append", list_append, {"object"}, 1},
    {"extend", list_extend, {"iterable"}, 1},
    {"insert", list_insert, {"index", "object"}, 2},
    {"pop", list_pop, {"index"}},
    {"index", list_index, {"value"}, 1},
    {"count", list_count, {"value"}, 1},
    {"copy", list_copy},
};
constexpr Builtin dict_rows[] = {
    {"get", dict_get, {"key", "default"}, 1},
    {"items", dict_items},
    {"keys", dict_keys},
    {"values", dict_values},
    {"copy", dict_copy},
    {"update", dict_update, {}, 0, true},
    {"setdefault", dict_setdefault, {"key", "default"}, 1},
    {"pop", dict_pop, {"key", "default"}, 1},
};
constexpr Builtin loop_rows[] = {{"cycle", loop_cycle, {}, 0, true}, {"changed", loop_changed, {}, 0, true}};
constexpr Builtin cycler_rows[] = {{"next", cycler_next}, {"reset", cycler_reset}};

std::span<const Builtin> methods_of(const Value& v) {
    if (v.text()) return text_methods();
    if (v.dict()) return dict_rows;
    if (const List* list = v.list()) {
        if (list->flavor == List::Flavor::list) return list_rows;
        if (list->flavor == List::Flavor::tuple) return tuple_rows;
    }
    if (const Object* o = v.object()) {
        if (o->type == Object::Type::loop) return loop_rows;
        if (o->type == Object::Type::cycler) return cycler_rows;
    }
    return {};
}

}  // namespace

const Builtin* find_method(const Value& receiver, std::string_view name) {
    for (const Builtin& row : methods_of(receiver)) {
        if (row.name == name) return &row;
    }
    return nullptr;
}

}  // namespace nibble::jinja
