// Search against the library's own, on every short string of two letters.
// Few letters make many partial matches, which is where a linear search goes wrong.
#include "src/text/jinja/search.h"

#include <string>
#include <vector>

#include <doctest/doctest.h>

using namespace nibble::jinja;

namespace {

std::string letters(size_t length, unsigned bits) {
    std::string s;
    for (size_t i = 0; i < length; ++i) s += (bits >> i & 1) != 0 ? 'b' : 'a';
    return s;
}

std::vector<size_t> expected(std::string_view s, std::string_view needle, Search::From from) {
    std::vector<size_t> found;
    if (from == Search::From::left) {
        for (size_t at = s.find(needle); at != s.npos; at = s.find(needle, at + needle.size()))
            found.push_back(at);
    } else {
        for (size_t at = s.rfind(needle); at != s.npos; at = s.substr(0, at).rfind(needle))
            found.push_back(at);
    }
    return found;
}

}  // namespace

TEST_CASE("a search finds what the library finds, from both sides") {
    size_t wrong = 0;
    for (size_t size = 0; size <= 9; ++size) {
        for (unsigned bits = 0; bits < 1u << size; ++bits) {
            const std::string s = letters(size, bits);
            for (size_t length = 1; length <= 5; ++length) {
                for (unsigned n = 0; n < 1u << length; ++n) {
                    const std::string needle = letters(length, n);
                    for (const auto from : {Search::From::left, Search::From::right}) {
                        Budget budget{Limits{}};
                        auto search = Search::start(budget, s, needle, from);
                        REQUIRE(search.ok());
                        std::vector<size_t> found;
                        for (size_t at = search->next(); at != s.npos; at = search->next())
                            found.push_back(at);
                        wrong += found != expected(s, needle, from);
                    }
                }
            }
        }
    }
    CHECK(wrong == 0);
}

TEST_CASE("a search for nothing finds nothing, and one beyond the budget does not begin") {
    Budget budget{Limits{}};
    auto nothing = Search::start(budget, "ab", "");
    REQUIRE(nothing.ok());
    CHECK(nothing->next() == std::string_view::npos);
    Limits limits;
    limits.steps = 10;
    Budget small(limits);
    CHECK_FALSE(Search::start(small, std::string(999, 'a'), "ab").ok());
}
