// Runs a Program: walks the tree, keeps variables in scopes, and collects the output with its untrusted
// spans. One Interpreter per rendering; the Program is only read, so renderings may run in parallel.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "ggml/base/result.h"
#include "src/text/jinja/ast.h"
#include "src/text/jinja/builtins.h"

namespace nibble::jinja {

// Variables of a template, loop iteration, macro call or block; found by walking to the parents. There are
// few, so they are scanned; what was looked through is paid, because a hostile template has a hundred
// thousand.
struct Scope {
    std::shared_ptr<Scope> parent;
    std::vector<std::pair<Symbol, Value>> variables;
    bool kept = false;

    Result<const Value*> find(Budget& budget, Symbol s) const;  // here and in the parents; null if absent
    Result<void> set(Budget& budget, Symbol s, Value v);        // here
};
using ScopeRef = std::shared_ptr<Scope>;

class Interpreter {
  public:
    // `program` must outlive the interpreter. `now` is local time.
    Interpreter(const Program& program, const Limits& limits, const std::tm& now);
    ~Interpreter();

    Budget& budget() { return runtime_.budget; }
    // `variables` by name; those the template never mentions are dropped.
    Result<Text> run(const NamedValues& variables);

  private:
    friend class Loop;
    enum class Flow : uint8_t { normal, break_loop, continue_loop };

    struct Macro final : Object {
        Macro(const MacroDef& d, ScopeRef s) : Object(Type::macro), def(d), scope(std::move(s)) {}
        const MacroDef& def;
        const ScopeRef scope;
    };

    // Statements (execute.cpp).
    Result<Flow> execute(const Block& block, const ScopeRef& scope, Text& out);
    Result<Flow> execute(const Stmt& s, const ScopeRef& scope, Text& out);
    Result<void> print_statement(const Stmt& s, const ScopeRef& scope, Text& out);
    Result<Flow> if_chain(const Stmt& s, const ScopeRef& scope, Text& out);
    Result<void> for_loop(const Stmt& s, const Value& iterable, const ScopeRef& scope, Text& out,
                          uint32_t depth);
    Result<void> with(const Stmt& s, const ScopeRef& scope, Text& out);
    Result<void> set_block(const Stmt& s, const ScopeRef& scope);
    Result<void> filter_block(const Stmt& s, const ScopeRef& scope, Text& out);
    Result<void> call_block(const Stmt& s, const ScopeRef& scope, Text& out);
    Result<Value> capture(const Block& block, const ScopeRef& scope);  // in a scope of its own
    Result<void> assign(const Target& target, Value v, const ScopeRef& scope);
    Result<void> emit(Text& out, const Value& v);
    Result<void> check_output(const Text& out) const;
    ScopeRef child(const ScopeRef& parent) const;
    Value make_macro(const MacroDef& def, const ScopeRef& scope);

    // Expressions (evaluate.cpp).
    Result<Value> evaluate(const Expr& e, const ScopeRef& scope);
    Result<Value> evaluate_node(const Expr& e, const ScopeRef& scope);
    Result<std::vector<Value>> evaluate_all(const std::vector<ExprPtr>& kids, const ScopeRef& scope);
    Result<Value> variable(const Expr& e, const ScopeRef& scope);
    Result<Value> dict_literal(const Expr& e, const ScopeRef& scope);
    Result<Value> slice_of(const Expr& e, const ScopeRef& scope);
    Result<Value> comparison(const Expr& e, const ScopeRef& scope);
    Result<Value> concat(const Expr& e, const ScopeRef& scope);
    Result<Value> conditional(const Expr& e, const ScopeRef& scope);
    Result<Value> call(const Expr& e, const ScopeRef& scope);
    Result<Value> call_value(const Value& callee, Arguments arguments);
    Result<Value> call_macro(const Macro& macro, Arguments arguments);
    Result<Value> call_loop(LoopObject& loop, Arguments arguments);
    Result<Value> apply_filter(const Expr& e, const Value& input, const ScopeRef& scope);
    Result<Value> apply_filter_chain(const Expr& e, const Value& input, const ScopeRef& scope);
    Result<Arguments> evaluate_arguments(const CallArguments& a, const ScopeRef& scope);

    Error at_line(Error e, uint32_t line) const;

    const Program& program_;
    Runtime runtime_;
    ScopeRef root_;
    std::vector<ScopeRef> kept_;  // captured by macros, hence part of cycles; emptied at the end
};

// The `loop` variable of one running loop. It looks one item ahead only when asked, because the condition of
// the loop may depend on what its body has done so far.
class Loop final : public LoopObject {
  public:
    Loop(Interpreter& interpreter, const Stmt& stmt, ScopeRef scope, Value iterable, uint32_t depth)
        : interpreter_(interpreter),
          stmt_(stmt),
          scope_(std::move(scope)),
          iterable_(std::move(iterable)),
          depth_(depth) {}

    Result<void> start();
    Result<bool> advance();  // to the next item that passes the condition; false at the end
    const Value& current() const { return current_; }
    void finish();  // after the loop only its numbers remain
    uint32_t depth() const { return depth_; }
    const Stmt& stmt() const { return stmt_; }
    const ScopeRef& scope() const { return scope_; }

    Result<std::optional<Value>> attribute(std::string_view name) override;
    int64_t index0() const override { return index0_; }

  private:
    Result<std::optional<Value>> fetch();
    Result<void> peek();
    Result<int64_t> length();

    Interpreter& interpreter_;
    const Stmt& stmt_;
    ScopeRef scope_;
    Value iterable_;
    std::vector<Value> items_;
    List* live_ = nullptr;  // a list is read as it is now, not as it was: the body may append to it
    size_t at_ = 0;
    int64_t index0_ = -1, length_ = -1;
    Value previous_, current_;
    std::optional<Value> next_;
    bool peeked_ = false;
    uint32_t depth_;
};

}  // namespace nibble::jinja
