// The tests of `x is …`: types, numbers, comparisons.
// Each returns a bool value; an argument that makes no sense is an error.
#include "ggml/base/cat.h"
#include "src/text/jinja/builtins.h"
#include "src/text/jinja/operators.h"
#include "src/text/jinja/print.h"
#include "src/text/jinja/unicode.h"

namespace nibble::jinja {
namespace {

template <Kind kind>
Result<Value> is_kind(Call& c) {
    return Value(c.self.is(kind));
}

Result<Value> is_defined(Call& c) { return Value(!c.self.is_undefined()); }
Result<Value> is_true(Call& c) { return Value(c.self.is(Kind::boolean) && truthy(c.self)); }
Result<Value> is_false(Call& c) { return Value(c.self.is(Kind::boolean) && !truthy(c.self)); }
Result<Value> is_number(Call& c) {
    double d = 0;
    return Value(c.self.as_number(d));
}
Result<Value> is_sequence(Call& c) {
    const List* l = c.self.list();
    const bool indexable = l && (l->flavor == List::Flavor::list || l->flavor == List::Flavor::tuple);
    return Value(indexable || c.self.text() || c.self.dict() || c.self.is_undefined());
}
Result<Value> test_iterable(Call& c) {
    const Object* o = c.self.object();
    return Value(is_iterable(c.self) || (o && o->type == Object::Type::loop));
}
Result<Value> is_callable(Call& c) {
    const Object* o = c.self.object();
    return Value(c.self.is_undefined() ||
                 (o && o->type != Object::Type::name_space && o->type != Object::Type::cycler));
}

Result<int64_t> remainder(Call& c, const Value& divisor) {
    const Value r = NIBBLE_TRY(arithmetic(c.budget, Op::mod, c.self, divisor));
    int64_t i = 0;
    return r.as_integer(i) ? i : static_cast<int64_t>(r.real() ? *r.real() != 0 : true);
}
Result<Value> is_odd(Call& c) { return Value(NIBBLE_TRY(remainder(c, Value(int64_t{2}))) == 1); }
Result<Value> is_even(Call& c) { return Value(NIBBLE_TRY(remainder(c, Value(int64_t{2}))) == 0); }
Result<Value> is_divisible_by(Call& c) { return Value(NIBBLE_TRY(remainder(c, *c.arg(0))) == 0); }

// Has letters, and none of the other case.
Result<Value> has_case(Call& c, uint32_t (*map)(uint32_t), uint32_t (*other)(uint32_t)) {
    const TextRef text = NIBBLE_TRY(as_text(c.budget, c.self));
    bool any = false;
    for (size_t at = 0; at < text->size();) {
        const CodePoint p = decode(text->view(), at);
        if (map(p.value) != p.value) return Value(false);
        any |= other(p.value) != p.value;
        at += p.length;
    }
    return Value(any);
}
Result<Value> is_lower(Call& c) { return has_case(c, to_lower, to_upper); }
Result<Value> is_upper(Call& c) { return has_case(c, to_upper, to_lower); }

template <Op op>
Result<Value> compares(Call& c) {
    return Value(NIBBLE_TRY(compare(c.budget, op, c.self, *c.arg(0))));
}

// Identity: the same object, or the same constant.
Result<Value> is_same_as(Call& c) {
    const Value& other = *c.arg(0);
    if (c.self.kind() != other.kind()) return Value(false);
    if (c.self.list()) return Value(c.self.list() == other.list());
    if (c.self.dict()) return Value(c.self.dict() == other.dict());
    return Value(equal(c.self, other));
}

Result<Value> is_filter(Call& c) { return Value(c.self.text() && find_filter(c.self.text()->view())); }
Result<Value> is_test(Call& c) { return Value(c.self.text() && find_test(c.self.text()->view())); }
Result<Value> is_escaped(Call&) { return Value(false); }  // there is no automatic escaping

constexpr Builtin rows[] = {
    {"defined", is_defined},
    {"undefined", is_kind<Kind::undefined>},
    {"none", is_kind<Kind::none>},
    {"string", is_kind<Kind::text>},
    {"mapping", is_kind<Kind::dict>},
    {"boolean", is_kind<Kind::boolean>},
    {"integer", is_kind<Kind::integer>},
    {"float", is_kind<Kind::real>},
    {"number", is_number},
    {"sequence", is_sequence},
    {"iterable", test_iterable},
    {"callable", is_callable},
    {"true", is_true},
    {"false", is_false},
    {"odd", is_odd},
    {"even", is_even},
    {"divisibleby", is_divisible_by, {"num"}, 1},
    {"lower", is_lower},
    {"upper", is_upper},
    {"sameas", is_same_as, {"other"}, 1},
    {"in", compares<Op::in>, {"seq"}, 1},
    {"eq", compares<Op::eq>, {"other"}, 1},
    {"equalto", compares<Op::eq>, {"other"}, 1},
    {"==", compares<Op::eq>, {"other"}, 1},
    {"ne", compares<Op::ne>, {"other"}, 1},
    {"!=", compares<Op::ne>, {"other"}, 1},
    {"lt", compares<Op::lt>, {"other"}, 1},
    {"lessthan", compares<Op::lt>, {"other"}, 1},
    {"<", compares<Op::lt>, {"other"}, 1},
    {"le", compares<Op::le>, {"other"}, 1},
    {"<=", compares<Op::le>, {"other"}, 1},
    {"gt", compares<Op::gt>, {"other"}, 1},
    {"greaterthan", compares<Op::gt>, {"other"}, 1},
    {">", compares<Op::gt>, {"other"}, 1},
    {"ge", compares<Op::ge>, {"other"}, 1},
    {">=", compares<Op::ge>, {"other"}, 1},
    {"filter", is_filter},
    {"test", is_test},
    {"escaped", is_escaped},
};

}  // namespace

const Builtin* find_test(std::string_view name) {
    for (const Builtin& row : rows) {
        if (row.name == name) return &row;
    }
    return nullptr;
}

}  // namespace nibble::jinja
