// Pattern over PCRE2.
// A match that hits a limit counts as no match.
#define PCRE2_CODE_UNIT_WIDTH 8
#include "src/text/pattern.h"

#include <pcre2.h>

#include "src/text/pcre.h"

namespace nibble {

Result<Pattern> Pattern::create(const std::string& regex) {
    Pattern p;
    p.code_ = NIBBLE_TRY(compile_regex(regex, "pattern"));
    return p;
}

bool Pattern::matches(std::string_view text) const {
    const std::unique_ptr<pcre2_match_data, void (*)(pcre2_match_data*)> data(
        pcre2_match_data_create(1, nullptr), pcre2_match_data_free);
    const auto* code = static_cast<const pcre2_code*>(code_.get());
    return pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), 0, 0, data.get(),
                       nullptr) >= 0;
}

}  // namespace nibble
