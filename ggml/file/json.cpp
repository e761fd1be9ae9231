// The boundary to nlohmann::json: depth scan, duplicate keys, exceptions to errors.
// Everything in this module that parses JSON goes through here.
#include "ggml/file/json.h"

#include <unordered_set>

#include <nlohmann/json.hpp>

#include "ggml/base/cat.h"
#include "ggml/base/mapped_file.h"
#include "ggml/file/quote.h"

namespace nibble {
namespace {

// Deepest nesting of brackets outside strings; stops counting above `limit`.
int nesting(std::string_view text, int limit) {
    int depth = 0, deepest = 0;
    for (size_t i = 0; i < text.size() && deepest <= limit; ++i) {
        switch (text[i]) {
            case '"':
                for (++i; i < text.size() && text[i] != '"'; ++i)
                    if (text[i] == '\\') ++i;
                break;
            case '[':
            case '{':
                deepest = std::max(deepest, ++depth);
                break;
            case ']':
            case '}':
                --depth;
                break;
            default:
                break;
        }
    }
    return deepest;
}

}  // namespace

Result<nlohmann::json> parse_json(std::string_view text, const std::string& where, JsonLimits limits) {
    using nlohmann::json;
    if (nesting(text, limits.max_depth) > limits.max_depth)
        return Error{ErrorCode::corrupt, where, cat("nests JSON deeper than ", limits.max_depth, " levels"),
                     ""};
    std::unordered_set<std::string> seen;
    std::string twice;
    const auto watch_keys = [&](int depth, json::parse_event_t event, json& parsed) {
        if (event == json::parse_event_t::key && depth == 1) {
            const auto& key = parsed.get_ref<const std::string&>();
            if (!seen.insert(key).second && twice.empty()) twice = quote(key);
        }
        return true;
    };
    try {
        json doc = limits.unique_top_keys ? json::parse(text, watch_keys) : json::parse(text);
        if (!twice.empty()) return Error{ErrorCode::corrupt, where, cat("names ", twice, " twice"), ""};
        return doc;
    } catch (const json::parse_error& e) {
        return Error{ErrorCode::corrupt, where, cat("is not valid JSON: wrong at byte ", e.byte),
                     "the file is damaged; download it again"};
    } catch (const json::exception&) {  // a number beyond the range of a double
        return Error{ErrorCode::corrupt, where, "holds JSON that cannot be represented", ""};
    }
}

Result<nlohmann::json> read_json_object(const std::filesystem::path& path, size_t max_bytes) {
    const std::string text = NIBBLE_TRY(read_text_file(path, max_bytes));
    nlohmann::json doc = NIBBLE_TRY(parse_json(text, path.string()));
    if (!doc.is_object())
        return Error{ErrorCode::corrupt, path.string(), cat("must hold a JSON object, not ", doc.type_name()),
                     ""};
    return doc;
}

}  // namespace nibble
