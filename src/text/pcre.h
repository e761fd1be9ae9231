// Compiling a regular expression with PCRE2, with its message and the place on failure.
// Internal to src/text; include after defining PCRE2_CODE_UNIT_WIDTH.
#pragma once

#include <memory>
#include <string>

#include <pcre2.h>

#include "ggml/base/cat.h"
#include "ggml/base/result.h"

namespace nibble {

// UTF mode with Unicode classes; invalid UTF-8 in a subject never matches. JIT-compiled where possible.
inline Result<std::shared_ptr<pcre2_code>> compile_regex(const std::string& regex, std::string_view what) {
    int error = 0;
    PCRE2_SIZE at = 0;
    std::shared_ptr<pcre2_code> code(
        pcre2_compile(reinterpret_cast<PCRE2_SPTR>(regex.data()), regex.size(),
                      PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF | PCRE2_NEVER_BACKSLASH_C, &error, &at,
                      nullptr),
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
