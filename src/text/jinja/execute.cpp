// Statements of a template.
// Only loops, macros and blocks open a scope; what an `if` sets stays visible after it, as in Jinja.
#include "ggml/base/cat.h"
#include "src/text/jinja/interpreter.h"
#include "src/text/jinja/operators.h"
#include "src/text/jinja/print.h"

namespace nibble::jinja {

Result<const Value*> Scope::find(Budget& budget, Symbol s) const {
    size_t seen = 0;
    const Value* found = nullptr;
    for (const Scope* scope = this; scope && !found; scope = scope->parent.get()) {
        seen += 2 + scope->variables.size();
        for (const auto& [symbol, value] : scope->variables) {
            if (symbol != s) continue;
            found = &value;
            break;
        }
    }
    if (!budget.spend(seen / 32)) return budget.exhausted();
    return found;
}

Result<void> Scope::set(Budget& budget, Symbol s, Value v) {
    if (!budget.spend(variables.size() / 32)) return budget.exhausted();
    for (auto& [symbol, value] : variables) {
        if (symbol == s) {
            value = std::move(v);
            return {};
        }
    }
    variables.emplace_back(s, std::move(v));
    return {};
}

Interpreter::Interpreter(const Program& program, const Limits& limits, const std::tm& now)
    : program_(program), runtime_{Budget(limits), now, {}}, root_(std::make_shared<Scope>()) {}

Interpreter::~Interpreter() {
    // Namespaces and captured scopes can be part of cycles. All of them stay alive while each is emptied, so
    // a long chain is not freed by recursion either.
    for (const ObjectRef& object : runtime_.kept) {
        NamedValues doomed;
        std::swap(doomed, static_cast<Namespace&>(*object).attributes);
    }
    for (const ScopeRef& scope : kept_) scope->variables.clear();
    root_->variables.clear();
}

Result<Text> Interpreter::run(const NamedValues& variables) {
    for (const auto& [name, value] : variables) {
        for (Symbol s = 0; s < program_.symbols.size(); ++s) {
            if (program_.symbols[s] == name) NIBBLE_TRY(root_->set(budget(), s, value));
        }
    }
    Text out;
    NIBBLE_TRY(execute(program_.body, root_, out));
    return out;
}

Error Interpreter::at_line(Error e, uint32_t line) const {
    if (e.where.empty()) e.where = cat(program_.name, ":", line);
    return e;
}

ScopeRef Interpreter::child(const ScopeRef& parent) const {
    auto scope = std::make_shared<Scope>();
    scope->parent = parent;
    return scope;
}

Value Interpreter::make_macro(const MacroDef& def, const ScopeRef& scope) {
    if (!scope->kept) kept_.push_back(scope);
    scope->kept = true;
    return ObjectRef(std::make_shared<Macro>(def, scope));
}

Result<Interpreter::Flow> Interpreter::execute(const Block& block, const ScopeRef& scope, Text& out) {
    for (const auto& s : block) {
        if (!budget().enter() || !budget().spend(1))
            return at_line(budget().is_too_deep() ? budget().too_deep() : budget().exhausted(), s->line);
        auto flow = execute(*s, scope, out);
        budget().leave();
        if (!flow) return at_line(std::move(flow).error(), s->line);
        if (*flow != Flow::normal) return *flow;
    }
    return Flow::normal;
}

Result<Interpreter::Flow> Interpreter::execute(const Stmt& s, const ScopeRef& scope, Text& out) {
    switch (s.kind) {
        case StmtKind::data:
            out.append(s.text, false);
            NIBBLE_TRY(check_output(out));
            break;
        case StmtKind::print:
            NIBBLE_TRY(print_statement(s, scope, out));
            break;
        case StmtKind::if_chain:
            return if_chain(s, scope, out);
        case StmtKind::for_loop:
            NIBBLE_TRY(for_loop(s, NIBBLE_TRY(evaluate(*s.expr, scope)), scope, out, 0));
            break;
        case StmtKind::set:
            NIBBLE_TRY(assign(s.target, NIBBLE_TRY(evaluate(*s.expr, scope)), scope));
            break;
        case StmtKind::set_block:
            NIBBLE_TRY(set_block(s, scope));
            break;
        case StmtKind::macro:
            if (!runtime_.budget.spend_bytes(sizeof(Macro) + sizeof(Scope)))
                return runtime_.budget.exhausted();
            NIBBLE_TRY(scope->set(budget(), s.symbol, make_macro(*s.macro, scope)));
            break;
        case StmtKind::call_block:
            NIBBLE_TRY(call_block(s, scope, out));
            break;
        case StmtKind::filter_block:
            NIBBLE_TRY(filter_block(s, scope, out));
            break;
        case StmtKind::with:
            NIBBLE_TRY(with(s, scope, out));
            break;
        case StmtKind::scope:
            return execute(s.body, child(scope), out);
        case StmtKind::break_loop:
            return Flow::break_loop;
        case StmtKind::continue_loop:
            return Flow::continue_loop;
    }
    return Flow::normal;
}

Result<void> Interpreter::check_output(const Text& out) const {
    const size_t limit = runtime_.budget.limits().output;
    if (out.size() <= limit) return {};
    return failure(cat("what the template writes, messages included, is more than ", limit, " bytes"),
                   ErrorCode::out_of_memory);
}

Result<void> Interpreter::emit(Text& out, const Value& v) {
    if (const Text* t = v.text()) {
        if (!budget().spend_bytes(t->size())) return budget().exhausted();
        out.append(*t);
    } else {
        NIBBLE_TRY(print(runtime_.budget, out, v));
    }
    return check_output(out);
}

Result<void> Interpreter::print_statement(const Stmt& s, const ScopeRef& scope, Text& out) {
    if (s.expr->kind == ExprKind::literal) return emit(out, s.expr->value);
    return emit(out, NIBBLE_TRY(evaluate(*s.expr, scope)));
}

Result<Interpreter::Flow> Interpreter::if_chain(const Stmt& s, const ScopeRef& scope, Text& out) {
    for (const IfBranch& branch : s.branches) {
        if (!branch.condition || truthy(NIBBLE_TRY(evaluate(*branch.condition, scope)))) {
            return execute(branch.body, scope, out);
        }
    }
    return Flow::normal;
}

Result<void> Interpreter::for_loop(const Stmt& s, const Value& iterable, const ScopeRef& scope, Text& out,
                                   uint32_t depth) {
    const auto loop = std::make_shared<Loop>(*this, s, scope, iterable, depth);
    struct Finish {
        Loop& loop;
        ~Finish() { loop.finish(); }
    } const finish{*loop};
    NIBBLE_TRY(loop->start());
    ScopeRef inner;
    bool completed = false;  // some body to its end, without which Jinja takes the `else`, too
    while (NIBBLE_TRY(loop->advance())) {
        if (inner && inner.use_count() == 1) {
            inner->variables.clear();
        } else {
            inner = child(scope);  // the last one was captured by a macro
        }
        NIBBLE_TRY(inner->set(budget(), symbol_loop, Value(ObjectRef(loop))));
        NIBBLE_TRY(assign(s.target, loop->current(), inner));
        const Flow flow = NIBBLE_TRY(execute(s.body, inner, out));
        if (flow == Flow::break_loop) break;
        completed |= flow == Flow::normal;
    }
    if (!completed) NIBBLE_TRY(execute(s.otherwise, child(scope), out));
    return {};
}

Result<void> Interpreter::with(const Stmt& s, const ScopeRef& scope, Text& out) {
    const ScopeRef inner = child(scope);
    for (size_t i = 0; i < s.targets.size(); ++i) {
        NIBBLE_TRY(assign(s.targets[i], NIBBLE_TRY(evaluate(*s.values[i], scope)), inner));
    }
    NIBBLE_TRY(execute(s.body, inner, out));
    return {};
}

Result<Value> Interpreter::capture(const Block& block, const ScopeRef& scope) {
    Text out;
    NIBBLE_TRY(execute(block, child(scope), out));
    return runtime_.budget.text(std::move(out));
}

Result<void> Interpreter::set_block(const Stmt& s, const ScopeRef& scope) {
    Value v = NIBBLE_TRY(capture(s.body, scope));
    if (s.expr) v = NIBBLE_TRY(apply_filter_chain(*s.expr, v, scope));
    return assign(s.target, std::move(v), scope);
}

Result<void> Interpreter::filter_block(const Stmt& s, const ScopeRef& scope, Text& out) {
    const Value v = NIBBLE_TRY(capture(s.body, scope));
    return emit(out, NIBBLE_TRY(apply_filter_chain(*s.expr, v, scope)));
}

Result<void> Interpreter::call_block(const Stmt& s, const ScopeRef& scope, Text& out) {
    Arguments arguments = NIBBLE_TRY(evaluate_arguments(*s.expr->arguments, scope));
    arguments.named.emplace_back("caller", make_macro(*s.macro, scope));
    const Value callee = NIBBLE_TRY(evaluate(*s.expr->kids[0], scope));
    return emit(out, NIBBLE_TRY(call_value(callee, std::move(arguments))));
}

Result<void> Interpreter::assign(const Target& target, Value v, const ScopeRef& scope) {
    if (target.kind == Target::Kind::name) return scope->set(budget(), target.symbol, std::move(v));
    if (target.kind == Target::Kind::attribute) {
        const Value* owner = NIBBLE_TRY(scope->find(budget(), target.symbol));
        Object* object = owner ? owner->object() : nullptr;
        if (!object || object->type != Object::Type::name_space) {
            return at_line(failure(cat("cannot assign to an attribute of '", program_.symbols[target.symbol],
                                       "', which is not a namespace")),
                           target.line);
        }
        auto& space = static_cast<Namespace&>(*object);
        if (!budget().spend_lookup(space.attributes.size(), target.attribute.size()))
            return budget().exhausted();
        space.set(target.attribute, std::move(v));
        return {};
    }
    std::vector<Value> items = NIBBLE_TRY(iterate(runtime_.budget, v));
    if (items.size() != target.parts.size()) {
        return at_line(failure(cat(target.parts.size(), " names for ", items.size(), " values")),
                       target.line);
    }
    for (size_t i = 0; i < items.size(); ++i) NIBBLE_TRY(assign(target.parts[i], std::move(items[i]), scope));
    return {};
}

}  // namespace nibble::jinja
