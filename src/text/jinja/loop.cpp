// The loop variable: items one by one, the optional condition, and what templates ask about the position.
// Asking for the length or revindex of a loop with a condition evaluates the condition for the rest at once.
#include "src/text/jinja/interpreter.h"
#include "src/text/jinja/operators.h"

namespace nibble::jinja {

Result<void> Loop::start() {
    extent = NIBBLE_TRY(interpreter_.budget().grow(extent, iterable_));
    live_ = iterable_.list();
    if (!live_) items_ = NIBBLE_TRY(iterate(interpreter_.budget(), iterable_));
    return {};
}

Result<std::optional<Value>> Loop::fetch() {
    while (true) {
        if (!interpreter_.budget().spend(1)) return interpreter_.budget().exhausted();
        std::vector<Value>& items = live_ ? live_->items : items_;
        size_t& at = live_ && live_->flavor == List::Flavor::generator ? live_->taken : at_;
        if (at >= items.size()) return std::optional<Value>();
        Value item = items[at++];
        if (!stmt_.filter) return std::optional<Value>(std::move(item));
        const ScopeRef scope = interpreter_.child(scope_);
        NIBBLE_TRY(interpreter_.assign(stmt_.target, item, scope));
        if (truthy(NIBBLE_TRY(interpreter_.evaluate(*stmt_.filter, scope))))
            return std::optional<Value>(std::move(item));
    }
}

Result<void> Loop::peek() {
    if (peeked_ || !scope_) return {};
    next_ = NIBBLE_TRY(fetch());
    peeked_ = true;
    return {};
}

Result<bool> Loop::advance() {
    NIBBLE_TRY(peek());
    peeked_ = false;
    if (!next_) return false;
    previous_ = index0_ < 0 ? Value() : std::move(current_);
    current_ = std::move(*next_);
    next_.reset();
    ++index0_;
    return true;
}

Result<int64_t> Loop::length() {
    if (length_ >= 0) return length_;
    NIBBLE_TRY(peek());
    if (!next_) return length_ = index0_ + 1;
    if (!stmt_.filter) {
        const bool generator = live_ && live_->flavor == List::Flavor::generator;
        const size_t total = live_ ? live_->items.size() : items_.size();
        const size_t rest = total - (generator ? live_->taken : at_);
        return index0_ + 2 + static_cast<int64_t>(rest);
    }
    std::vector<Value> rest;
    while (auto item = NIBBLE_TRY(fetch())) rest.push_back(std::move(*item));
    // From here on the loop runs over what was found.
    items_ = std::move(rest);
    live_ = nullptr;
    at_ = 0;
    return length_ = index0_ + 2 + static_cast<int64_t>(items_.size());
}

void Loop::finish() {
    scope_.reset();
    iterable_ = previous_ = current_ = Value();
    items_.clear();
    live_ = nullptr;
    next_.reset();
    peeked_ = true;
}

Result<std::optional<Value>> Loop::attribute(std::string_view name) {
    using Found = std::optional<Value>;
    if (name == "index0") return Found(Value(index0_));
    if (name == "index") return Found(Value(index0_ + 1));
    if (name == "first") return Found(Value(index0_ == 0));
    if (name == "depth0") return Found(Value(static_cast<int64_t>(depth_)));
    if (name == "depth") return Found(Value(static_cast<int64_t>(depth_) + 1));
    if (name == "previtem") return Found(previous_);
    if (name == "last" || name == "nextitem") {
        NIBBLE_TRY(peek());
        if (name == "last") return Found(Value(!next_.has_value()));
        return Found(next_ ? *next_ : Value());
    }
    if (name == "length") return Found(Value(NIBBLE_TRY(length())));
    if (name == "revindex") return Found(Value(NIBBLE_TRY(length()) - index0_));
    if (name == "revindex0") return Found(Value(NIBBLE_TRY(length()) - index0_ - 1));
    return Found();
}

}  // namespace nibble::jinja
