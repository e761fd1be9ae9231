// The language, case by case, against Jinja2's own results (cases.json, made by make_cases.py).
// A case with an error must be an error here too; its wording is ours.
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "ggml/base/mapped_file.h"
#include "src/text/jinja/chat_template.h"

using namespace nibble;
using Json = nlohmann::ordered_json;

namespace {

ChatTemplate::Input input_of(const Json& context) {
    ChatTemplate::Input in;
    in.extra = context;
    std::tm t{};
    t.tm_year = 126;
    t.tm_mon = 10;
    t.tm_mday = 20;
    t.tm_hour = 12;
    t.tm_wday = 5;
    t.tm_yday = 323;
    in.now = t;
    return in;
}

}  // namespace

TEST_CASE("expressions and statements give what Jinja2 gives") {
    const auto text = read_text_file(NIBBLE_SOURCE_DIR "/tests/jinja/cases.json");
    REQUIRE(text.ok());
    const Json golden = Json::parse(*text);
    const ChatTemplate::Input in = input_of(golden.at("context"));
    size_t cases = 0;
    for (const Json& c : golden.at("cases")) {
        const std::string source = c.at("template");
        CAPTURE(source);
        ++cases;
        const auto parsed = ChatTemplate::parse(source, "case");
        const auto got = parsed.ok() ? parsed->render(in) : Result<std::string>(parsed.error());
        if (c.contains("error")) {
            CAPTURE(c.at("error").get<std::string>());
            CHECK_FALSE(got.ok());
            if (!got.ok()) CHECK(got.error().where == "case:1");
            continue;
        }
        CHECK_MESSAGE(got.ok(), (got.ok() ? "" : got.error().message()));
        if (got.ok()) CHECK(*got == c.at("expect").get<std::string>());
    }
    CHECK(cases > 350);
}
