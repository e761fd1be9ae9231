// Filters on sequences and dicts, with the attribute paths ("a.b.0") that several of them accept.
// Lazy ones give generators, whose items can be taken once and which are always true, as in Python.
#include <algorithm>
#include <charconv>

#include "ggml/base/cat.h"
#include "src/text/jinja/builtins.h"
#include "src/text/jinja/operators.h"
#include "src/text/jinja/print.h"
#include "src/text/jinja/unicode.h"

namespace nibble::jinja {
namespace {

using Items = std::vector<Value>;

// The value at a dotted path; numbers in it are indices. A value that is not a string is one index.
Result<Value> at_path(Call& c, Value v, const Value& path) {
    const Text* text = path.text();
    if (!text) return get_item(c.runtime, v, path);
    std::string_view rest = text->view();
    while (true) {
        if (!c.budget.spend(4)) return c.budget.exhausted();  // a string is made and looked up
        const std::string_view part = rest.substr(0, rest.find('.'));
        int64_t index = 0;
        const auto r = std::from_chars(part.data(), part.data() + part.size(), index);
        const bool number = r.ec == std::errc() && r.ptr == part.data() + part.size() && part[0] != '-';
        v = NIBBLE_TRY(get_item(c.runtime, v, number ? Value(index) : make_text(std::string(part))));
        if (part.size() == rest.size()) return v;
        rest.remove_prefix(part.size() + 1);
    }
}

// What sorting and comparing look at: the attribute if given, in lower case unless case matters.
Result<Value> sort_key(Call& c, const Value& item, const Value* attribute, bool case_sensitive) {
    Value key = item;
    if (attribute && !attribute->is_none()) key = NIBBLE_TRY(at_path(c, item, *attribute));
    if (!case_sensitive && key.text()) return map_case(c.budget, *key.text(), to_lower);
    return key;
}

struct Keyed {
    Items keys;  // compared in order
    Value item;
};

Result<bool> before(Budget& budget, const Keyed& a, const Keyed& b) {
    for (size_t i = 0; i < a.keys.size(); ++i) {
        if (NIBBLE_TRY(compare(budget, Op::eq, a.keys[i], b.keys[i]))) continue;
        return compare(budget, Op::lt, a.keys[i], b.keys[i]);
    }
    return false;
}

// A stable merge sort, because std::sort may not see a comparison that fails.
Result<void> stable_sort(Budget& budget, std::vector<Keyed>& items, bool reverse) {
    std::vector<Keyed> from = std::move(items), to(from.size());
    for (size_t width = 1; width < from.size(); width *= 2) {
        for (size_t begin = 0; begin < from.size(); begin += 2 * width) {
            const size_t middle = std::min(begin + width, from.size()),
                         end = std::min(begin + 2 * width, from.size());
            for (size_t left = begin, right = middle, out = begin; out < end; ++out) {
                bool take_right = left == middle;
                if (left < middle && right < end) {
                    take_right = NIBBLE_TRY(reverse ? before(budget, from[left], from[right])
                                                    : before(budget, from[right], from[left]));
                }
                to[out] = std::move(take_right ? from[right++] : from[left++]);
            }
        }
        std::swap(from, to);
    }
    items = std::move(from);
    return {};
}

Result<Value> sorted(Call& c, std::vector<Keyed> keyed, bool reverse) {
    NIBBLE_TRY(stable_sort(c.budget, keyed, reverse));
    Items items;
    for (Keyed& k : keyed) items.push_back(std::move(k.item));
    return c.budget.list(std::move(items));
}

Result<Value> filter_sort(Call& c) {
    std::vector<Keyed> keyed;
    Items paths;  // "a,b" sorts by a, then by b
    const Value* attribute = c.arg(2);
    if (attribute && attribute->text()) {
        for (std::string_view rest = attribute->text()->view();;) {
            const size_t comma = rest.find(',');
            paths.push_back(NIBBLE_TRY(c.budget.text(std::string(rest.substr(0, comma)))));
            if (comma == rest.npos) break;
            rest.remove_prefix(comma + 1);
        }
    } else {
        paths.push_back(attribute ? *attribute : Value(None{}));
    }
    for (Value& item : NIBBLE_TRY(iterate(c.budget, c.self))) {
        Keyed k;
        if (!c.budget.spend_bytes(paths.size() * sizeof(Value))) return c.budget.exhausted();
        for (const Value& path : paths)
            k.keys.push_back(NIBBLE_TRY(sort_key(c, item, &path, c.flag(1, false))));
        k.item = std::move(item);
        keyed.push_back(std::move(k));
    }
    return sorted(c, std::move(keyed), c.flag(0, false));
}

Result<Value> filter_dictsort(Call& c) {
    const Dict* dict = c.self.dict();
    if (!dict) return failure(cat("'dictsort' needs a dict, not ", type_name(c.self)));
    const std::string by = NIBBLE_TRY(c.text(1, "key"))->str();
    if (by != "key" && by != "value") return failure("'dictsort' sorts by \"key\" or \"value\"");
    std::vector<Keyed> keyed;
    for (const auto& [key, value] : dict->entries) {
        Value pair = NIBBLE_TRY(c.budget.list({key, value}, List::Flavor::tuple));
        Value sort_by = NIBBLE_TRY(sort_key(c, by == "key" ? key : value, nullptr, c.flag(0, false)));
        keyed.push_back({{std::move(sort_by)}, std::move(pair)});
    }
    return sorted(c, std::move(keyed), c.flag(2, false));
}

Result<Value> filter_unique(Call& c) {
    Items seen, out;
    for (const Value& item : NIBBLE_TRY(iterate(c.budget, c.self))) {
        Value key = NIBBLE_TRY(sort_key(c, item, c.arg(1), c.flag(0, false)));
        if (!is_hashable(key)) return failure(cat("'unique' does not work on a ", type_name(key)));
        bool known = false;
        for (size_t i = 0; i < seen.size() && !known; ++i)
            known = NIBBLE_TRY(compare(c.budget, Op::eq, seen[i], key));
        if (known) continue;
        seen.push_back(std::move(key));
        out.push_back(item);
    }
    return c.budget.list(std::move(out), List::Flavor::generator);
}

Result<Value> extreme(Call& c, Op op) {
    Value best, best_key;
    bool any = false;
    for (Value& item : NIBBLE_TRY(iterate(c.budget, c.self))) {
        Value key = NIBBLE_TRY(sort_key(c, item, c.arg(1), c.flag(0, false)));
        if (any && !NIBBLE_TRY(compare(c.budget, op, key, best_key))) continue;
        best = std::move(item);
        best_key = std::move(key);
        any = true;
    }
    return best;
}
Result<Value> filter_min(Call& c) { return extreme(c, Op::lt); }
Result<Value> filter_max(Call& c) { return extreme(c, Op::gt); }

Result<Value> filter_sum(Call& c) {
    Value total = c.arg(1) ? *c.arg(1) : Value(int64_t{0});
    if (total.text()) return failure("'sum' does not add strings; use 'join'");
    for (Value& item : NIBBLE_TRY(iterate(c.budget, c.self))) {
        if (c.arg(0) && !c.arg(0)->is_none()) item = NIBBLE_TRY(at_path(c, std::move(item), *c.arg(0)));
        total = NIBBLE_TRY(arithmetic(c.budget, Op::add, std::move(total), item));
    }
    return total;
}

Result<Value> filter_length(Call& c) {
    if (const Text* t = c.self.text()) return Value(static_cast<int64_t>(count_code_points(t->view())));
    const List* list = c.self.list();
    if (list && list->flavor != List::Flavor::generator)
        return Value(static_cast<int64_t>(list->items.size()));
    if (const Dict* dict = c.self.dict()) return Value(static_cast<int64_t>(dict->entries.size()));
    if (c.self.is_undefined()) return Value(int64_t{0});
    return failure(cat("a ", type_name(c.self), " has no length"));
}

Result<Value> filter_default(Call& c) {
    const bool replace = c.self.is_undefined() || (c.flag(1, false) && !truthy(c.self));
    if (!replace) return c.self;
    return c.arg(0) ? *c.arg(0) : make_text("");
}

Result<Value> filter_first(Call& c) {
    List* list = c.self.list();
    if (list && list->flavor == List::Flavor::generator) {
        return list->taken < list->items.size() ? list->items[list->taken++] : Value();
    }
    if (list) return list->items.empty() ? Value() : list->items.front();
    const Items items = NIBBLE_TRY(iterate(c.budget, c.self));
    return items.empty() ? Value() : items.front();
}

Result<Value> filter_last(Call& c) {
    const List* list = c.self.list();
    if (list && list->flavor == List::Flavor::generator)
        return failure("'last' does not work on a generator", ErrorCode::invalid_argument,
                       "make it a list first");
    if (list) return list->items.empty() ? Value() : list->items.back();
    const Items items = NIBBLE_TRY(iterate(c.budget, c.self));
    return items.empty() ? Value() : items.back();
}

Result<Value> filter_join(Call& c) {
    Items items = NIBBLE_TRY(iterate(c.budget, c.self));
    if (c.arg(1) && !c.arg(1)->is_none()) {
        for (Value& item : items) item = NIBBLE_TRY(at_path(c, std::move(item), *c.arg(1)));
    }
    return join(c.budget, *NIBBLE_TRY(c.text(0, "")), items, false);
}

Result<Value> filter_list(Call& c) { return c.budget.list(NIBBLE_TRY(iterate(c.budget, c.self))); }

Result<Value> filter_items(Call& c) {
    if (c.self.is_undefined()) return c.budget.list({}, List::Flavor::generator);
    if (!c.self.dict()) return failure(cat("'items' needs a dict, not ", type_name(c.self)));
    Items pairs;
    for (const auto& [key, value] : c.self.dict()->entries) {
        pairs.push_back(NIBBLE_TRY(c.budget.list({key, value}, List::Flavor::tuple)));
    }
    return c.budget.list(std::move(pairs), List::Flavor::generator);
}

Result<Value> filter_reverse(Call& c) {
    if (const Text* t = c.self.text()) {
        if (!c.budget.spend(t->size() / 4)) return c.budget.exhausted();
        Text out;
        for (size_t end = t->size(); end > 0;) {
            const size_t begin = previous(t->view(), end);
            out.append(*t, begin, end);
            end = begin;
        }
        return c.budget.text(std::move(out));
    }
    Items items = NIBBLE_TRY(iterate(c.budget, c.self));
    std::reverse(items.begin(), items.end());
    return c.budget.list(std::move(items), List::Flavor::generator);
}

Result<Value> filter_batch(Call& c) {
    const int64_t size = NIBBLE_TRY(c.integer(0, 0));
    if (size < 1) return failure("'batch' needs a size of at least 1");
    Items batches, batch;
    const auto flush = [&]() -> Result<void> {
        batches.push_back(NIBBLE_TRY(c.budget.list(std::exchange(batch, {}))));
        return {};
    };
    for (Value& item : NIBBLE_TRY(iterate(c.budget, c.self))) {
        if (static_cast<int64_t>(batch.size()) == size) NIBBLE_TRY(flush());
        batch.push_back(std::move(item));
    }
    if (!batch.empty()) {
        const bool fill = c.arg(1) && !c.arg(1)->is_none();
        const auto missing = static_cast<uint64_t>(size) - batch.size();
        if (fill && (!c.budget.spend(missing) || !c.budget.spend_bytes(missing * sizeof(Value))))
            return c.budget.exhausted();
        if (fill) batch.resize(static_cast<size_t>(size), *c.arg(1));
        NIBBLE_TRY(flush());
    }
    return c.budget.list(std::move(batches), List::Flavor::generator);
}

Result<Value> filter_slice(Call& c) {
    const int64_t slices = NIBBLE_TRY(c.integer(0, 0));
    const Items items = NIBBLE_TRY(iterate(c.budget, c.self));
    if (slices < 1) return failure("'slice' needs at least one slice");
    if (!c.budget.spend(static_cast<uint64_t>(slices))) return c.budget.exhausted();
    const auto count = static_cast<size_t>(slices), each = items.size() / count, extra = items.size() % count;
    Items out;
    for (size_t i = 0, at = 0; i < count; ++i) {
        const size_t end = at + each + (i < extra ? 1 : 0);
        Items part(items.begin() + static_cast<std::ptrdiff_t>(at),
                   items.begin() + static_cast<std::ptrdiff_t>(end));
        if (c.arg(1) && !c.arg(1)->is_none() && i >= extra) part.push_back(*c.arg(1));
        out.push_back(NIBBLE_TRY(c.budget.list(std::move(part))));
        at = end;
    }
    return c.budget.list(std::move(out), List::Flavor::generator);
}

Result<Value> filter_attr(Call& c) {
    if (!c.arg(0)->text()) return Value();
    // Items are not attributes.
    if (c.self.dict() && !find_method(c.self, c.arg(0)->text()->view())) return Value();
    return get_item(c.runtime, c.self, *c.arg(0));
}

// What map, select and their kin go over: nothing for None and other false values.
Result<Items> lazy_items(Call& c) { return truthy(c.self) ? iterate(c.budget, c.self) : Items(); }

// Of those given there are two copies: what is handed on, and what the call has of it.
Result<void> pay_for_arguments(Call& c) {
    const size_t n = c.raw.positional.size() + 2 * c.raw.named.size();
    if (!c.budget.spend_bytes(2 * n * sizeof(Value))) return c.budget.exhausted();
    return {};
}

// map("filter", arguments…) or map(attribute="a.b", default=…).
Result<Value> filter_map(Call& c) {
    Items items = NIBBLE_TRY(lazy_items(c));
    const auto named = [&](std::string_view name) -> const Value* {
        for (const auto& [key, value] : c.raw.named) {
            if (key == name) return &value;
        }
        return nullptr;
    };
    const Value* attribute = named("attribute");
    if (c.raw.positional.empty() && attribute) {
        const Value* fallback = named("default");
        if (c.raw.named.size() != (fallback ? 2u : 1u)) return failure("'map' takes attribute and default");
        for (Value& item : items) {
            item = NIBBLE_TRY(at_path(c, std::move(item), *attribute));
            if (fallback && item.is_undefined()) item = *fallback;
        }
        return c.budget.list(std::move(items), List::Flavor::generator);
    }
    if (c.raw.positional.empty() || !c.raw.positional[0].text())
        return failure("'map' needs the name of a filter");
    const std::string& name = c.raw.positional[0].text()->str();
    const Builtin* filter = find_filter(name);
    if (!filter) return failure(cat("there is no filter '", name, "'"));
    NIBBLE_TRY(pay_for_arguments(c));
    const Arguments rest{{c.raw.positional.begin() + 1, c.raw.positional.end()}, c.raw.named};
    for (Value& item : items) item = NIBBLE_TRY(invoke(c.runtime, *filter, item, rest));
    return c.budget.list(std::move(items), List::Flavor::generator);
}

// select, reject, selectattr, rejectattr: keep the items for which a test (or their truth) is `wanted`.
Result<Value> choose(Call& c, bool by_attribute, bool wanted) {
    const Items& given = c.raw.positional;
    const size_t used = by_attribute ? 1 : 0;
    if (given.size() < used) return failure("the name of an attribute is needed");
    const Builtin* test = nullptr;
    Arguments rest{{}, c.raw.named};
    if (given.size() > used) {
        const Text* name = given[used].text();
        test = name ? find_test(name->view()) : nullptr;
        if (!test)
            return failure(name ? cat("there is no test '", name->view(), "'")
                                : "the name of a test is needed");
        NIBBLE_TRY(pay_for_arguments(c));
        rest.positional.assign(given.begin() + static_cast<std::ptrdiff_t>(used) + 1, given.end());
    }
    Items kept;
    for (Value& item : NIBBLE_TRY(lazy_items(c))) {
        const Value subject = by_attribute ? NIBBLE_TRY(at_path(c, item, given[0])) : item;
        const bool result =
            test ? truthy(NIBBLE_TRY(invoke(c.runtime, *test, subject, rest))) : truthy(subject);
        if (result == wanted) kept.push_back(std::move(item));
    }
    return c.budget.list(std::move(kept), List::Flavor::generator);
}
Result<Value> filter_select(Call& c) { return choose(c, false, true); }
Result<Value> filter_reject(Call& c) { return choose(c, false, false); }
Result<Value> filter_selectattr(Call& c) { return choose(c, true, true); }
Result<Value> filter_rejectattr(Call& c) { return choose(c, true, false); }

constexpr Builtin rows[] = {
    {"length", filter_length},
    {"count", filter_length},
    {"default", filter_default, {"default_value", "boolean"}},
    {"d", filter_default, {"default_value", "boolean"}},
    {"first", filter_first},
    {"last", filter_last},
    {"join", filter_join, {"d", "attribute"}},
    {"list", filter_list},
    {"items", filter_items},
    {"map", filter_map, {}, 0, true},
    {"select", filter_select, {}, 0, true},
    {"reject", filter_reject, {}, 0, true},
    {"selectattr", filter_selectattr, {}, 0, true},
    {"rejectattr", filter_rejectattr, {}, 0, true},
    {"sort", filter_sort, {"reverse", "case_sensitive", "attribute"}},
    {"dictsort", filter_dictsort, {"case_sensitive", "by", "reverse"}},
    {"unique", filter_unique, {"case_sensitive", "attribute"}},
    {"min", filter_min, {"case_sensitive", "attribute"}},
    {"max", filter_max, {"case_sensitive", "attribute"}},
    {"sum", filter_sum, {"attribute", "start"}},
    {"reverse", filter_reverse},
    {"batch", filter_batch, {"linecount", "fill_with"}, 1},
    {"slice", filter_slice, {"slices", "fill_with"}, 1},
    {"attr", filter_attr, {"name"}, 1},
};

}  // namespace

std::span<const Builtin> list_filters() { return rows; }

}  // namespace nibble::jinja
