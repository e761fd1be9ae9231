// Expressions of a template.
// Every node counts as a step; an error gets the line of the innermost node that failed.
#include "ggml/base/cat.h"
#include "src/text/jinja/interpreter.h"
#include "src/text/jinja/operators.h"
#include "src/text/jinja/print.h"

namespace nibble::jinja {

Result<Value> Interpreter::evaluate(const Expr& e, const ScopeRef& scope) {
    if (e.kind == ExprKind::literal) return e.value;
    if (!budget().enter()) return at_line(budget().too_deep(), e.line);
    if (!budget().spend(1)) return at_line(budget().exhausted(), e.line);
    auto v = evaluate_node(e, scope);
    budget().leave();
    if (!v && v.error().where.empty()) return at_line(std::move(v).error(), e.line);
    return v;
}

Result<Value> Interpreter::evaluate_node(const Expr& e, const ScopeRef& scope) {
    switch (e.kind) {
        case ExprKind::literal:
            return e.value;
        case ExprKind::name:
            return variable(e, scope);
        case ExprKind::list:
            return runtime_.budget.list(NIBBLE_TRY(evaluate_all(e.kids, scope)));
        case ExprKind::tuple:
            return runtime_.budget.list(NIBBLE_TRY(evaluate_all(e.kids, scope)), List::Flavor::tuple);
        case ExprKind::dict:
            return dict_literal(e, scope);
        case ExprKind::attribute:
            return get_attribute(runtime_, NIBBLE_TRY(evaluate(*e.kids[0], scope)), e.name);
        case ExprKind::item: {
            const Value object = NIBBLE_TRY(evaluate(*e.kids[0], scope));
            return get_item(runtime_, object, NIBBLE_TRY(evaluate(*e.kids[1], scope)));
        }
        case ExprKind::slice:
            return slice_of(e, scope);
        case ExprKind::call:
            return call(e, scope);
        case ExprKind::filter:
            return apply_filter(e, NIBBLE_TRY(evaluate(*e.kids[0], scope)), scope);
        case ExprKind::test:
            return apply_filter(e, NIBBLE_TRY(evaluate(*e.kids[0], scope)), scope);
        case ExprKind::logical_not:
            return Value(!truthy(NIBBLE_TRY(evaluate(*e.kids[0], scope))));
        case ExprKind::negate:
            return negate(NIBBLE_TRY(evaluate(*e.kids[0], scope)));
        case ExprKind::plus:
            return negate(NIBBLE_TRY(negate(NIBBLE_TRY(evaluate(*e.kids[0], scope)))));
        case ExprKind::binary: {
            Value left = NIBBLE_TRY(evaluate(*e.kids[0], scope));
            const Value right = NIBBLE_TRY(evaluate(*e.kids[1], scope));
            return arithmetic(runtime_.budget, e.ops[0], std::move(left), right);
        }
        case ExprKind::compare:
            return comparison(e, scope);
        case ExprKind::concat:
            return concat(e, scope);
        case ExprKind::logical_and:
        case ExprKind::logical_or: {
            Value left = NIBBLE_TRY(evaluate(*e.kids[0], scope));
            return truthy(left) == (e.kind == ExprKind::logical_and) ? evaluate(*e.kids[1], scope)
                                                                     : std::move(left);
        }
        case ExprKind::conditional:
            return conditional(e, scope);
    }
    return failure("an unknown expression", ErrorCode::internal);
}

Result<std::vector<Value>> Interpreter::evaluate_all(const std::vector<ExprPtr>& kids,
                                                     const ScopeRef& scope) {
    std::vector<Value> values;
    values.reserve(kids.size());
    for (const ExprPtr& kid : kids) values.push_back(NIBBLE_TRY(evaluate(*kid, scope)));
    return values;
}

Result<Value> Interpreter::variable(const Expr& e, const ScopeRef& scope) {
    if (const Value* v = NIBBLE_TRY(scope->find(budget(), e.symbol))) return *v;
    const std::string& name = program_.symbols[e.symbol];
    if (const Builtin* row = find_function(name)) return Value(ObjectRef(std::make_shared<Function>(*row)));
    return Value(Undefined{&name, {}});
}

Result<Value> Interpreter::dict_literal(const Expr& e, const ScopeRef& scope) {
    std::vector<std::pair<Value, Value>> entries;
    for (size_t i = 0; i < e.kids.size(); i += 2) {
        Value key = NIBBLE_TRY(evaluate(*e.kids[i], scope));
        entries.emplace_back(std::move(key), NIBBLE_TRY(evaluate(*e.kids[i + 1], scope)));
    }
    return runtime_.budget.dict(std::move(entries));
}

Result<Value> Interpreter::slice_of(const Expr& e, const ScopeRef& scope) {
    Value parts[4] = {Value(), None{}, None{}, None{}};
    for (size_t i = 0; i < 4; ++i) {
        if (e.kids[i]) parts[i] = NIBBLE_TRY(evaluate(*e.kids[i], scope));
    }
    return slice(runtime_.budget, parts[0], parts[1], parts[2], parts[3]);
}

// a < b < c: each operand is evaluated once, and none after the first comparison that fails.
Result<Value> Interpreter::comparison(const Expr& e, const ScopeRef& scope) {
    Value left = NIBBLE_TRY(evaluate(*e.kids[0], scope));
    for (size_t i = 0; i < e.ops.size(); ++i) {
        Value right = NIBBLE_TRY(evaluate(*e.kids[i + 1], scope));
        if (!NIBBLE_TRY(compare(runtime_.budget, e.ops[i], left, right))) return Value(false);
        left = std::move(right);
    }
    return Value(true);
}

Result<Value> Interpreter::concat(const Expr& e, const ScopeRef& scope) {
    Text out;
    for (const ExprPtr& kid : e.kids) {
        const Value v = NIBBLE_TRY(evaluate(*kid, scope));
        if (const Text* t = v.text()) {
            if (!runtime_.budget.spend_bytes(t->size())) return runtime_.budget.exhausted();
            out.append(*t);
        } else {
            NIBBLE_TRY(print(runtime_.budget, out, v));
        }
    }
    return make_text(std::move(out));
}

Result<Value> Interpreter::conditional(const Expr& e, const ScopeRef& scope) {
    if (truthy(NIBBLE_TRY(evaluate(*e.kids[0], scope)))) return evaluate(*e.kids[1], scope);
    return e.kids[2] ? evaluate(*e.kids[2], scope) : Result<Value>(Value());
}

Result<Arguments> Interpreter::evaluate_arguments(const CallArguments& a, const ScopeRef& scope) {
    Arguments arguments;
    arguments.positional = NIBBLE_TRY(evaluate_all(a.positional, scope));
    for (const auto& named : a.named)
        arguments.named.emplace_back(named.name, NIBBLE_TRY(evaluate(*named.value, scope)));
    if (a.star) {
        for (Value& v : NIBBLE_TRY(iterate(runtime_.budget, NIBBLE_TRY(evaluate(*a.star, scope))))) {
            arguments.positional.push_back(std::move(v));
        }
    }
    if (a.double_star) {
        const Value extra = NIBBLE_TRY(evaluate(*a.double_star, scope));
        if (!extra.dict()) return failure(cat("'**' needs a dict, not ", type_name(extra)));
        for (const auto& [key, value] : extra.dict()->entries) {
            if (!key.text()) return failure("arguments are named by strings");
            if (!runtime_.budget.spend_bytes(key.text()->size())) return runtime_.budget.exhausted();
            arguments.named.emplace_back(key.text()->str(), value);
        }
    }
    return arguments;
}

Result<Value> Interpreter::apply_filter(const Expr& e, const Value& input, const ScopeRef& scope) {
    if (!e.builtin)
        return failure(cat("there is no ", e.kind == ExprKind::test ? "test" : "filter", " '", e.name, "'"));
    const CallArguments& a = *e.arguments;
    const bool plain = a.positional.empty() && a.named.empty() && !a.star && !a.double_star;
    return invoke(runtime_, *e.builtin, input,
                  plain ? Arguments() : NIBBLE_TRY(evaluate_arguments(a, scope)));
}

// The filters of a block: the innermost has no input of its own and gets the block's text.
Result<Value> Interpreter::apply_filter_chain(const Expr& e, const Value& input, const ScopeRef& scope) {
    if (!e.kids[0]) return apply_filter(e, input, scope);
    return apply_filter(e, NIBBLE_TRY(apply_filter_chain(*e.kids[0], input, scope)), scope);
}

Result<Value> Interpreter::call(const Expr& e, const ScopeRef& scope) {
    const Expr& callee = *e.kids[0];
    if (callee.kind == ExprKind::attribute) {
        // The usual method call, without making an object for the bound method.
        const Value object = NIBBLE_TRY(evaluate(*callee.kids[0], scope));
        if (const Builtin* method = find_method(object, callee.name)) {
            return invoke(runtime_, *method, object, NIBBLE_TRY(evaluate_arguments(*e.arguments, scope)));
        }
        const Value function = NIBBLE_TRY(get_attribute(runtime_, object, callee.name));
        return call_value(function, NIBBLE_TRY(evaluate_arguments(*e.arguments, scope)));
    }
    const Value function = NIBBLE_TRY(evaluate(callee, scope));
    return call_value(function, NIBBLE_TRY(evaluate_arguments(*e.arguments, scope)));
}

Result<Value> Interpreter::call_value(const Value& callee, Arguments arguments) {
    if (const Undefined* u = callee.undefined()) return failure(describe(*u));
    Object* object = callee.object();
    if (!object) return failure(cat("a ", type_name(callee), " cannot be called"));
    switch (object->type) {
        case Object::Type::macro:
            return call_macro(static_cast<Macro&>(*object), std::move(arguments));
        case Object::Type::loop:
            return call_loop(static_cast<LoopObject&>(*object), std::move(arguments));
        case Object::Type::function:
            return invoke(runtime_, static_cast<Function&>(*object).row, Value(), std::move(arguments));
        case Object::Type::bound_method: {
            const auto& method = static_cast<BoundMethod&>(*object);
            return invoke(runtime_, method.row, method.receiver, std::move(arguments));
        }
        case Object::Type::joiner: {
            auto& joiner = static_cast<Joiner&>(*object);
            return std::exchange(joiner.used, true) ? joiner.separator : make_text("");
        }
        case Object::Type::name_space:
        case Object::Type::cycler:
            break;
    }
    return failure(cat("a ", type_name(callee), " cannot be called"));
}

Result<Value> Interpreter::call_macro(const Macro& macro, Arguments arguments) {
    const MacroDef& def = macro.def;
    const ScopeRef scope = child(macro.scope);
    if (!runtime_.budget.spend_bytes(sizeof(Scope))) return runtime_.budget.exhausted();
    const size_t count = def.parameters.size();
    for (size_t i = 0; i < std::min(count, arguments.positional.size()); ++i) {
        NIBBLE_TRY(scope->set(budget(), def.parameters[i].symbol, std::move(arguments.positional[i])));
    }
    std::vector<std::pair<Value, Value>> extra;
    for (auto& [name, value] : arguments.named) {
        size_t i = 0;
        while (i < count && def.parameters[i].name != name) ++i;
        if (!budget().spend_lookup(i, name.size())) return budget().exhausted();
        if (i < count) {
            if (i < arguments.positional.size())
                return failure(cat("the argument '", name, "' of '", def.name, "' is given twice"));
            NIBBLE_TRY(scope->set(budget(), def.parameters[i].symbol, std::move(value)));
        } else if (name == "caller" && def.uses_caller) {
            NIBBLE_TRY(scope->set(budget(), symbol_caller, std::move(value)));
        } else if (def.uses_kwargs) {
            extra.emplace_back(make_text(name), std::move(value));
        } else {
            return failure(cat("the macro '", def.name, "' has no argument '", name, "'"));
        }
    }
    if (def.uses_kwargs)
        NIBBLE_TRY(scope->set(budget(), symbol_kwargs, NIBBLE_TRY(budget().dict(std::move(extra)))));
    if (arguments.positional.size() > count && !def.uses_varargs) {
        return failure(cat("the macro '", def.name, "' takes at most ", count, " arguments, not ",
                           arguments.positional.size()));
    }
    if (def.uses_varargs) {
        std::vector<Value> rest;
        for (size_t i = count; i < arguments.positional.size(); ++i)
            rest.push_back(std::move(arguments.positional[i]));
        NIBBLE_TRY(scope->set(budget(), symbol_varargs,
                              NIBBLE_TRY(budget().list(std::move(rest), List::Flavor::tuple))));
    }
    for (const Parameter& p : def.parameters) {
        if (!budget().spend(scope->variables.size() / 32)) return budget().exhausted();
        bool given = false;
        for (const auto& variable : scope->variables) given |= variable.first == p.symbol;
        if (given) continue;
        // A default may use the parameters before it.
        NIBBLE_TRY(scope->set(
            budget(), p.symbol,
            p.fallback ? NIBBLE_TRY(evaluate(*p.fallback, scope)) : Value(Undefined{&p.name, {}})));
    }
    Text out;
    NIBBLE_TRY(execute(def.body, scope, out));
    return runtime_.budget.text(std::move(out));
}

// loop(children): the body of a recursive loop again, one level deeper.
Result<Value> Interpreter::call_loop(LoopObject& object, Arguments arguments) {
    const Loop& loop = static_cast<Loop&>(object);
    if (!loop.stmt().recursive || !loop.scope())
        return failure("only a running loop marked 'recursive' can be called");
    if (arguments.positional.size() != 1 || !arguments.named.empty())
        return failure("'loop' takes one iterable");
    Text out;
    const ScopeRef scope = loop.scope();
    if (!budget().enter()) return budget().too_deep();
    NIBBLE_TRY(for_loop(loop.stmt(), arguments.positional[0], scope, out, loop.depth() + 1));
    budget().leave();
    return runtime_.budget.text(std::move(out));
}

}  // namespace nibble::jinja
