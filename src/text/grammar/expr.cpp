// Building expressions; the depth of each is kept so that recursion over them can be bounded.
// Nothing is simplified here.
#include "src/text/grammar/expr.h"

#include <algorithm>

namespace nibble {

ExprId GrammarSource::add(Expr expr) {
    int32_t depth = 1;
    for (const ExprId p : expr.parts) depth = std::max(depth, depths_[static_cast<size_t>(p)] + 1);
    exprs_.push_back(std::move(expr));
    depths_.push_back(depth);
    return static_cast<ExprId>(exprs_.size() - 1);
}

ExprId GrammarSource::text(std::string_view bytes) {
    Expr e;
    e.text = bytes;
    return add(std::move(e));
}

ExprId GrammarSource::chars(CharSet set) {
    Expr e;
    e.kind = Expr::Kind::chars;
    e.chars = std::move(set);
    return add(std::move(e));
}

ExprId GrammarSource::sequence(std::vector<ExprId> parts) {
    if (parts.size() == 1) return parts[0];
    Expr e;
    e.kind = Expr::Kind::sequence;
    e.parts = std::move(parts);
    return add(std::move(e));
}

ExprId GrammarSource::choice(std::vector<ExprId> parts) {
    if (parts.size() == 1) return parts[0];
    Expr e;
    e.kind = Expr::Kind::choice;
    e.parts = std::move(parts);
    return add(std::move(e));
}

ExprId GrammarSource::repeat(ExprId part, int32_t min, int32_t max) {
    Expr e;
    e.kind = Expr::Kind::repeat;
    e.parts = {part};
    e.min = min;
    e.max = max;
    return add(std::move(e));
}

ExprId GrammarSource::reference(RuleId rule) {
    Expr e;
    e.kind = Expr::Kind::rule;
    e.rule = rule;
    return add(std::move(e));
}

RuleId GrammarSource::add_rule(std::string name) {
    rules_.push_back({std::move(name), -1});
    return static_cast<RuleId>(rules_.size() - 1);
}

}  // namespace nibble
