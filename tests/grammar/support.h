// Shared by the grammar tests: compile or fail, match whole texts byte by byte, walk at random.
// A walk only takes bytes that the automaton allows and so must always be able to end.
#pragma once

#include <algorithm>
#include <optional>
#include <random>
#include <string>
#include <string_view>

#include <doctest/doctest.h>

#include "src/text/grammar/automaton.h"

namespace nibble::grammar_test {

inline std::shared_ptr<const Grammar> must(Result<Grammar> g) {
    REQUIRE_MESSAGE(g, (g ? "" : g.error().message()));
    return std::make_shared<const Grammar>(std::move(*g));
}

inline std::string error_of(const Result<Grammar>& g) { return g ? std::string() : g.error().message(); }

class Recognizer {
  public:
    explicit Recognizer(Result<Grammar> g) : automaton_(must(std::move(g))) {}

    ParseState after(std::string_view text) {
        ParseState s = automaton_.start();
        for (const char c : text)
            if (s != dead_state) s = automaton_.next(s, static_cast<unsigned char>(c));
        return s;
    }
    bool accepts(std::string_view text) {
        const ParseState s = after(text);
        return s != dead_state && automaton_.may_end(s);
    }
    bool begins(std::string_view text) { return after(text) != dead_state; }

    // A random text of the language; once longer than `length` it takes whatever ends soonest, as far as one
    // byte shows. Nothing when it did not end in 40 times that.
    std::optional<std::string> walk(std::mt19937& random, size_t length) {
        std::string text;
        ParseState s = automaton_.start();
        while (text.size() < 40 * length) {
            if (automaton_.may_end(s) && (text.size() > length || random() % 8 == 0)) return text;
            std::vector<unsigned char> bytes;
            for (int b = 0; b < 256; ++b)
                if (automaton_.next(s, static_cast<unsigned char>(b)) != dead_state)
                    bytes.push_back(static_cast<unsigned char>(b));
            if (bytes.empty()) {
                CHECK(automaton_.may_end(s));  // never a dead end
                return text;
            }
            unsigned char byte = bytes[random() % bytes.size()];
            if (text.size() > length)
                for (const char close : std::string_view("\"}]"))
                    if (std::ranges::count(bytes, static_cast<unsigned char>(close)) && random() % 2)
                        byte = static_cast<unsigned char>(close);
            text += static_cast<char>(byte);
            s = automaton_.next(s, byte);
        }
        return std::nullopt;
    }
    Automaton& automaton() { return automaton_; }

  private:
    Automaton automaton_;
};

}  // namespace nibble::grammar_test
