// The recursive-descent parser's shared state; expressions and statements are implemented in one file each.
// Internal to the parser.
#pragma once

#include <map>
#include <vector>

#include "ggml/base/cat.h"
#include "src/text/jinja/lexer.h"
#include "src/text/jinja/parser.h"

namespace nibble::jinja {

class Parser {
  public:
    Parser(std::vector<Token> tokens, Program& program);
    Result<void> parse_program();

  private:
    // Counts nesting while it lives.
    struct Nesting {
        explicit Nesting(uint32_t& depth) : depth_(++depth) {}
        ~Nesting() { --depth_; }
        Nesting(const Nesting&) = delete;
        Nesting& operator=(const Nesting&) = delete;
        bool too_deep() const { return depth_ > max_tree_depth; }
        uint32_t& depth_;
    };

    const Token& now() const { return tokens_[at_]; }
    const Token& next(size_t n = 1) const { return tokens_[std::min(at_ + n, tokens_.size() - 1)]; }
    bool is(Tok t) const { return now().type == t; }
    bool is_word(std::string_view w) const { return is(Tok::name) && now().text == w; }
    void skip() { at_ += is(Tok::end) ? 0 : 1; }
    bool accept(Tok t);
    bool accept_word(std::string_view w);
    Result<void> expect(Tok t);
    Result<void> expect_word(std::string_view w);
    Result<std::string> expect_name();
    Result<std::string> dotted_name();
    Error error(std::string what) const { return error(std::move(what), now().line); }
    Error error(std::string what, uint32_t line) const;
    Error unexpected(std::string_view wanted) const;
    Symbol intern(const std::string& name);

    // Expressions (parse_expression.cpp).
    Result<ExprPtr> node(ExprKind kind, uint32_t line, std::vector<ExprPtr> kids);
    template <class... Kids>
    Result<ExprPtr> node_of(ExprKind kind, uint32_t line, Kids... kids) {
        std::vector<ExprPtr> v;
        (v.push_back(std::move(kids)), ...);
        return node(kind, line, std::move(v));
    }
    Result<ExprPtr> expression(bool with_conditional = true);
    Result<ExprPtr> conditional();
    Result<ExprPtr> logical_or();
    Result<ExprPtr> logical_and();
    Result<ExprPtr> logical_not();
    Result<ExprPtr> comparison();
    Result<ExprPtr> sum();
    Result<ExprPtr> concatenation();
    Result<ExprPtr> product();
    Result<ExprPtr> power();
    Result<ExprPtr> unary(bool with_filter);
    Result<ExprPtr> primary();
    Result<ExprPtr> name_or_constant();
    Result<ExprPtr> dict_literal();
    Result<ExprPtr> list_literal();
    Result<ExprPtr> postfix(ExprPtr e);
    Result<ExprPtr> subscript(ExprPtr e);
    Result<ExprPtr> subscripted(ExprPtr object);
    Result<ExprPtr> filters_and_tests(ExprPtr e);
    Result<ExprPtr> call(ExprPtr callee);
    Result<ExprPtr> filter(ExprPtr input);
    Result<ExprPtr> test(ExprPtr input);
    Result<std::unique_ptr<CallArguments>> call_arguments();
    // An expression, or a tuple where a comma follows. `parenthesized` allows the empty tuple.
    Result<ExprPtr> tuple(bool with_conditional, bool parenthesized = false);
    bool at_tuple_end() const;

    // Statements (parser.cpp).
    using Words = std::vector<std::string_view>;
    Result<Block> block(const Words& ends);  // stops at "{% word", with the word as the current token
    Result<Block> block_until(std::string_view end);  // and takes "word %}"
    Result<std::unique_ptr<Stmt>> statement();
    Result<void> if_chain(Stmt& s);
    Result<void> for_loop(Stmt& s);
    Result<void> set(Stmt& s);
    Result<void> macro(Stmt& s);
    Result<void> call_block(Stmt& s);
    Result<void> filter_block(Stmt& s);
    Result<void> with(Stmt& s);
    Result<void> scoped(Stmt& s, std::string_view end);
    Result<Target> target(bool with_namespace);
    Result<Target> single_target(bool with_namespace);
    Result<void> parameters(MacroDef& macro);
    Result<Block> macro_body(MacroDef& macro, std::string_view end);

    std::vector<Token> tokens_;
    size_t at_ = 0;
    Program& program_;
    std::map<std::string, Symbol, std::less<>> symbols_;
    std::vector<MacroDef*> macros_;  // being parsed, outermost first
    uint32_t depth_ = 0;
    uint32_t loops_ = 0;     // for loops around this statement, within the current macro
    bool optional_ = false;  // inside an if: an unknown filter or test only matters when it is reached
};

}  // namespace nibble::jinja
