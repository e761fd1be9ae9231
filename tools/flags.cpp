// Flags, handed to CLI11.
// Also what CLI11 leaves open: its Range lets NaN pass, its integers may be octal.
#include "tools/flags.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <type_traits>
#include <vector>

#include <CLI/CLI.hpp>

#include "ggml/base/cat.h"

namespace nibble {
namespace {

constexpr const char* integer_check = "integer";

// In decimal. CLI11 itself takes 010 for 8, and what is too much for the type for the most that it can hold.
template <class T>
CLI::Validator integer(T least = std::numeric_limits<T>::min(), T most = std::numeric_limits<T>::max()) {
    const auto normalise = [least, most](std::string& text) {
        const char* const begin = text.data() + text.starts_with('+');
        const char* const last = text.data() + text.size();
        T v = 0;
        const auto [end, error] = std::from_chars(begin, last, v);
        if (end != last || error == std::errc::invalid_argument)
            return cat("'", text, "' is not a decimal integer from ", least, " to ", most);
        if (error != std::errc{} || v < least || v > most)
            return cat("Value ", text, " not in range ", least, " to ", most);
        text = cat(v);
        return std::string();
    };
    return {normalise, "", integer_check};
}

}  // namespace

std::optional<bool> switch_value(std::string_view text) {
    constexpr std::string_view on[] = {"true", "on", "yes", "1"}, off[] = {"false", "off", "no", "0"};
    if (std::ranges::find(on, text) != std::end(on)) return true;
    if (std::ranges::find(off, text) != std::end(off)) return false;
    return {};
}

Flag Flag::group(const std::string& name) const { return Flag(option_->group(name)); }
Flag Flag::type_name(const std::string& name) const { return Flag(option_->type_name(name)); }
Flag Flag::required() const { return Flag(option_->required()); }
Flag Flag::needs(Flag other) const { return Flag(option_->needs(other.option_)); }
Flag Flag::needs(const std::string& name) const { return Flag(option_->needs(name)); }
Flag Flag::excludes(Flag other) const { return Flag(option_->excludes(other.option_)); }
Flag Flag::excludes(const std::string& name) const { return Flag(option_->excludes(name)); }
Flag Flag::range(int64_t least, int64_t most) const {
    *option_->get_validator(integer_check) = integer(least, most);
    return *this;
}
Flag Flag::real_range(double least, double most) const {
    const auto check = [least, most](const std::string& text) {
        double v = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), v);
        const bool ok = error == std::errc{} && end == text.data() + text.size();
        if (ok && v >= least && v <= most) return std::string();
        return cat("Value ", text, " not in range ", least, " to ", most);
    };
    return Flag(option_->check(check, cat("FLOAT in [", least, " - ", most, "]")));
}
Flag Flag::show_default() const { return Flag(option_->capture_default_str()); }
Flag Flag::show_default(const std::string& text) const { return Flag(option_->default_str(text)); }
Flag Flag::every() const { return Flag(option_->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)); }
Flag Flag::once_each() const { return Flag(every().option_->allow_extra_args(false)); }
Flag Flag::comma_separated() const { return Flag(option_->delimiter(',')); }

template <class T>
Flag Flags::value(const std::string& names, T& to, const std::string& help) const {
    CLI::Option* const option = command_->add_option(names, to, help);
    if constexpr (std::is_integral_v<T>) option->transform(integer<T>());
    if constexpr (std::is_same_v<T, std::vector<int32_t>>) option->transform(integer<int32_t>());
    return Flag(option);
}
template Flag Flags::value(const std::string&, std::string&, const std::string&) const;
template Flag Flags::value(const std::string&, int32_t&, const std::string&) const;
template Flag Flags::value(const std::string&, int64_t&, const std::string&) const;
template Flag Flags::value(const std::string&, uint64_t&, const std::string&) const;
template Flag Flags::value(const std::string&, double&, const std::string&) const;
template Flag Flags::value(const std::string&, std::vector<std::string>&, const std::string&) const;
template Flag Flags::value(const std::string&, std::vector<int32_t>&, const std::string&) const;

Flag Flags::each_value(const std::string& names, std::function<void(const std::string&)> take,
                       const std::string& help) const {
    return Flag(command_->add_option_function<std::string>(names, std::move(take), help));
}

namespace {

void hand_over(const std::function<Result<void>(const std::string&)>& take, const std::string& text) {
    if (const Result<void> taken = take(text); !taken) {
        const Error& e = taken.error();
        throw CLI::ValidationError(e.where, e.fix.empty() ? e.what : cat(e.what, "; ", e.fix));
    }
}

}  // namespace

Flag Flags::each_checked(const std::string& names, std::function<Result<void>(const std::string&)> take,
                         const std::string& help) const {
    return each_value(
        names, [take = std::move(take)](const std::string& text) { hand_over(take, text); }, help);
}

Flag Flags::all_checked(const std::string& names, std::function<Result<void>(const std::string&)> take,
                        const std::string& help) const {
    const auto each = [take = std::move(take)](const std::vector<std::string>& values) {
        for (const std::string& v : values) hand_over(take, v);
    };
    return Flag(command_->add_option_function<std::vector<std::string>>(names, each, help)).once_each();
}

Flag Flags::joined_value(const std::string& names, std::function<void(const std::string&)> take,
                         const std::string& help) const {
    const auto join = [take = std::move(take)](const std::vector<std::string>& values) {
        std::string list;
        for (const std::string& v : values)
            if (!v.empty()) list += cat(list.empty() ? "" : ",", v);
        take(list);
    };
    return Flag(command_->add_option_function<std::vector<std::string>>(names, join, help)).once_each();
}

Flag Flags::on(const std::string& names, bool& to, const std::string& help) const {
    const auto check = [](const std::string& text) {
        return switch_value(text) ? std::string() : cat("'", text, "' is neither true nor false");
    };
    return Flag(command_->add_flag(names, to, help)->check(check, ""));
}

std::optional<Flag> Flags::find(const std::string& name) const {
    CLI::Option* const option = command_->get_option_no_throw(name);
    return option ? std::optional(Flag(option)) : std::nullopt;
}

void Flags::examples(const std::string& lines) const { command_->footer("Examples:\n" + lines); }

}  // namespace nibble
