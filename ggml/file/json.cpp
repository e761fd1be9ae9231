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

// Reads a document for the keys of its root alone: json::parse with a callback looks at the whole parent
// after each nested object.
struct RootKeys final : nlohmann::json_sax<nlohmann::json> {
    std::unordered_set<std::string> seen;
    std::string twice;
    int depth = 0;

    bool key(string_t& name) override {
        if (depth == 1 && !seen.insert(name).second && twice.empty()) twice = quote(name);
        return true;
    }
    bool start_object(size_t) override { return ++depth > 0; }
    bool end_object() override { return --depth >= 0; }
    bool start_array(size_t) override { return ++depth > 0; }
    bool end_array() override { return --depth >= 0; }
    bool null() override { return true; }
    bool boolean(bool) override { return true; }
    bool number_integer(number_integer_t) override { return true; }
    bool number_unsigned(number_unsigned_t) override { return true; }
    bool number_float(number_float_t, const string_t&) override { return true; }
    bool string(string_t&) override { return true; }
    bool binary(binary_t&) override { return true; }
    bool parse_error(size_t, const std::string&, const nlohmann::detail::exception&) override {
        return false;  // json::parse tells what is wrong
    }
};

}  // namespace

Result<nlohmann::json> parse_json(std::string_view text, const std::string& where, JsonLimits limits) {
    using nlohmann::json;
    if (nests_deeper(text, limits.max_depth))
        return Error{ErrorCode::corrupt, where, cat("nests JSON deeper than ", limits.max_depth, " levels"),
                     ""};
    try {
        json doc = json::parse(text);
        RootKeys keys;
        if (limits.unique_top_keys) json::sax_parse(text, &keys);
        if (!keys.twice.empty())
            return Error{ErrorCode::corrupt, where, cat("names ", keys.twice, " twice"), ""};
        return doc;
    } catch (const json::parse_error& e) {
        return Error{ErrorCode::corrupt, where, cat("is not valid JSON: wrong at byte ", e.byte),
                     "the file is damaged; download it again"};
    } catch (const json::exception&) {  // a number beyond the range of a double
        return Error{ErrorCode::corrupt, where, "holds JSON that cannot be represented", ""};
    }
}

namespace {

// Python writes numbers that JSON does not have; here as transformers 5 has them, {"__float__": "Infinity"}.
std::string without_python_numbers(std::string_view text) {
    std::string out;
    bool quoted = false;
    for (size_t i = 0; i < text.size();) {
        size_t n = 1;
        if (!quoted)
            for (const std::string_view number : {"Infinity", "-Infinity", "NaN"})
                if (text.substr(i).starts_with(number)) n = number.size();
        if (quoted && text[i] == '\\') n = std::min<size_t>(2, text.size() - i);
        if (text[i] == '"') quoted = !quoted;
        const std::string_view part = text.substr(i, n);
        out += quoted || n == 1 ? std::string(part) : cat(R"({"__float__":")", part, R"("})");
        i += n;
    }
    return out;
}

}  // namespace

Result<nlohmann::json> read_json_object(const std::filesystem::path& path, size_t max_bytes) {
    const std::string text = NIBBLE_TRY(read_text_file(path, max_bytes));
    auto parsed = parse_json(text, path.string());
    if (!parsed) {
        auto again = parse_json(without_python_numbers(text), path.string());
        if (!again) return parsed.error();
        parsed = std::move(again);
    }
    nlohmann::json doc = std::move(*parsed);
    if (!doc.is_object())
        return Error{ErrorCode::corrupt, path.string(), cat("must hold a JSON object, not ", doc.type_name()),
                     ""};
    return doc;
}

}  // namespace nibble
