// Expressions, from the loosest binding (inline if) to the tightest (subscripts and calls).
// Left-associative chains grow the tree without growing the stack, so every node checks its depth.
#include <algorithm>

#include "src/text/jinja/parser_state.h"

namespace nibble::jinja {

Result<ExprPtr> Parser::node(ExprKind kind, uint32_t line, std::vector<ExprPtr> kids) {
    auto e = std::make_unique<Expr>();
    e->kind = kind;
    e->line = line;
    for (const ExprPtr& kid : kids) {
        if (kid) e->depth = std::max(e->depth, kid->depth + 1);
    }
    if (e->depth > max_tree_depth)
        return error(cat("an expression nested more than ", max_tree_depth, " deep"), line);
    e->kids = std::move(kids);
    return e;
}

Result<ExprPtr> Parser::expression(bool with_conditional) {
    const Nesting nesting(depth_);
    if (nesting.too_deep()) return error(cat("an expression nested more than ", max_tree_depth, " deep"));
    return with_conditional ? conditional() : logical_or();
}

Result<ExprPtr> Parser::conditional() {
    ExprPtr value = NIBBLE_TRY(logical_or());
    while (is_word("if")) {
        const uint32_t line = now().line;
        skip();
        ExprPtr condition = NIBBLE_TRY(logical_or());
        ExprPtr otherwise;
        if (accept_word("else")) otherwise = NIBBLE_TRY(expression());
        value = NIBBLE_TRY(node_of(ExprKind::conditional, line, std::move(condition), std::move(value),
                                   std::move(otherwise)));
    }
    return value;
}

Result<ExprPtr> Parser::logical_or() {
    ExprPtr left = NIBBLE_TRY(logical_and());
    while (is_word("or")) {
        const uint32_t line = now().line;
        skip();
        ExprPtr right = NIBBLE_TRY(logical_and());
        left = NIBBLE_TRY(node_of(ExprKind::logical_or, line, std::move(left), std::move(right)));
    }
    return left;
}

Result<ExprPtr> Parser::logical_and() {
    ExprPtr left = NIBBLE_TRY(logical_not());
    while (is_word("and")) {
        const uint32_t line = now().line;
        skip();
        ExprPtr right = NIBBLE_TRY(logical_not());
        left = NIBBLE_TRY(node_of(ExprKind::logical_and, line, std::move(left), std::move(right)));
    }
    return left;
}

Result<ExprPtr> Parser::logical_not() {
    std::vector<uint32_t> lines;
    while (is_word("not")) {
        lines.push_back(now().line);
        skip();
    }
    ExprPtr e = NIBBLE_TRY(comparison());
    for (; !lines.empty(); lines.pop_back())
        e = NIBBLE_TRY(node_of(ExprKind::logical_not, lines.back(), std::move(e)));
    return e;
}

Result<ExprPtr> Parser::comparison() {
    const uint32_t line = now().line;
    std::vector<ExprPtr> operands;
    std::vector<Op> ops;
    operands.push_back(NIBBLE_TRY(sum()));
    while (true) {
        Op op = Op::eq;
        if (is(Tok::eq))
            op = Op::eq;
        else if (is(Tok::ne))
            op = Op::ne;
        else if (is(Tok::lt))
            op = Op::lt;
        else if (is(Tok::le))
            op = Op::le;
        else if (is(Tok::gt))
            op = Op::gt;
        else if (is(Tok::ge))
            op = Op::ge;
        else if (is_word("in"))
            op = Op::in;
        else if (is_word("not") && next().type == Tok::name && next().text == "in")
            op = Op::not_in;
        else
            break;
        skip();
        if (op == Op::not_in) skip();
        ops.push_back(op);
        operands.push_back(NIBBLE_TRY(sum()));
    }
    if (ops.empty()) return std::move(operands[0]);
    ExprPtr e = NIBBLE_TRY(node(ExprKind::compare, line, std::move(operands)));
    e->ops = std::move(ops);
    return e;
}

Result<ExprPtr> Parser::sum() {
    ExprPtr left = NIBBLE_TRY(concatenation());
    while (is(Tok::add) || is(Tok::sub)) {
        const Op op = is(Tok::add) ? Op::add : Op::sub;
        const uint32_t line = now().line;
        skip();
        ExprPtr right = NIBBLE_TRY(concatenation());
        left = NIBBLE_TRY(node_of(ExprKind::binary, line, std::move(left), std::move(right)));
        left->ops = {op};
    }
    return left;
}

Result<ExprPtr> Parser::concatenation() {
    const uint32_t line = now().line;
    std::vector<ExprPtr> parts;
    parts.push_back(NIBBLE_TRY(product()));
    while (accept(Tok::tilde)) parts.push_back(NIBBLE_TRY(product()));
    if (parts.size() == 1) return std::move(parts[0]);
    return node(ExprKind::concat, line, std::move(parts));
}

Result<ExprPtr> Parser::product() {
    ExprPtr left = NIBBLE_TRY(power());
    while (is(Tok::mul) || is(Tok::div) || is(Tok::floor_div) || is(Tok::mod)) {
        const Op op = is(Tok::mul)   ? Op::mul
                      : is(Tok::div) ? Op::div
                      : is(Tok::mod) ? Op::mod
                                     : Op::floor_div;
        const uint32_t line = now().line;
        skip();
        ExprPtr right = NIBBLE_TRY(power());
        left = NIBBLE_TRY(node_of(ExprKind::binary, line, std::move(left), std::move(right)));
        left->ops = {op};
    }
    return left;
}

Result<ExprPtr> Parser::power() {
    ExprPtr left = NIBBLE_TRY(unary(true));
    while (is(Tok::pow)) {
        const uint32_t line = now().line;
        skip();
        ExprPtr right = NIBBLE_TRY(unary(true));
        left = NIBBLE_TRY(node_of(ExprKind::binary, line, std::move(left), std::move(right)));
        left->ops = {Op::pow};
    }
    return left;
}

Result<ExprPtr> Parser::unary(bool with_filter) {
    const Nesting nesting(depth_);
    if (nesting.too_deep()) return error(cat("an expression nested more than ", max_tree_depth, " deep"));
    const uint32_t line = now().line;
    ExprPtr e;
    if (is(Tok::sub) || is(Tok::add)) {
        const ExprKind kind = is(Tok::sub) ? ExprKind::negate : ExprKind::plus;
        skip();
        e = NIBBLE_TRY(unary(false));
        e = NIBBLE_TRY(node_of(kind, line, std::move(e)));
    } else {
        e = NIBBLE_TRY(primary());
    }
    e = NIBBLE_TRY(postfix(std::move(e)));
    return with_filter ? filters_and_tests(std::move(e)) : Result<ExprPtr>(std::move(e));
}

Result<ExprPtr> Parser::primary() {
    const uint32_t line = now().line;
    if (is(Tok::name)) return name_or_constant();
    if (is(Tok::lbracket)) return list_literal();
    if (is(Tok::lbrace)) return dict_literal();
    if (accept(Tok::lparen)) {
        ExprPtr e = NIBBLE_TRY(tuple(true, true));
        NIBBLE_TRY(expect(Tok::rparen));
        return e;
    }
    ExprPtr e = NIBBLE_TRY(node_of(ExprKind::literal, line));
    if (is(Tok::string)) {
        std::string s;
        for (; is(Tok::string); skip()) s += now().text;  // adjacent strings are one
        e->value = make_text(std::move(s));
        return e;
    }
    if (is(Tok::integer)) {
        e->value = now().integer;
    } else if (is(Tok::real)) {
        e->value = now().real;
    } else {
        return unexpected("an expression");
    }
    skip();
    return e;
}

Result<ExprPtr> Parser::name_or_constant() {
    const std::string& word = now().text;
    for (const std::string_view reserved : {"and", "or", "not", "in", "is", "if", "else", "elif"}) {
        if (word == reserved) return unexpected("an expression");
    }
    ExprPtr e = NIBBLE_TRY(node_of(ExprKind::literal, now().line));
    if (word == "true" || word == "True" || word == "false" || word == "False") {
        e->value = Value(word[0] == 't' || word[0] == 'T');
    } else if (word == "none" || word == "None") {
        e->value = Value(None{});
    } else {
        e->kind = ExprKind::name;
        e->symbol = intern(word);
        for (MacroDef* macro : macros_) {
            macro->uses_varargs |= e->symbol == symbol_varargs;
            macro->uses_kwargs |= e->symbol == symbol_kwargs;
            macro->uses_caller |= e->symbol == symbol_caller;
        }
    }
    skip();
    return e;
}

Result<ExprPtr> Parser::list_literal() {
    const uint32_t line = now().line;
    NIBBLE_TRY(expect(Tok::lbracket));
    std::vector<ExprPtr> items;
    while (!is(Tok::rbracket)) {
        items.push_back(NIBBLE_TRY(expression()));
        if (!accept(Tok::comma)) break;
    }
    NIBBLE_TRY(expect(Tok::rbracket));
    return node(ExprKind::list, line, std::move(items));
}

Result<ExprPtr> Parser::dict_literal() {
    const uint32_t line = now().line;
    NIBBLE_TRY(expect(Tok::lbrace));
    std::vector<ExprPtr> items;
    while (!is(Tok::rbrace)) {
        items.push_back(NIBBLE_TRY(expression()));
        NIBBLE_TRY(expect(Tok::colon));
        items.push_back(NIBBLE_TRY(expression()));
        if (!accept(Tok::comma)) break;
    }
    NIBBLE_TRY(expect(Tok::rbrace));
    return node(ExprKind::dict, line, std::move(items));
}

bool Parser::at_tuple_end() const {
    return is(Tok::variable_end) || is(Tok::block_end) || is(Tok::rparen) || is_word("recursive");
}

Result<ExprPtr> Parser::tuple(bool with_conditional, bool parenthesized) {
    const uint32_t line = now().line;
    std::vector<ExprPtr> items;
    bool is_tuple = false;
    while (!at_tuple_end()) {
        items.push_back(NIBBLE_TRY(expression(with_conditional)));
        if (!accept(Tok::comma)) break;
        is_tuple = true;
    }
    if (!is_tuple && items.size() == 1) return std::move(items[0]);
    if (!is_tuple && !parenthesized) return unexpected("an expression");
    return node(ExprKind::tuple, line, std::move(items));
}

Result<ExprPtr> Parser::postfix(ExprPtr e) {
    while (true) {
        if (is(Tok::dot) || is(Tok::lbracket)) {
            e = NIBBLE_TRY(subscript(std::move(e)));
        } else if (is(Tok::lparen)) {
            e = NIBBLE_TRY(call(std::move(e)));
        } else {
            return e;
        }
    }
}

Result<ExprPtr> Parser::subscript(ExprPtr object) {
    const uint32_t line = now().line;
    if (accept(Tok::lbracket)) return subscripted(std::move(object));
    NIBBLE_TRY(expect(Tok::dot));
    if (is(Tok::integer)) {
        ExprPtr index = NIBBLE_TRY(primary());
        return node_of(ExprKind::item, line, std::move(object), std::move(index));
    }
    std::string name = NIBBLE_TRY(expect_name());
    ExprPtr e = NIBBLE_TRY(node_of(ExprKind::attribute, line, std::move(object)));
    e->name = std::move(name);
    return e;
}

// After the '[': an index, or start:stop:step with any of them absent.
Result<ExprPtr> Parser::subscripted(ExprPtr object) {
    const uint32_t line = now().line;
    ExprPtr bounds[3];
    bool slice = false;
    for (int i = 0; i < 3; ++i) {
        if (!is(Tok::colon) && !is(Tok::rbracket)) bounds[i] = NIBBLE_TRY(expression());
        if (!is(Tok::colon)) break;
        if (i == 2) return unexpected("']'");
        slice = true;
        skip();
    }
    if (!slice && is(Tok::comma)) {
        std::vector<ExprPtr> parts;
        parts.push_back(std::move(bounds[0]));
        while (accept(Tok::comma) && !is(Tok::rbracket)) parts.push_back(NIBBLE_TRY(expression()));
        bounds[0] = NIBBLE_TRY(node(ExprKind::tuple, line, std::move(parts)));
    }
    NIBBLE_TRY(expect(Tok::rbracket));
    if (slice) {
        return node_of(ExprKind::slice, line, std::move(object), std::move(bounds[0]), std::move(bounds[1]),
                       std::move(bounds[2]));
    }
    if (!bounds[0]) return error("a subscript is empty", line);
    return node_of(ExprKind::item, line, std::move(object), std::move(bounds[0]));
}

Result<ExprPtr> Parser::filters_and_tests(ExprPtr e) {
    while (true) {
        if (accept(Tok::pipe)) {
            e = NIBBLE_TRY(filter(std::move(e)));
        } else if (is_word("is")) {
            e = NIBBLE_TRY(test(std::move(e)));
        } else if (is(Tok::lparen)) {
            e = NIBBLE_TRY(call(std::move(e)));
        } else {
            return e;
        }
    }
}

Result<std::unique_ptr<CallArguments>> Parser::call_arguments() {
    auto args = std::make_unique<CallArguments>();
    NIBBLE_TRY(expect(Tok::lparen));
    while (!is(Tok::rparen)) {
        if (accept(Tok::mul)) {
            if (args->star || args->double_star) return error("only one '*' argument, before '**'");
            args->star = NIBBLE_TRY(expression());
        } else if (accept(Tok::pow)) {
            if (args->double_star) return error("only one '**' argument");
            args->double_star = NIBBLE_TRY(expression());
        } else if (is(Tok::name) && next().type == Tok::assign) {
            if (args->double_star) return error("a named argument after '**'");
            std::string name = now().text;
            for (const auto& named : args->named) {
                if (named.name == name) return error(cat("the argument '", name, "' is given twice"));
            }
            skip();
            skip();
            // Not in braces with the name: an early return would leave that half-built object behind.
            ExprPtr value = NIBBLE_TRY(expression());
            args->named.push_back({std::move(name), std::move(value)});
        } else {
            if (args->star || args->double_star || !args->named.empty()) {
                return error("a positional argument after a named one");
            }
            args->positional.push_back(NIBBLE_TRY(expression()));
        }
        if (!accept(Tok::comma)) break;
    }
    NIBBLE_TRY(expect(Tok::rparen));
    return args;
}

Result<ExprPtr> Parser::call(ExprPtr callee) {
    const uint32_t line = now().line;
    auto args = NIBBLE_TRY(call_arguments());
    ExprPtr e = NIBBLE_TRY(node_of(ExprKind::call, line, std::move(callee)));
    e->arguments = std::move(args);
    return e;
}

// The name of a filter or test. None of ours has a dot, but one that is never reached may.
Result<std::string> Parser::dotted_name() {
    std::string name = NIBBLE_TRY(expect_name());
    while (accept(Tok::dot)) name = cat(name, ".", NIBBLE_TRY(expect_name()));
    return name;
}

Result<ExprPtr> Parser::filter(ExprPtr input) {
    const uint32_t line = now().line;
    std::string name = NIBBLE_TRY(dotted_name());
    ExprPtr e = NIBBLE_TRY(node_of(ExprKind::filter, line, std::move(input)));
    e->builtin = find_filter(name);
    if (!e->builtin && !optional_) return error(cat("there is no filter '", name, "'"), line);
    e->name = std::move(name);
    e->arguments = is(Tok::lparen) ? NIBBLE_TRY(call_arguments()) : std::make_unique<CallArguments>();
    return e;
}

// The single argument of a test may stand without parentheses: `x is divisibleby 3`.
Result<ExprPtr> Parser::test(ExprPtr input) {
    const uint32_t line = now().line;
    NIBBLE_TRY(expect_word("is"));
    const bool negated = accept_word("not");
    std::string name = NIBBLE_TRY(dotted_name());
    ExprPtr e = NIBBLE_TRY(node_of(ExprKind::test, line, std::move(input)));
    e->builtin = find_test(name);
    if (!e->builtin && !optional_) return error(cat("there is no test '", name, "'"), line);
    e->name = std::move(name);
    e->arguments = std::make_unique<CallArguments>();
    const bool operand = is(Tok::name) || is(Tok::string) || is(Tok::integer) || is(Tok::real) ||
                         is(Tok::lbracket) || is(Tok::lbrace);
    if (is(Tok::lparen)) {
        e->arguments = NIBBLE_TRY(call_arguments());
    } else if (operand && !is_word("else") && !is_word("or") && !is_word("and")) {
        if (is_word("is")) return error("tests cannot be chained with 'is'");
        ExprPtr argument = NIBBLE_TRY(primary());
        e->arguments->positional.push_back(NIBBLE_TRY(postfix(std::move(argument))));
    }
    return negated ? node_of(ExprKind::logical_not, line, std::move(e)) : Result<ExprPtr>(std::move(e));
}

}  // namespace nibble::jinja
