// strftime without locale: names in English, numbers padded as C does.
// Composite conversions are expanded first, so that one switch formats everything.
#include "src/text/jinja/strftime.h"

#include <algorithm>

#include "ggml/base/cat.h"

namespace nibble::jinja {
namespace {

constexpr std::string_view weekdays[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                         "Thursday", "Friday", "Saturday"};
constexpr std::string_view months[] = {"January", "February", "March",     "April",   "May",      "June",
                                       "July",    "August",   "September", "October", "November", "December"};

std::string padded(int value, size_t width, char fill) {
    std::string s = cat(value);
    if (!fill || s.size() >= width) return s;
    return std::string(width - s.size(), fill) + s;
}

// ISO 8601 week date.
void iso_week(const std::tm& t, int& year, int& week) {
    const int weekday = (t.tm_wday + 6) % 7;  // Monday is 0
    year = t.tm_year + 1900;
    week = (t.tm_yday - weekday + 10) / 7;
    const auto weeks_in = [](int y) {
        const auto p = [](int n) { return (n + n / 4 - n / 100 + n / 400) % 7; };
        return p(y) == 4 || p(y - 1) == 3 ? 53 : 52;
    };
    if (week < 1) week = weeks_in(--year);
    if (week > weeks_in(year)) {
        week = 1;
        ++year;
    }
}

struct Padding {
    bool given = false;
    char fill = 0;  // none
    std::string number(int value, size_t width, char usual = '0') const {
        return padded(value, width, given ? fill : usual);
    }
};

// Conversions of the date; empty for any other.
std::string date_part(char c, const std::tm& t, const Padding& pad) {
    const auto weekday = weekdays[static_cast<size_t>(std::clamp(t.tm_wday, 0, 6))];
    const auto month = months[static_cast<size_t>(std::clamp(t.tm_mon, 0, 11))];
    int year = 0, week = 0;
    iso_week(t, year, week);
    switch (c) {
        case 'Y':
            return cat(t.tm_year + 1900);
        case 'C':
            return pad.number((t.tm_year + 1900) / 100, 2);
        case 'y':
            return pad.number(t.tm_year % 100, 2);
        case 'G':
            return cat(year);
        case 'V':
            return pad.number(week, 2);
        case 'm':
            return pad.number(t.tm_mon + 1, 2);
        case 'd':
            return pad.number(t.tm_mday, 2);
        case 'e':
            return pad.number(t.tm_mday, 2, ' ');
        case 'j':
            return pad.number(t.tm_yday + 1, 3);
        case 'U':
            return pad.number((t.tm_yday + 7 - t.tm_wday) / 7, 2);
        case 'W':
            return pad.number((t.tm_yday + 7 - (t.tm_wday + 6) % 7) / 7, 2);
        case 'u':
            return cat(t.tm_wday == 0 ? 7 : t.tm_wday);
        case 'w':
            return cat(t.tm_wday);
        case 'A':
            return std::string(weekday);
        case 'a':
            return std::string(weekday.substr(0, 3));
        case 'B':
            return std::string(month);
        case 'b':
        case 'h':
            return std::string(month.substr(0, 3));
        default:
            return {};
    }
}

Result<std::string> convert(char c, const std::tm& t, const Padding& pad) {
    const int hour12 = t.tm_hour % 12 == 0 ? 12 : t.tm_hour % 12;
    switch (c) {
        case 'H':
            return pad.number(t.tm_hour, 2);
        case 'k':
            return pad.number(t.tm_hour, 2, ' ');
        case 'I':
            return pad.number(hour12, 2);
        case 'l':
            return pad.number(hour12, 2, ' ');
        case 'M':
            return pad.number(t.tm_min, 2);
        case 'S':
            return pad.number(t.tm_sec, 2);
        case 'f':
            return std::string("000000");
        case 'p':
            return std::string(t.tm_hour < 12 ? "AM" : "PM");
        case 'P':
            return std::string(t.tm_hour < 12 ? "am" : "pm");
        case 'Z':
        case 'z':
            return std::string();  // a time without a zone, as Python's datetime.now()
        case 'n':
            return std::string("\n");
        case 't':
            return std::string("\t");
        case '%':
            return std::string("%");
        default:
            break;
    }
    std::string date = date_part(c, t, pad);
    if (!date.empty()) return date;
    return Error{ErrorCode::unsupported, "",
                 cat("the conversion '%", std::string(1, c), "' of strftime is not supported"), ""};
}

std::string_view expansion(char c) {
    switch (c) {
        case 'F':
            return "%Y-%m-%d";
        case 'T':
        case 'X':
            return "%H:%M:%S";
        case 'R':
            return "%H:%M";
        case 'D':
        case 'x':
            return "%m/%d/%y";
        case 'r':
            return "%I:%M:%S %p";
        case 'c':
            return "%a %b %e %H:%M:%S %Y";
        default:
            return {};
    }
}

}  // namespace

Result<std::string> format_time(std::string_view format, const std::tm& t) {
    std::string out;
    for (size_t at = 0; at < format.size(); ++at) {
        if (format[at] != '%' || at + 1 == format.size()) {
            out += format[at];
            continue;
        }
        char c = format[++at];
        const bool flagged = (c == '-' || c == '_' || c == '0') && at + 1 < format.size();
        const Padding pad{flagged, c == '_' ? ' ' : c == '0' ? '0' : '\0'};
        if (flagged) c = format[++at];
        const std::string_view expanded = expansion(c);
        out += NIBBLE_TRY(expanded.empty() ? convert(c, t, pad) : format_time(expanded, t));
    }
    return out;
}

}  // namespace nibble::jinja
