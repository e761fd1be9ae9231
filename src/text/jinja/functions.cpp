// The functions every template can call: range, dict, namespace, cycler, joiner, raise_exception,
// strftime_now. The last two are what transformers adds to Jinja for chat templates.
#include <algorithm>

#include "ggml/base/cat.h"
#include "src/text/jinja/builtins.h"
#include "src/text/jinja/operators.h"
#include "src/text/jinja/print.h"
#include "src/text/jinja/strftime.h"

namespace nibble::jinja {
namespace {

constexpr uint64_t max_range = 100'000;  // as Jinja's sandbox

Result<Value> function_range(Call& c) {
    if (!c.arg(0)) return failure("'range' needs a number");
    const bool one = !c.arg(1);
    const int64_t start = one ? 0 : NIBBLE_TRY(c.integer(0, 0));
    const int64_t stop = NIBBLE_TRY(c.integer(one ? 0 : 1, 0)), step = NIBBLE_TRY(c.integer(2, 1));
    if (step == 0) return failure("'range' cannot step by zero");
    const bool empty = step > 0 ? start >= stop : start <= stop;
    // Unsigned arithmetic: the distance of two int64 may exceed int64.
    const uint64_t distance = step > 0 ? static_cast<uint64_t>(stop) - static_cast<uint64_t>(start)
                                       : static_cast<uint64_t>(start) - static_cast<uint64_t>(stop);
    const uint64_t stride = step > 0 ? static_cast<uint64_t>(step) : 0 - static_cast<uint64_t>(step);
    const uint64_t count = empty ? 0 : (distance - 1) / stride + 1;
    if (count > max_range)
        return failure(cat("a range of more than ", max_range, " numbers"), ErrorCode::unsupported);
    std::vector<Value> items;
    items.reserve(count);
    for (uint64_t i = 0; i < count; ++i) {
        items.push_back(
            Value(static_cast<int64_t>(static_cast<uint64_t>(start) + i * static_cast<uint64_t>(step))));
    }
    return c.budget.list(std::move(items));
}

// The entries of a dict, or of a sequence of pairs, followed by the named arguments.
Result<std::vector<std::pair<Value, Value>>> entries(Call& c) {
    std::vector<std::pair<Value, Value>> out;
    if (c.raw.positional.size() > 1) return failure("one dict and named values are accepted");
    for (const Value& from : c.raw.positional) {
        if (const Dict* dict = from.dict()) {
            if (!c.budget.spend_bytes(dict->entries.size() * 2 * sizeof(Value))) return c.budget.exhausted();
            out = dict->entries;
            continue;
        }
        if (const Undefined* u = from.undefined()) return failure(describe(*u));
        for (const Value& item : NIBBLE_TRY(iterate(c.budget, from))) {
            std::vector<Value> pair = NIBBLE_TRY(iterate(c.budget, item));
            if (pair.size() != 2) return failure("a dict is made from pairs");
            out.emplace_back(std::move(pair[0]), std::move(pair[1]));
        }
    }
    for (const auto& [name, value] : c.raw.named) out.emplace_back(make_text(name), value);
    return out;
}

Result<Value> function_dict(Call& c) { return c.budget.dict(NIBBLE_TRY(entries(c))); }

Result<Value> function_namespace(Call& c) {
    auto space = std::make_shared<Namespace>();
    if (!c.budget.spend_bytes(sizeof(Namespace))) return c.budget.exhausted();
    for (auto& [key, value] : NIBBLE_TRY(entries(c))) {
        if (!key.text()) return failure("the attributes of a namespace are named by strings");
        if (!c.budget.spend_lookup(space->attributes.size(), key.text()->size())) return c.budget.exhausted();
        space->set(key.text()->view(), std::move(value));
    }
    c.runtime.kept.push_back(space);
    return Value(ObjectRef(std::move(space)));
}

Result<Value> function_cycler(Call& c) {
    if (c.raw.positional.empty()) return failure("'cycler' needs at least one value");
    auto cycler = std::make_shared<Cycler>();
    for (const Value& v : c.raw.positional) cycler->extent = NIBBLE_TRY(c.budget.grow(cycler->extent, v));
    cycler->items = c.raw.positional;
    return Value(ObjectRef(std::move(cycler)));
}

Result<Value> function_joiner(Call& c) {
    auto joiner = std::make_shared<Joiner>();
    joiner->separator = Value(NIBBLE_TRY(c.text(0, ", ")));
    return Value(ObjectRef(std::move(joiner)));
}

Result<Value> function_raise(Call& c) {
    return failure(NIBBLE_TRY(c.text(0, "the template refuses this conversation"))->str());
}

Result<Value> function_strftime(Call& c) {
    const TextRef format = NIBBLE_TRY(c.text(0, ""));
    // A conversion may stand for seven others, each a string or two.
    const auto conversions = std::count(format->view().begin(), format->view().end(), '%');
    if (!c.budget.spend(static_cast<uint64_t>(conversions) * 16)) return c.budget.exhausted();
    return c.budget.text(NIBBLE_TRY(format_time(format->view(), c.runtime.now)));
}

constexpr Builtin rows[] = {
    {"range", function_range, {"start", "stop", "step"}, 1},
    {"dict", function_dict, {}, 0, true},
    {"namespace", function_namespace, {}, 0, true},
    {"cycler", function_cycler, {}, 0, true},
    {"joiner", function_joiner, {"sep"}},
    {"raise_exception", function_raise, {"message"}, 1},
    {"strftime_now", function_strftime, {"format"}, 1},
};

}  // namespace

const Builtin* find_function(std::string_view name) {
    for (const Builtin& row : rows) {
        if (row.name == name) return &row;
    }
    return nullptr;
}

}  // namespace nibble::jinja
