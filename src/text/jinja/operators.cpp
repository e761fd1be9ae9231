// Arithmetic and comparison as Python defines them, on 64-bit integers (an overflow is an error).
// Source of the rules: The Python Language Reference, sections 6.6 to 6.10.
#include "src/text/jinja/operators.h"

#include <algorithm>
#include <cmath>

#include "ggml/base/cat.h"
#include "ggml/base/checked.h"
#include "src/text/jinja/print.h"
#include "src/text/jinja/search.h"
#include "src/text/jinja/string_format.h"

namespace nibble::jinja {
namespace {

std::string_view symbol(Op op) {
    constexpr std::string_view symbols[] = {
        "+", "-", "*", "/", "//", "%", "**", "==", "!=", "<", "<=", ">", ">=", "in", "not in"};
    return symbols[static_cast<size_t>(op)];
}

Error mismatch(Op op, const Value& a, const Value& b) {
    for (const Value* v : {&a, &b}) {
        if (const Undefined* u = v->undefined()) return failure(describe(*u));
    }
    return failure(cat("'", symbol(op), "' does not work between ", type_name(a), " and ", type_name(b)));
}

Error overflow(Op op) { return failure(cat("the result of '", symbol(op), "' does not fit in 64 bits")); }

Result<Value> power(int64_t base, int64_t exponent) {
    int64_t result = 1;
    for (int64_t left = exponent; left > 0; left >>= 1) {
        if ((left & 1) && !checked_mul(result, base, result)) return overflow(Op::pow);
        if (left > 1 && !checked_mul(base, base, base)) return overflow(Op::pow);
    }
    return Value(result);
}

Result<Value> integer_arithmetic(Op op, int64_t a, int64_t b) {
    int64_t r = 0;
    switch (op) {
        case Op::add:
            if (!checked_add(a, b, r)) return overflow(op);
            return Value(r);
        case Op::sub:
            if (__builtin_sub_overflow(a, b, &r)) return overflow(op);
            return Value(r);
        case Op::mul:
            if (!checked_mul(a, b, r)) return overflow(op);
            return Value(r);
        case Op::pow:
            if (b < 0) {
                if (a == 0) return failure("zero cannot be raised to a negative power");
                return Value(std::pow(static_cast<double>(a), static_cast<double>(b)));
            }
            return power(a, b);
        default:
            break;
    }
    if (b == 0) return failure("division by zero");
    if (op == Op::div) return Value(static_cast<double>(a) / static_cast<double>(b));
    // The one quotient that overflows; its remainder traps on some machines.
    if (b == -1) return op == Op::mod ? Result<Value>(Value(int64_t{0})) : integer_arithmetic(Op::sub, 0, a);
    const bool floor_down = a % b != 0 && (a < 0) != (b < 0);
    if (op == Op::floor_div) return Value(a / b - (floor_down ? 1 : 0));
    return Value(floor_down ? a % b + b : a % b);
}

Result<Value> real_arithmetic(Op op, double a, double b) {
    switch (op) {
        case Op::add:
            return Value(a + b);
        case Op::sub:
            return Value(a - b);
        case Op::mul:
            return Value(a * b);
        case Op::pow:
            if (a < 0 && b != std::floor(b)) return failure("a root of a negative number");
            if (a == 0 && b < 0) return failure("zero cannot be raised to a negative power");
            return Value(std::pow(a, b));
        default:
            break;
    }
    if (b == 0) return failure("division by zero");
    if (op == Op::div) return Value(a / b);
    double remainder = std::fmod(a, b);
    if (remainder != 0 && (remainder < 0) != (b < 0)) remainder += b;
    if (op == Op::mod) return Value(remainder == 0 ? std::copysign(0.0, b) : remainder);
    return Value(std::floor((a - remainder) / b + 0.5));
}

// Extends the string in place when this is its only owner: a chain of `+` then copies once.
Result<Value> concatenate(Budget& budget, Value a, const Text& b) {
    if (!budget.spend_bytes(b.size())) return budget.exhausted();
    TextRef left = a.take_text();
    if (left.use_count() == 1) {
        // Every Text is created mutable by make_text; the const of TextRef only protects shared ones.
        auto own = std::const_pointer_cast<Text>(left);
        own->append(b);
        return Value(std::move(left));
    }
    Text joined;
    joined.reserve(left->size() + b.size());
    joined.append(*left);
    joined.append(b);
    return budget.text(std::move(joined));
}

Result<Value> repeat(Budget& budget, const Value& v, int64_t times) {
    const uint64_t n = static_cast<uint64_t>(std::max<int64_t>(times, 0));
    const uint64_t size = v.text() ? v.text()->size() : v.list()->items.size() * sizeof(Value);
    uint64_t bytes = 0;
    if (!checked_mul(n, size, bytes) || !budget.spend(n / 4) || !budget.spend_bytes(bytes)) {
        return failure(cat("repeating a ", type_name(v), " ", times, " times takes too much memory"),
                       ErrorCode::out_of_memory);
    }
    if (const Text* t = v.text()) {
        Text out;
        for (uint64_t i = 0; size > 0 && i < n; ++i) out.append(*t);
        return make_text(std::move(out));
    }
    std::vector<Value> items;
    const List& list = *v.list();
    for (uint64_t i = 0; size > 0 && i < n; ++i)
        items.insert(items.end(), list.items.begin(), list.items.end());
    return budget.list(std::move(items), list.flavor);
}

bool is_sequence(const Value& v) {
    if (v.text()) return true;
    const List* l = v.list();
    return l && (l->flavor == List::Flavor::list || l->flavor == List::Flavor::tuple);
}

Result<bool> contains(Budget& budget, const Value& needle, const Value& hay) {
    if (const Text* text = hay.text()) {
        if (!needle.text()) return mismatch(Op::in, needle, hay);
        if (needle.text()->empty()) return true;
        Search search = NIBBLE_TRY(Search::start(budget, text->view(), needle.text()->view()));
        return search.next() != std::string_view::npos;
    }
    if (const Dict* dict = hay.dict()) {
        if (!budget.spend(uint64_t{extent(needle).weight} * (1 + dict->entries.size())))
            return budget.exhausted();
        if (!is_hashable(needle)) return failure(cat("a ", type_name(needle), " cannot be a key"));
        return dict->find(needle) != nullptr;
    }
    if (hay.is_undefined()) return false;
    List* list = hay.list();
    if (!list) return mismatch(Op::in, needle, hay);
    for (size_t i = list->taken; i < list->items.size(); ++i) {
        if (list->flavor == List::Flavor::generator) list->taken = i + 1;
        if (NIBBLE_TRY(compare(budget, Op::eq, list->items[i], needle))) return true;
    }
    return false;
}

Result<bool> less(Budget& budget, Op op, const Value& a, const Value& b) {
    int64_t ia = 0, ib = 0;
    double da = 0, db = 0;
    const auto decide = [op](const auto& x, const auto& y) {
        return op == Op::lt ? x < y : op == Op::le ? x <= y : op == Op::gt ? x > y : x >= y;
    };
    if (a.as_integer(ia) && b.as_integer(ib)) return decide(ia, ib);
    if (a.as_number(da) && b.as_number(db)) return decide(da, db);
    if (a.text() && b.text()) {
        if (!budget.spend(a.text()->size() / 64)) return budget.exhausted();
        return decide(a.text()->view(), b.text()->view());
    }
    const List *la = a.list(), *lb = b.list();
    if (!la || !lb || la->flavor != lb->flavor || !is_sequence(a)) return mismatch(op, a, b);
    const size_t common = std::min(la->items.size(), lb->items.size());
    for (size_t i = 0; i < common; ++i) {
        if (!equal(la->items[i], lb->items[i])) return less(budget, op, la->items[i], lb->items[i]);
    }
    return decide(la->items.size(), lb->items.size());
}

}  // namespace

bool equal(const Value& a, const Value& b) {
    int64_t ia = 0, ib = 0;
    double da = 0, db = 0;
    if (a.as_integer(ia) && b.as_integer(ib)) return ia == ib;
    if (a.as_number(da) && b.as_number(db)) return da == db;
    if (a.kind() != b.kind()) return false;
    if (a.text()) return a.text()->view() == b.text()->view();
    if (a.object()) return a.object() == b.object();
    if (const List* la = a.list()) {
        const List* lb = b.list();
        if (la == lb) return true;
        if (la->flavor != lb->flavor || la->flavor == List::Flavor::generator) return false;
        return std::equal(la->items.begin(), la->items.end(), lb->items.begin(), lb->items.end(), equal);
    }
    if (const Dict* dict = a.dict()) {
        const Dict* other = b.dict();
        if (dict == other) return true;
        if (dict->entries.size() != other->entries.size()) return false;
        for (const auto& [key, value] : dict->entries) {
            const Value* theirs = other->find(key);
            if (!theirs || !equal(value, *theirs)) return false;
        }
    }
    return true;  // None or undefined on both sides, or equal dicts
}

Result<bool> compare(Budget& budget, Op op, const Value& a, const Value& b) {
    if (op == Op::in || op == Op::not_in) return NIBBLE_TRY(contains(budget, a, b)) == (op == Op::in);
    // Comparing dicts looks every key up: charge the product of what is compared.
    const uint64_t weight = std::min(extent(a).weight, extent(b).weight);
    if (!budget.spend(a.dict() || a.list() ? weight * std::min<uint64_t>(weight, 64) : weight))
        return budget.exhausted();
    if (op == Op::eq || op == Op::ne) return equal(a, b) == (op == Op::eq);
    return less(budget, op, a, b);
}

Result<Value> arithmetic(Budget& budget, Op op, Value a, const Value& b) {
    int64_t ia = 0, ib = 0;
    double da = 0, db = 0;
    if (a.text() && b.text() && op == Op::add) return concatenate(budget, std::move(a), *b.text());
    if (a.as_integer(ia) && b.as_integer(ib)) return integer_arithmetic(op, ia, ib);
    if (a.as_number(da) && b.as_number(db)) return real_arithmetic(op, da, db);
    if (op == Op::mod && a.text()) return percent_format(budget, *a.text(), b);
    if (op == Op::mul && is_sequence(a) && b.as_integer(ib)) return repeat(budget, a, ib);
    if (op == Op::mul && a.as_integer(ia) && is_sequence(b)) return repeat(budget, b, ia);
    const List *la = a.list(), *lb = b.list();
    if (op != Op::add || !la || !lb || la->flavor != lb->flavor || !is_sequence(a)) return mismatch(op, a, b);
    std::vector<Value> items;
    if (!budget.spend_bytes((la->items.size() + lb->items.size()) * sizeof(Value))) return budget.exhausted();
    items.reserve(la->items.size() + lb->items.size());
    items.insert(items.end(), la->items.begin(), la->items.end());
    items.insert(items.end(), lb->items.begin(), lb->items.end());
    return budget.list(std::move(items), la->flavor);
}

Result<Value> negate(const Value& v) {
    int64_t i = 0;
    if (v.as_integer(i)) return integer_arithmetic(Op::sub, 0, i);
    if (const double* d = v.real()) return Value(-*d);
    if (const Undefined* u = v.undefined()) return failure(describe(*u));
    return failure(cat("'-' does not work on ", type_name(v)));
}

}  // namespace nibble::jinja
