// SpecialTokens: first child and next sibling links; siblings in order of arrival.
// The walk at one position is bounded by the longest special token.
#include "src/text/special_tokens.h"

namespace nibble {

int32_t SpecialTokens::find_child(int32_t node, unsigned char byte) const {
    int32_t child = nodes_[static_cast<size_t>(node)].child;
    while (child >= 0 && nodes_[static_cast<size_t>(child)].byte != byte)
        child = nodes_[static_cast<size_t>(child)].sibling;
    return child;
}

void SpecialTokens::add(std::string_view text, Token id, bool control) {
    if (text.empty()) return;
    const auto make = [&](unsigned char byte, int32_t sibling) {
        nodes_.push_back({-1, sibling, -1, byte, false});
        return static_cast<int32_t>(nodes_.size()) - 1;
    };
    int32_t& root = roots_[static_cast<unsigned char>(text[0])];
    if (root < 0) root = make(static_cast<unsigned char>(text[0]), -1);
    int32_t node = root;
    for (const char c : text.substr(1)) {
        const auto byte = static_cast<unsigned char>(c);
        int32_t child = find_child(node, byte);
        if (child < 0) {
            child = make(byte, nodes_[static_cast<size_t>(node)].child);
            nodes_[static_cast<size_t>(node)].child = child;
        }
        node = child;
    }
    Node& end = nodes_[static_cast<size_t>(node)];
    if (end.id >= 0) return;
    end.id = id;
    end.control = control;
    any_user_defined_ = any_user_defined_ || !control;
}

std::optional<SpecialTokens::Match> SpecialTokens::find(std::string_view text, size_t from,
                                                        std::span<const Range> trusted) const {
    if (nodes_.empty() || (trusted.empty() && !any_user_defined_)) return {};
    for (size_t i = from; i < text.size(); ++i) {
        while (!trusted.empty() && trusted.front().end <= i) trusted = trusted.subspan(1);
        const size_t control_end = !trusted.empty() && trusted.front().begin <= i ? trusted.front().end : 0;
        std::optional<Match> longest;
        int32_t node = roots_[static_cast<unsigned char>(text[i])];
        for (size_t n = 1; node >= 0; ++n) {
            const Node& at = nodes_[static_cast<size_t>(node)];
            if (at.id >= 0 && (!at.control || i + n <= control_end)) longest = Match{i, n, at.id};
            node = i + n < text.size() ? find_child(node, static_cast<unsigned char>(text[i + n])) : -1;
        }
        if (longest) return longest;
    }
    return {};
}

}  // namespace nibble
