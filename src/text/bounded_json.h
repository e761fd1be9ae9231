// parse_bounded(): JSON from a file or a person, with an Error in place of an exception.
// Nesting is bounded before the parser runs: comparing and copying values recurses.
#pragma once

#include <string>
#include <string_view>
#include <type_traits>

#include <nlohmann/json.hpp>

#include "ggml/base/cat.h"
#include "ggml/base/json_depth.h"
#include "ggml/base/result.h"

namespace nibble {

// parse(text) makes of it what is returned, and fails by the exceptions of Json.
template <class Json = nlohmann::json, class Parse>
Result<std::invoke_result_t<Parse, std::string_view>> parse_bounded(std::string_view text,
                                                                    const std::string& where, int levels,
                                                                    ErrorCode code, const Parse& parse) {
    if (nests_deeper(text, levels))
        return Error{code, where, cat("nests deeper than ", levels, " levels"), ""};
    try {
        return parse(text);
    } catch (const typename Json::parse_error& e) {
        return Error{code, where, cat("is not valid JSON: wrong at byte ", e.byte), ""};
    } catch (const typename Json::exception&) {  // a number beyond the range of a double
        return Error{code, where, "holds JSON that cannot be represented", ""};
    }
}

template <class Json = nlohmann::json>
Result<Json> parse_bounded(std::string_view text, const std::string& where, int levels, ErrorCode code) {
    return parse_bounded<Json>(text, where, levels, code,
                               [](std::string_view all) { return Json::parse(all); });
}

}  // namespace nibble
