// strftime_now against the C library in its "C" locale, over days that sit at the edges of weeks and years.
// Flags without padding have no portable counterpart and are written out.
#include "src/text/jinja/strftime.h"

#include <ctime>

#include <doctest/doctest.h>

using namespace nibble;

TEST_CASE("conversions agree with the C library") {
    const std::string conversions[] = {"%Y", "%C", "%y", "%G", "%V", "%m", "%d", "%e",    "%j",
                                       "%U", "%W", "%u", "%w", "%A", "%a", "%B", "%b",    "%h",
                                       "%H", "%I", "%M", "%S", "%p", "%F", "%T", "%R",    "%D",
                                       "%n", "%t", "%%", "%c", "%x", "%X", "%r", "a%db%m"};
    // Every 5 h 17 min from 1999 to 2030 or so, in steps that visit each weekday and month.
    for (std::time_t time = 915148800; time < 1900000000; time += 86400 * 13 + 19020) {
        std::tm t{};
        gmtime_r(&time, &t);
        for (const std::string& format : conversions) {
            char expected[128];
            const size_t n = std::strftime(expected, sizeof expected, format.c_str(), &t);
            const auto got = jinja::format_time(format, t);
            CAPTURE(format);
            CAPTURE(time);
            REQUIRE(got.ok());
            REQUIRE(*got == std::string(expected, n));
        }
    }
}

TEST_CASE("flags, and what is not supported") {
    std::tm t{};
    t.tm_year = 126;
    t.tm_mon = 1;
    t.tm_mday = 3;
    t.tm_hour = 7;
    CHECK(*jinja::format_time("%-d.%-m.%Y %-H %_d %0e %", t) == "3.2.2026 7  3 03 %");
    const auto bad = jinja::format_time("%Q", t);
    REQUIRE_FALSE(bad.ok());
    CHECK(bad.error().what.find("%Q") != std::string::npos);
}
