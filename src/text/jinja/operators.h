// Python's operators on values: arithmetic, comparison, membership, subscripts and slices.
// Types that do not go together are an error that names both.
#pragma once

#include <optional>

#include "ggml/base/result.h"
#include "src/text/jinja/budget.h"
#include "src/text/jinja/value.h"

namespace nibble::jinja {

enum class Op : uint8_t { add, sub, mul, div, floor_div, mod, pow, eq, ne, lt, le, gt, ge, in, not_in };

bool equal(const Value& a, const Value& b);
// Arithmetic (add … pow). A string on the left that nobody else owns is extended in place.
Result<Value> arithmetic(Budget& budget, Op op, Value a, const Value& b);
Result<bool> compare(Budget& budget, Op op, const Value& a, const Value& b);  // eq … not_in
Result<Value> negate(const Value& v);

// v[key] without attributes: the element, or null when there is none (a wrong index, key or type).
// Characters of a string are new values, hence a copy.
Result<std::optional<Value>> element(Budget& budget, const Value& v, const Value& key);
// v[start:stop:step]; undefined bounds are an error, None ones are left out.
Result<Value> slice(Budget& budget, const Value& v, const Value& start, const Value& stop, const Value& step);

// The elements that `for x in v` would see: items, keys, characters. A generator gives them up.
Result<std::vector<Value>> iterate(Budget& budget, const Value& v);
bool is_iterable(const Value& v);

}  // namespace nibble::jinja
