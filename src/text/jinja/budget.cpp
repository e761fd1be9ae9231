// Accounting for budget.h.
// Sizes are estimates of the heap use, on the high side.
#include "src/text/jinja/budget.h"

#include <algorithm>

#include "ggml/base/cat.h"

namespace nibble::jinja {
namespace {
constexpr uint64_t object_bytes = 96;  // a shared string, list or dict without contents
}

Error failure(std::string what, ErrorCode code, std::string fix) {
    return {code, "", std::move(what), std::move(fix)};
}

Error Budget::exhausted() const {
    if (bytes_ > limits_.bytes) {
        return failure(cat("the template needs more than ", limits_.bytes >> 20, " MiB"),
                       ErrorCode::out_of_memory,
                       "it builds its strings or lists over and over; use another template");
    }
    return failure(cat("the template takes more than ", limits_.steps, " steps"), ErrorCode::unsupported,
                   "it loops too long; use another template or a shorter conversation");
}

Error Budget::too_deep() const {
    return failure(cat("the template nests its calls more than ", limits_.recursion, " deep"),
                   ErrorCode::unsupported);
}

Result<Value> Budget::text(Text t) {
    if (!spend_bytes(object_bytes + t.size())) return exhausted();
    return make_text(std::move(t));
}

Result<Extent> Budget::grow(Extent whole, const Value& part) const {
    const Extent e = extent(part);
    whole.depth = std::max(whole.depth, e.depth + 1);
    whole.weight += std::min(e.weight, limits_.weight);
    whole.objects |= e.objects;
    if (whole.depth > limits_.nesting) {
        return failure(cat("lists or dicts nested more than ", limits_.nesting, " deep"),
                       ErrorCode::unsupported);
    }
    if (whole.weight > limits_.weight) {
        return failure(cat("a list or dict with more than ", limits_.weight, " values"),
                       ErrorCode::unsupported);
    }
    return whole;
}

Result<Value> Budget::list(std::vector<Value> items, List::Flavor flavor) {
    if (!spend_bytes(object_bytes + items.size() * sizeof(Value)) || !spend(items.size())) return exhausted();
    auto list = std::make_shared<List>();
    for (const Value& item : items) {
        list->extent = NIBBLE_TRY(grow(list->extent, item));
        mark_held(item);
    }
    list->items = std::move(items);
    list->flavor = flavor;
    return Value(std::move(list));
}

Result<Value> Budget::dict(std::vector<std::pair<Value, Value>> entries) {
    if (!spend_bytes(object_bytes)) return exhausted();
    auto dict = std::make_shared<Dict>();
    dict->entries.reserve(entries.size());
    for (auto& [key, value] : entries) NIBBLE_TRY(set(*dict, std::move(key), std::move(value)));
    return Value(std::move(dict));
}

Result<void> Budget::append(List& list, Value item) {
    if (!spend_bytes(sizeof(Value))) return exhausted();
    list.extent = NIBBLE_TRY(grow(list.extent, item));
    mark_held(item);
    list.items.push_back(std::move(item));
    return {};
}

Result<void> Budget::set(Dict& dict, Value key, Value value) {
    if (!spend_bytes(2 * sizeof(Value)) || !spend(uint64_t{extent(key).weight} * (1 + dict.entries.size())))
        return exhausted();
    if (!is_hashable(key)) return failure(cat("a ", type_name(key), " cannot be a key"));
    dict.extent = NIBBLE_TRY(grow(dict.extent, key));
    dict.extent = NIBBLE_TRY(grow(dict.extent, value));
    mark_held(value);
    if (const Value* old = dict.find(key)) {
        *const_cast<Value*>(old) = std::move(value);
    } else {
        dict.entries.emplace_back(std::move(key), std::move(value));
    }
    return {};
}

}  // namespace nibble::jinja
