// Result<T>: a value or an Error with a reason; the only way failures travel below tools/.
// NIBBLE_TRY(expr) yields the value of a Result or returns its Error to the caller.
#pragma once

#include <string>
#include <utility>
#include <variant>

namespace nibble {

enum class ErrorCode {
    invalid_argument,  // the caller (in the end: the user) asked for something that has no meaning
    not_found,         // a file, tensor, key or name is missing
    io,                // the operating system refused a read, write or mapping
    corrupt,           // a file contradicts its own format or itself
    unsupported,       // well-formed, but this program does not implement it
    out_of_memory,     // does not fit; `what` carries both numbers
    cancelled,         // stopped on request
    internal,          // a programmer error that was caught in time
};

// What went wrong, where, and what to do about it. Printed as one line: "where: what (fix)".
struct Error {
    ErrorCode code = ErrorCode::internal;
    std::string where;  // the file, field, tensor or flag
    std::string what;   // the finding, with the numbers
    std::string fix;    // what the user can do; may be empty

    std::string message() const {
        std::string s = where.empty() ? what : where + ": " + what;
        return fix.empty() ? s : s + " (" + fix + ")";
    }
};

// The same of something in `file`, for those who only know that part of it. Named once; and a fault of a file
// is not one of what was asked for.
inline Error of_file(Error e, const std::string& file) {
    const bool named =
        e.where.starts_with(file) &&
        (e.where.size() == file.size() || e.where[file.size()] == '/' || e.where[file.size()] == ':');
    if (!named) e.where = e.where.empty() ? file : file + ": " + e.where;
    if (e.code == ErrorCode::invalid_argument) e.code = ErrorCode::corrupt;
    return e;
}

template <class T>
class [[nodiscard]] Result {
  public:
    using value_type = T;
    Result(T value) : v_(std::in_place_index<0>, std::move(value)) {}
    Result(Error error) : v_(std::in_place_index<1>, std::move(error)) {}

    bool ok() const { return v_.index() == 0; }
    explicit operator bool() const { return ok(); }

    // Precondition: ok().
    T& value() & { return std::get<0>(v_); }
    const T& value() const& { return std::get<0>(v_); }
    T value() && { return std::get<0>(std::move(v_)); }
    T& operator*() { return value(); }
    const T& operator*() const { return value(); }
    T* operator->() { return &value(); }
    const T* operator->() const { return &value(); }

    // Precondition: !ok().
    const Error& error() const& { return std::get<1>(v_); }
    Error&& error() && { return std::get<1>(std::move(v_)); }

  private:
    std::variant<T, Error> v_;
};

template <>
class [[nodiscard]] Result<void> {
  public:
    Result() = default;
    Result(Error error) : error_(std::move(error)), ok_(false) {}

    bool ok() const { return ok_; }
    explicit operator bool() const { return ok_; }
    void value() const {}
    const Error& error() const& { return error_; }
    Error&& error() && { return std::move(error_); }

  private:
    Error error_;
    bool ok_ = true;
};

}  // namespace nibble

// The one macro of the project: early return has no function form. A GCC/Clang statement expression, so it
// can stand inside an expression:  auto file = NIBBLE_TRY(MappedFile::open(path));
// Not inside braces after another member, Agg{make(), NIBBLE_TRY(x)}: compilers forget to destroy the first.
#define NIBBLE_TRY(...)                                                     \
    ({                                                                      \
        auto nibble_result_ = (__VA_ARGS__);                                \
        if (!nibble_result_.ok()) return std::move(nibble_result_).error(); \
        std::move(nibble_result_).value();                                  \
    })
