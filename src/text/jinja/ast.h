// The parsed template: statements and expressions, owned by their parents and never changed after parsing.
// Names are numbered once, so that running a template compares numbers.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "src/text/jinja/builtins.h"
#include "src/text/jinja/operators.h"
#include "src/text/jinja/value.h"

namespace nibble::jinja {

using Symbol = uint32_t;  // index into Program::symbols

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct CallArguments {
    struct Named {
        std::string name;
        ExprPtr value;
    };
    std::vector<ExprPtr> positional;
    std::vector<Named> named;
    ExprPtr star, double_star;  // *list and **dict; may be null
};

enum class ExprKind : uint8_t {
    literal,  // value
    name,     // symbol
    list,
    tuple,        // kids
    dict,         // kids: key, value, key, value, …
    attribute,    // kids[0].name
    item,         // kids[0][kids[1]]
    slice,        // kids[0][kids[1]:kids[2]:kids[3]], absent bounds are null
    call,         // kids[0](arguments)
    filter,       // kids[0] | builtin(arguments); kids[0] is null in a filter block
    test,         // kids[0] is builtin(arguments)
    logical_not,  // kids[0]
    negate,
    plus,     // kids[0]
    binary,   // kids[0] ops[0] kids[1]
    compare,  // kids[0] ops[0] kids[1] ops[1] kids[2] …
    concat,   // kids, as strings
    logical_and,
    logical_or,   // kids[0], kids[1]
    conditional,  // kids[1] if kids[0] else kids[2] (may be null)
};

struct Expr {
    ExprKind kind;
    uint32_t line = 0;
    uint32_t depth = 1;  // of the tree below, bounded by the parser
    Symbol symbol = 0;
    const Builtin* builtin = nullptr;  // null for an unknown filter or test: an error when it is reached
    Value value;
    std::string name;
    std::vector<ExprPtr> kids;
    std::vector<Op> ops;
    std::unique_ptr<CallArguments> arguments;
};

// What an assignment or a loop stores to.
struct Target {
    enum class Kind : uint8_t { name, attribute, tuple } kind = Kind::name;
    uint32_t line = 0;
    Symbol symbol = 0;  // the name, or the namespace of an attribute
    std::string attribute;
    std::vector<Target> parts;
};

struct Stmt;
using Block = std::vector<std::unique_ptr<Stmt>>;

struct Parameter {
    Symbol symbol = 0;
    std::string name;
    ExprPtr fallback;  // may be null
};

struct MacroDef {
    std::string name;
    std::vector<Parameter> parameters;
    Block body;
    // Whether the body mentions these names, which decides if extra arguments are accepted.
    bool uses_varargs = false, uses_kwargs = false, uses_caller = false;
};

struct IfBranch {
    ExprPtr condition;  // null for else
    Block body;
};

enum class StmtKind : uint8_t {
    data,          // text
    print,         // expr
    if_chain,      // branches
    for_loop,      // target in expr if filter: body, else otherwise
    set,           // target = expr
    set_block,     // target = body | filter (expr, may be null)
    macro,         // macro, stored as symbol
    call_block,    // expr is the call, macro the caller
    filter_block,  // body through expr
    with,          // targets = values: body
    scope,         // body with its own variables
    break_loop,
    continue_loop,
};

struct Stmt {
    StmtKind kind;
    uint32_t line = 0;
    bool recursive = false;
    Symbol symbol = 0;
    std::string text;
    ExprPtr expr, filter;
    Target target;
    std::vector<Target> targets;
    std::vector<ExprPtr> values;
    std::vector<IfBranch> branches;
    Block body, otherwise;
    std::unique_ptr<MacroDef> macro;
};

// Names with a meaning of their own have fixed numbers.
enum WellKnown : Symbol { symbol_loop, symbol_caller, symbol_varargs, symbol_kwargs, well_known_symbols };

struct Program {
    std::string name;  // for errors
    std::vector<std::string> symbols;
    Block body;
};

}  // namespace nibble::jinja
