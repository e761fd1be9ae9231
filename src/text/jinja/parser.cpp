// Statements: text, {{ print }}, and the {% tags %} of Jinja plus loop controls and {% generation %}.
// Inheritance, includes and imports are refused: a chat template is one file.
#include "src/text/jinja/parser.h"

#include <algorithm>

#include "src/text/jinja/parser_state.h"

namespace nibble::jinja {

Parser::Parser(std::vector<Token> tokens, Program& program) : tokens_(std::move(tokens)), program_(program) {
    for (const char* name : {"loop", "caller", "varargs", "kwargs"}) intern(name);
}

Symbol Parser::intern(const std::string& name) {
    const auto [it, added] = symbols_.try_emplace(name, static_cast<Symbol>(symbols_.size()));
    if (added) program_.symbols.push_back(name);
    return it->second;
}

Error Parser::error(std::string what, uint32_t line) const {
    return {ErrorCode::invalid_argument, cat(program_.name, ":", line), std::move(what), ""};
}

Error Parser::unexpected(std::string_view wanted) const {
    const std::string found = is(Tok::name) ? cat("'", now().text, "'") : std::string(spelling(now().type));
    return error(cat("expected ", wanted, ", found ", found));
}

bool Parser::accept(Tok t) {
    if (!is(t)) return false;
    skip();
    return true;
}

bool Parser::accept_word(std::string_view w) {
    if (!is_word(w)) return false;
    skip();
    return true;
}

Result<void> Parser::expect(Tok t) {
    if (!accept(t)) return unexpected(spelling(t));
    return {};
}

Result<void> Parser::expect_word(std::string_view w) {
    if (!accept_word(w)) return unexpected(cat("'", w, "'"));
    return {};
}

Result<std::string> Parser::expect_name() {
    if (!is(Tok::name)) return unexpected("a name");
    std::string name = now().text;
    skip();
    return name;
}

Result<void> Parser::parse_program() {
    program_.body = NIBBLE_TRY(block({}));
    if (!is(Tok::end)) return unexpected("the end of the template");
    return {};
}

Result<Block> Parser::block(const Words& ends) {
    const Nesting nesting(depth_);
    if (nesting.too_deep()) return error(cat("statements nested more than ", max_tree_depth, " deep"));
    Block body;
    while (!is(Tok::end)) {
        auto s = std::make_unique<Stmt>();
        s->line = now().line;
        if (is(Tok::data)) {
            s->kind = StmtKind::data;
            s->text = std::move(tokens_[at_].text);
            skip();
        } else if (accept(Tok::variable_begin)) {
            s->kind = StmtKind::print;
            s->expr = NIBBLE_TRY(tuple(true));
            NIBBLE_TRY(expect(Tok::variable_end));
        } else {
            NIBBLE_TRY(expect(Tok::block_begin));
            for (const std::string_view end : ends) {
                if (is_word(end)) return body;
            }
            s = NIBBLE_TRY(statement());
            NIBBLE_TRY(expect(Tok::block_end));
        }
        body.push_back(std::move(s));
    }
    if (!ends.empty()) return error(cat("the template ends before {% ", ends.back(), " %}"));
    return body;
}

Result<Block> Parser::block_until(std::string_view end) {
    NIBBLE_TRY(expect(Tok::block_end));
    Block body = NIBBLE_TRY(block({end}));
    skip();
    return body;
}

Result<std::unique_ptr<Stmt>> Parser::statement() {
    auto s = std::make_unique<Stmt>();
    s->line = now().line;
    const std::string word = NIBBLE_TRY(expect_name());
    if (word == "if") {
        NIBBLE_TRY(if_chain(*s));
    } else if (word == "for") {
        NIBBLE_TRY(for_loop(*s));
    } else if (word == "set") {
        NIBBLE_TRY(set(*s));
    } else if (word == "macro") {
        NIBBLE_TRY(macro(*s));
    } else if (word == "call") {
        NIBBLE_TRY(call_block(*s));
    } else if (word == "filter") {
        NIBBLE_TRY(filter_block(*s));
    } else if (word == "with") {
        NIBBLE_TRY(with(*s));
    } else if (word == "generation") {
        NIBBLE_TRY(scoped(*s, "endgeneration"));
    } else if (word == "print") {
        s->kind = StmtKind::print;
        s->expr = NIBBLE_TRY(expression());
    } else if (word == "break" || word == "continue") {
        if (loops_ == 0) return error(cat("'", word, "' outside of a loop"), s->line);
        s->kind = word == "break" ? StmtKind::break_loop : StmtKind::continue_loop;
    } else {
        return error(cat("unknown tag '", word, "'"), s->line);
    }
    return s;
}

Result<void> Parser::if_chain(Stmt& s) {
    s.kind = StmtKind::if_chain;
    const bool outer = std::exchange(optional_, true);
    while (true) {
        IfBranch branch;
        branch.condition = NIBBLE_TRY(tuple(false));
        NIBBLE_TRY(expect(Tok::block_end));
        branch.body = NIBBLE_TRY(block({"elif", "else", "endif"}));
        s.branches.push_back(std::move(branch));
        if (accept_word("elif")) continue;
        if (accept_word("else")) {
            Block body = NIBBLE_TRY(block_until("endif"));
            s.branches.push_back({nullptr, std::move(body)});
        } else {
            skip();
        }
        break;
    }
    optional_ = outer;
    return {};
}

Result<void> Parser::for_loop(Stmt& s) {
    s.kind = StmtKind::for_loop;
    s.target = NIBBLE_TRY(target(false));
    NIBBLE_TRY(expect_word("in"));
    s.expr = NIBBLE_TRY(tuple(false));
    if (accept_word("if")) s.filter = NIBBLE_TRY(expression());
    s.recursive = accept_word("recursive");
    NIBBLE_TRY(expect(Tok::block_end));
    ++loops_;
    s.body = NIBBLE_TRY(block({"else", "endfor"}));
    --loops_;
    if (accept_word("else"))
        s.otherwise = NIBBLE_TRY(block_until("endfor"));
    else
        skip();
    return {};
}

Result<void> Parser::set(Stmt& s) {
    s.target = NIBBLE_TRY(target(true));
    if (accept(Tok::assign)) {
        s.kind = StmtKind::set;
        s.expr = NIBBLE_TRY(tuple(true));
        return {};
    }
    s.kind = StmtKind::set_block;
    while (accept(Tok::pipe)) s.expr = NIBBLE_TRY(filter(std::move(s.expr)));
    s.body = NIBBLE_TRY(block_until("endset"));
    return {};
}

Result<void> Parser::parameters(MacroDef& macro) {
    NIBBLE_TRY(expect(Tok::lparen));
    while (!is(Tok::rparen)) {
        Parameter p;
        p.name = NIBBLE_TRY(expect_name());
        p.symbol = intern(p.name);
        for (const Parameter& other : macro.parameters) {
            if (other.symbol == p.symbol) return error(cat("the parameter '", p.name, "' appears twice"));
        }
        if (accept(Tok::assign)) {
            p.fallback = NIBBLE_TRY(expression());
        } else if (!macro.parameters.empty() && macro.parameters.back().fallback) {
            return error("a parameter without a default after one with a default");
        }
        macro.parameters.push_back(std::move(p));
        if (!accept(Tok::comma)) break;
    }
    return expect(Tok::rparen);
}

Result<Block> Parser::macro_body(MacroDef& macro, std::string_view end) {
    const uint32_t outer = std::exchange(loops_, 0);
    macros_.push_back(&macro);
    Block body = NIBBLE_TRY(block_until(end));
    macros_.pop_back();
    loops_ = outer;
    return body;
}

Result<void> Parser::macro(Stmt& s) {
    s.kind = StmtKind::macro;
    s.macro = std::make_unique<MacroDef>();
    s.macro->name = NIBBLE_TRY(expect_name());
    s.symbol = intern(s.macro->name);
    NIBBLE_TRY(parameters(*s.macro));
    s.macro->body = NIBBLE_TRY(macro_body(*s.macro, "endmacro"));
    return {};
}

Result<void> Parser::call_block(Stmt& s) {
    s.kind = StmtKind::call_block;
    s.macro = std::make_unique<MacroDef>();
    s.macro->name = "caller";
    if (is(Tok::lparen)) NIBBLE_TRY(parameters(*s.macro));
    s.expr = NIBBLE_TRY(expression());
    if (s.expr->kind != ExprKind::call) return error("a call block needs a call", s.line);
    s.macro->body = NIBBLE_TRY(macro_body(*s.macro, "endcall"));
    return {};
}

Result<void> Parser::filter_block(Stmt& s) {
    s.kind = StmtKind::filter_block;
    s.expr = NIBBLE_TRY(filter(nullptr));
    while (accept(Tok::pipe)) s.expr = NIBBLE_TRY(filter(std::move(s.expr)));
    s.body = NIBBLE_TRY(block_until("endfilter"));
    return {};
}

Result<void> Parser::with(Stmt& s) {
    s.kind = StmtKind::with;
    while (!is(Tok::block_end)) {
        if (!s.targets.empty()) NIBBLE_TRY(expect(Tok::comma));
        s.targets.push_back(NIBBLE_TRY(single_target(false)));
        NIBBLE_TRY(expect(Tok::assign));
        s.values.push_back(NIBBLE_TRY(expression()));
    }
    s.body = NIBBLE_TRY(block_until("endwith"));
    return {};
}

Result<void> Parser::scoped(Stmt& s, std::string_view end) {
    s.kind = StmtKind::scope;
    s.body = NIBBLE_TRY(block_until(end));
    return {};
}

// a | a, b | (a, b) | namespace.attribute
Result<Target> Parser::target(bool with_namespace) {
    Target first = NIBBLE_TRY(single_target(with_namespace));
    if (!is(Tok::comma)) return first;
    Target all;
    all.kind = Target::Kind::tuple;
    all.line = first.line;
    all.parts.push_back(std::move(first));
    while (accept(Tok::comma) && !at_tuple_end() && !is_word("in") && !is(Tok::assign)) {
        all.parts.push_back(NIBBLE_TRY(single_target(with_namespace)));
    }
    return all;
}

Result<Target> Parser::single_target(bool with_namespace) {
    const Nesting nesting(depth_);
    if (nesting.too_deep()) return error("an assignment nested too deep");
    if (accept(Tok::lparen)) {
        Target t = NIBBLE_TRY(target(with_namespace));
        NIBBLE_TRY(expect(Tok::rparen));
        return t;
    }
    Target t;
    t.line = now().line;
    const std::string name = NIBBLE_TRY(expect_name());
    for (const std::string_view constant : {"true", "True", "false", "False", "none", "None"}) {
        if (name == constant) return error(cat("cannot assign to '", name, "'"));
    }
    t.symbol = intern(name);
    if (with_namespace && accept(Tok::dot)) {
        t.kind = Target::Kind::attribute;
        t.attribute = NIBBLE_TRY(expect_name());
    }
    return t;
}

Result<Program> parse(std::string_view source, std::string name) {
    if (source.size() > max_source_bytes) {
        return Error{
            ErrorCode::unsupported, name,
            cat("the template has ", source.size(), " bytes; at most ", max_source_bytes, " are accepted"),
            ""};
    }
    Program program;
    program.name = std::move(name);
    auto tokens = NIBBLE_TRY(tokenize(source, program.name));
    Parser parser(std::move(tokens), program);
    NIBBLE_TRY(parser.parse_program());
    return program;
}

}  // namespace nibble::jinja
