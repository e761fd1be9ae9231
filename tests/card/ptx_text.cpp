// PTX as text: nvcc's and that of inline assembly, which is less regular.
// Sizes are not checked against anything: the text is the compiler's own.
#include "tests/card/ptx_text.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>

namespace nibble::card {
namespace {

bool space(char c) { return std::isspace(static_cast<unsigned char>(c)); }

}  // namespace

std::string_view trimmed(std::string_view s) {
    while (!s.empty() && space(s.front())) s.remove_prefix(1);
    while (!s.empty() && space(s.back())) s.remove_suffix(1);
    return s;
}

std::string without_comments(std::string_view ptx) {
    std::string out(ptx);
    for (size_t i = 0; i + 1 < out.size(); ++i) {
        const std::string_view here = std::string_view(out).substr(i, 2);
        if (here != "//" && here != "/*") continue;
        const size_t found = here == "//" ? out.find('\n', i) : out.find("*/", i) + 2;
        const size_t end = std::min(found, out.size());
        for (; i < end; ++i)
            if (out[i] != '\n') out[i] = ' ';
        --i;
    }
    return out;
}

std::vector<std::string> split_operands(std::string_view s) {
    std::vector<std::string> out;
    int depth = 0;
    size_t from = 0;
    for (size_t i = 0; i <= s.size(); ++i) {
        const char c = i < s.size() ? s[i] : ',';
        depth += (c == '{' || c == '[' || c == '(') - (c == '}' || c == ']' || c == ')');
        if (c != ',' || depth > 0) continue;
        const std::string_view operand = trimmed(s.substr(from, i - from));
        if (!operand.empty()) out.emplace_back(operand);
        from = i + 1;
    }
    return out;
}

size_t closing(std::string_view s, size_t open) {
    int depth = 0;
    for (size_t i = open; i < s.size(); ++i) {
        depth += (s[i] == '{' || s[i] == '(') - (s[i] == '}' || s[i] == ')');
        if (depth == 0) return i + 1;
    }
    return s.size();
}

size_t type_bytes(std::string_view type) {
    const size_t digit = type.find_first_of("0123456789");
    return digit == std::string_view::npos ? 4 : std::strtoul(type.data() + digit, nullptr, 10) / 8;
}

bool is_number(std::string_view s) {
    return !s.empty() && (std::isdigit(static_cast<unsigned char>(s[0])) || (s[0] == '-' && s.size() > 1));
}

uint64_t number(std::string_view s) {
    const std::string t(s);
    if (t.size() > 2 && t[0] == '0' && std::string_view("fFdD").find(t[1]) != std::string_view::npos)
        return std::strtoull(t.c_str() + 2, nullptr, 16);
    return t[0] == '-' ? static_cast<uint64_t>(std::strtoll(t.c_str(), nullptr, 0))
                       : std::strtoull(t.c_str(), nullptr, 0);
}

Variable variable(std::string_view declaration) {
    Variable v;
    const size_t equals = declaration.find('=');
    if (equals != std::string_view::npos) v.initial = trimmed(declaration.substr(equals + 1));
    std::string words(declaration.substr(0, equals));
    size_t n = 1;
    bool aligned = false;
    for (size_t at = 0; (at = words.find_first_not_of(" \t\n", at)) != std::string::npos;) {
        const size_t end = std::min(words.find_first_of(" \t\n", at), words.size());
        const std::string word = words.substr(at, end - at);
        at = end;
        if (word == ".align") {
            char* after = nullptr;
            v.align = std::strtoul(words.c_str() + at, &after, 10);
            at = static_cast<size_t>(after - words.c_str());
            aligned = true;
        } else if (word[0] != '.') {
            const size_t bracket = word.find('[');
            v.name = word.substr(0, bracket);
            if (bracket != std::string::npos) n = std::strtoul(word.c_str() + bracket + 1, nullptr, 10);
        } else if (word.find_first_of("0123456789") != std::string::npos) {
            v.element = type_bytes(word);
        }
    }
    v.bytes = n * v.element;
    if (!aligned) v.align = v.element;
    return v;
}

}  // namespace nibble::card
