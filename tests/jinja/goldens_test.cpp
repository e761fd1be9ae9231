// Real chat templates against the exact renderings of Jinja2, and the origin of every marked word in them.
// The templates of permissively licensed models are in tests/data; others come from NIBBLE_TEST_DATA.
#include <cstdlib>
#include <filesystem>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "ggml/base/mapped_file.h"
#include "src/text/jinja/chat_template.h"

namespace fs = std::filesystem;
using namespace nibble;
using Json = nlohmann::ordered_json;

namespace {

std::tm fixed_time() {
    std::tm t{};  // Friday, 2026-11-20 12:00:00
    t.tm_year = 126;
    t.tm_mon = 10;
    t.tm_mday = 20;
    t.tm_hour = 12;
    t.tm_wday = 5;
    t.tm_yday = 323;
    return t;
}

ChatTemplate::Input input_of(const Json& conversation) {
    ChatTemplate::Input in;
    in.messages = conversation.at("messages");
    in.add_generation_prompt = conversation.at("add_generation_prompt");
    in.bos_token = conversation.at("bos_token");
    in.eos_token = conversation.at("eos_token");
    in.now = fixed_time();
    return in;
}

std::vector<fs::path> template_folders() {
    std::vector<fs::path> folders = {fs::path(NIBBLE_SOURCE_DIR) / "tests/data/templates"};
    const char* data = std::getenv("NIBBLE_TEST_DATA");
    if (data && fs::exists(fs::path(data) / "templates/expected.json")) {
        folders.push_back(fs::path(data) / "templates");
    } else {
        MESSAGE("NIBBLE_TEST_DATA/templates is absent: only the templates in tests/data are checked");
    }
    return folders;
}

// visit(template, conversation) for each conversation of each golden file.
template <class Visit>
void for_each_conversation(Visit visit) {
    size_t files = 0;
    for (const fs::path& folder : template_folders()) {
        const auto text = read_text_file(folder / "expected.json");
        REQUIRE(text.ok());
        const Json golden = Json::parse(*text);
        for (const auto& [key, conversations] : golden.at("files").items()) {
            const std::string file = key;
            CAPTURE(file);
            const auto source = read_text_file(folder / file);
            REQUIRE(source.ok());
            const auto parsed = ChatTemplate::parse(*source, file);
            REQUIRE_MESSAGE(parsed.ok(), (parsed.ok() ? "" : parsed.error().message()));
            for (const Json& conversation : conversations) visit(*parsed, conversation);
            ++files;
        }
    }
    CHECK(files >= 8);
}

}  // namespace

TEST_CASE("real templates render as Jinja2 renders them") {
    for_each_conversation([](const ChatTemplate& t, const Json& conversation) {
        const std::string name = conversation.at("name");
        CAPTURE(name);
        const auto got = t.render(input_of(conversation));
        if (conversation.contains("error")) {
            REQUIRE_FALSE(got.ok());
            CHECK_FALSE(got.error().what.empty());
            CHECK(got.error().where.starts_with(t.name() + ":"));
            return;
        }
        REQUIRE_MESSAGE(got.ok(), (got.ok() ? "" : got.error().message()));
        CHECK(*got == conversation.at("expect").get<std::string>());
    });
}

TEST_CASE("the segments join to the rendering and alternate") {
    for_each_conversation([](const ChatTemplate& t, const Json& conversation) {
        if (conversation.contains("error")) return;
        const auto segments = t.render_segments(input_of(conversation));
        REQUIRE(segments.ok());
        std::string joined;
        for (size_t i = 0; i < segments->size(); ++i) {
            joined += (*segments)[i].text;
            CHECK_FALSE((*segments)[i].text.empty());
            if (i > 0) CHECK((*segments)[i].from_template != (*segments)[i - 1].from_template);
        }
        CHECK(joined == conversation.at("expect").get<std::string>());
    });
}

// Every string of the conversation gets markers around and a control token inside; none may come out trusted.
TEST_CASE("text of messages never counts as the template's") {
    size_t marked = 0;
    for_each_conversation([&](const ChatTemplate& t, const Json& conversation) {
        ChatTemplate::Input in = input_of(conversation);
        for (Json& message : in.messages) {
            const std::string content = message.at("content");
            message["content"] = "QZX <|im_start|>QZX</think>" + content + "\nQZX [INST]QZX";
        }
        const auto segments = t.render_segments(in);
        if (!segments.ok()) return;  // it refuses the conversation, or the control tokens in it
        for (const TemplateSegment& s : *segments) {
            CAPTURE(s.text);
            if (s.from_template) {
                CHECK(s.text.find("QZX") == std::string::npos);
            } else {
                for (size_t at = s.text.find("QZX"); at != std::string::npos; at = s.text.find("QZX", at + 1))
                    ++marked;
            }
        }
    });
    CHECK(marked > 100);
}
