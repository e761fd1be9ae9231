// Subscripts, slices and iteration of operators.h.
// Strings are counted in code points, as in Python.
#include <algorithm>
#include <limits>

#include "ggml/base/cat.h"
#include "src/text/jinja/operators.h"
#include "src/text/jinja/unicode.h"

namespace nibble::jinja {
namespace {

// Python's slice bounds: clamped, negative ones counted from the end.
struct Bounds {
    int64_t start = 0, stop = 0, step = 1;
};

Result<int64_t> bound(const Value& v, int64_t absent) {
    int64_t i = 0;
    if (v.is_none()) return absent;
    if (v.as_integer(i)) return i;
    if (const Undefined* u = v.undefined()) return failure(describe(*u));
    return failure(cat("a slice needs integers, not ", type_name(v)));
}

Result<Bounds> bounds(int64_t size, const Value& start, const Value& stop, const Value& step) {
    Bounds b;
    b.step = NIBBLE_TRY(bound(step, 1));
    if (b.step == 0) return failure("a slice cannot step by zero");
    const bool backwards = b.step < 0;
    const auto clamp = [&](int64_t i) {
        if (i < 0) i = i < -size ? -1 : i + size;
        return std::clamp<int64_t>(i, backwards ? -1 : 0, backwards ? size - 1 : size);
    };
    // A negative start that lies before the string is 0 forwards and "before the first" backwards.
    b.start = start.is_none() ? (backwards ? size - 1 : 0) : clamp(NIBBLE_TRY(bound(start, 0)));
    b.stop = stop.is_none() ? (backwards ? -1 : size) : clamp(NIBBLE_TRY(bound(stop, 0)));
    return b;
}

template <class Take>
void walk(const Bounds& b, Take take) {
    if (b.step > 0) {
        for (int64_t i = b.start; i < b.stop;) {
            take(static_cast<size_t>(i));
            if (b.step > b.stop - i) break;  // also avoids the overflow of i + step
            i += b.step;
        }
    } else {
        for (int64_t i = b.start; i > b.stop;) {
            take(static_cast<size_t>(i));
            if (b.step < b.stop - i) break;
            i += b.step;
        }
    }
}

Result<Value> slice_text(Budget& budget, const Text& text, const Bounds& b, bool ascii) {
    if (!budget.spend(text.size() / 16)) return budget.exhausted();
    const auto offset = [&](size_t i) { return ascii ? i : byte_offset(text.view(), i); };
    if (b.step == 1) {
        if (b.start >= b.stop) return budget.text(std::string());
        return budget.text(
            text.slice(offset(static_cast<size_t>(b.start)), offset(static_cast<size_t>(b.stop))));
    }
    std::vector<size_t> starts;
    for (size_t at = 0; at < text.size(); at += decode(text.view(), at).length) starts.push_back(at);
    starts.push_back(text.size());
    if (!budget.spend_bytes(starts.size() * sizeof(size_t))) return budget.exhausted();
    Text out;
    walk(b, [&](size_t i) { out.append(text, starts[i], starts[i + 1]); });
    return budget.text(std::move(out));
}

}  // namespace

Result<std::optional<Value>> element(Budget& budget, const Value& v, const Value& key) {
    using Found = std::optional<Value>;
    if (const Dict* dict = v.dict()) {
        if (!budget.spend(uint64_t{extent(key).weight} * (1 + dict->entries.size() / 8)))
            return budget.exhausted();
        const Value* found = is_hashable(key) ? dict->find(key) : nullptr;
        return found ? Found(*found) : Found();
    }
    int64_t i = 0;
    if (!key.as_integer(i)) return Found();
    if (const Text* text = v.text()) {
        if (!budget.spend(text->size() / 16)) return budget.exhausted();
        const int64_t size = static_cast<int64_t>(count_code_points(text->view()));
        if (i < 0) i += size;
        if (i < 0 || i >= size) return Found();
        const size_t at = byte_offset(text->view(), static_cast<size_t>(i));
        return Found(NIBBLE_TRY(budget.text(text->slice(at, at + decode(text->view(), at).length))));
    }
    const List* list = v.list();
    if (!list || list->flavor == List::Flavor::generator || list->flavor == List::Flavor::view)
        return Found();
    const int64_t size = static_cast<int64_t>(list->items.size());
    if (i < 0) i += size;
    if (i < 0 || i >= size) return Found();
    return Found(list->items[static_cast<size_t>(i)]);
}

Result<Value> slice(Budget& budget, const Value& v, const Value& start, const Value& stop,
                    const Value& step) {
    if (const Text* text = v.text()) {
        const bool ascii = is_ascii(text->view());
        const size_t size = ascii ? text->size() : count_code_points(text->view());
        const Bounds b = NIBBLE_TRY(bounds(static_cast<int64_t>(size), start, stop, step));
        return slice_text(budget, *text, b, ascii);
    }
    const List* list = v.list();
    if (list && (list->flavor == List::Flavor::list || list->flavor == List::Flavor::tuple)) {
        const Bounds b = NIBBLE_TRY(bounds(static_cast<int64_t>(list->items.size()), start, stop, step));
        std::vector<Value> items;
        walk(b, [&](size_t i) { items.push_back(list->items[i]); });
        return budget.list(std::move(items), list->flavor);
    }
    if (const Undefined* u = v.undefined()) return failure(describe(*u));
    return failure(cat("a ", type_name(v), " cannot be sliced"));
}

bool is_iterable(const Value& v) { return v.text() || v.list() || v.dict() || v.is_undefined(); }

Result<std::vector<Value>> iterate(Budget& budget, const Value& v) {
    std::vector<Value> items;
    if (List* list = v.list()) {
        if (!budget.spend_bytes(list->items.size() * sizeof(Value))) return budget.exhausted();
        items.assign(list->items.begin() + static_cast<std::ptrdiff_t>(list->taken), list->items.end());
        if (list->flavor == List::Flavor::generator) list->taken = list->items.size();
    } else if (const Dict* dict = v.dict()) {
        if (!budget.spend_bytes(dict->entries.size() * sizeof(Value))) return budget.exhausted();
        for (const auto& entry : dict->entries) items.push_back(entry.first);
    } else if (const Text* text = v.text()) {
        for (size_t at = 0; at < text->size();) {
            const size_t end = at + decode(text->view(), at).length;
            items.push_back(NIBBLE_TRY(budget.text(text->slice(at, end))));
            at = end;
        }
    } else if (!v.is_undefined()) {
        return failure(cat("a ", type_name(v), " cannot be iterated over"));
    }
    if (!budget.spend(items.size())) return budget.exhausted();
    return items;
}

}  // namespace nibble::jinja
