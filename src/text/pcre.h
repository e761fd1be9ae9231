// Compiling a regular expression with PCRE2, with its message and the place on failure.
// Internal to src/text; include after defining PCRE2_CODE_UNIT_WIDTH.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <pcre2.h>

#include "ggml/base/cat.h"
#include "ggml/base/result.h"

namespace nibble {

// What will be matched: with any bytes, invalid UTF-8 never matches; with valid UTF-8 the caller vouches for
// it and passes PCRE2_NO_UTF_CHECK, without which every match would check the whole rest of the text again.
enum class Subjects : uint32_t { any_bytes = PCRE2_MATCH_INVALID_UTF, valid_utf8 = 0 };

// UTF mode with Unicode classes. JIT-compiled where possible.
inline Result<std::shared_ptr<pcre2_code>> compile_regex(const std::string& regex, std::string_view what,
                                                         Subjects subjects = Subjects::any_bytes) {
    int error = 0;
    PCRE2_SIZE at = 0;
    std::shared_ptr<pcre2_code> code(
        pcre2_compile(reinterpret_cast<PCRE2_SPTR>(regex.data()), regex.size(),
                      PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C | static_cast<uint32_t>(subjects),
                      &error, &at, nullptr),
        pcre2_code_free);
    if (!code) {
        char message[128] = {};
        pcre2_get_error_message(error, reinterpret_cast<PCRE2_UCHAR*>(message), sizeof message);
        return Error{ErrorCode::invalid_argument, std::string(what),
                     cat(message, " at character ", at, " of '", regex, "'"), ""};
    }
    pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);  // without JIT it is slower and the same
    return code;
}

}  // namespace nibble
