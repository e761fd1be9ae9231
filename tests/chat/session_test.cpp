// Sessions: going on is as if nothing had happened, and nothing is computed twice; what does not fit is
// refused. The model is tiny; nothing here depends on what it says.
#include "src/chat/session.h"

#include <fstream>

#include <doctest/doctest.h>
#include <unistd.h>

#include "ggml/base/cat.h"
#include "ggml/base/mapped_file.h"
#include "tests/loaded_engine.h"

using namespace nibble;
namespace fs = std::filesystem;

namespace {

const fs::path root = NIBBLE_SOURCE_DIR;

EngineConfig config_for(Type kv_type, int32_t ctx) {
    EngineConfig config;
    config.runner.ctx = ctx;
    config.runner.k_type = config.runner.v_type = kv_type;
    return config;
}

struct Talk : LoadedEngine {
    std::unique_ptr<Chat> chat;
    explicit Talk(Type kv_type = Type::f16, const char* file = "fairytale-int8.gguf", int32_t ctx = 512)
        : LoadedEngine(config_for(kv_type, ctx), 2, root / "models" / file) {
        auto t = ChatTemplate::parse(*engine->tokenizer().vocab().chat_template, "template");
        REQUIRE(t);
        ChatOptions options;
        options.sampling.seed = 1;
        options.max_tokens = 20;
        chat = std::make_unique<Chat>(*engine, ChatFormat(engine->tokenizer(), std::move(*t), true), options);
        chat->conversation.system = "You tell stories about foxes, kings, geese and the deep dark wood.";
    }
    Turn say(const std::string& message) const {
        const auto turn = chat->say(message, {});
        REQUIRE_MESSAGE(turn, (turn ? "" : turn.error().message()));
        return *turn;
    }
};

struct File {
    fs::path path = fs::temp_directory_path() / cat("nibble-session-", ::getpid());
    ~File() { fs::remove(path); }
    std::string read() const { return *read_text_file(path); }
    void write(const std::string& bytes) const { std::ofstream(path, std::ios::binary) << bytes; }
};

// The sum over all but the last eight bytes, as the format defines it.
std::string with_sum(std::string bytes) {
    bytes.resize(bytes.size() - 8);
    uint64_t hash = 0xcbf29ce484222325;
    for (size_t at = 0; at < bytes.size(); at += 8) {
        uint64_t word = 0;
        std::memcpy(&word, bytes.data() + at, std::min<size_t>(8, bytes.size() - at));
        hash = (hash ^ word) * 0x100000001b3;
        hash ^= hash >> 32;
    }
    return bytes.append(reinterpret_cast<const char*>(&hash), sizeof hash);
}

std::string refusal(const Talk& talk, const File& file) {
    const auto r = load_session(*talk.chat, file.path);
    CHECK(!r);
    CHECK(talk.chat->conversation.messages.empty());
    return r ? "" : r.error().message();
}

}  // namespace

TEST_CASE("session: the continued answer has the same tokens, and no stored token is computed again") {
    for (const Type type : {Type::f16, Type::q8_0}) {
        const File file;
        const Talk first(type);
        first.say("Tell me a story about a fox.");
        first.say("And then what came?");
        REQUIRE(save_session(*first.chat, file.path));
        CHECK((fs::status(file.path).permissions() & fs::perms::all) ==
              (fs::perms::owner_read | fs::perms::owner_write));
        const Turn expected = first.say("Who was she?");

        const Talk second(type);
        const auto stored = load_session(*second.chat, file.path);
        REQUIRE_MESSAGE(stored, (stored ? "" : stored.error().message()));
        // All but the last token, whose keys and values were never computed.
        const ChatState state = second.chat->state();
        CHECK(*stored >= static_cast<int32_t>(state.tokens.size()) - 1);
        const Turn turn = second.say("Who was she?");
        CHECK(turn.text == expected.text);
        CHECK(second.chat->state().tokens == first.chat->state().tokens);
        CHECK(turn.prefill_tokens == turn.prompt_tokens - *stored);
        CHECK(turn.prefill_tokens == expected.prefill_tokens);
        CHECK(second.chat->conversation == first.chat->conversation);
    }
}

TEST_CASE("session: another model, cache type, context or version is refused with the reason") {
    const File file;
    const Talk talk;
    talk.say("Tell me a story about a fox.");
    REQUIRE(save_session(*talk.chat, file.path));
    CHECK(refusal(Talk(Type::q8_0), file).find("--kv-type") != std::string::npos);
    CHECK(refusal(Talk(Type::f16, "fairytale"), file).find("another model") != std::string::npos);
    const std::string small = refusal(Talk(Type::f16, "fairytale-int8.gguf", 32), file);
    CHECK(small.find("--ctx") != std::string::npos);
    CHECK(small.starts_with(cat(file.path.string(), ": holds ")));
    std::string bytes = file.read();
    bytes[8] = 2;
    file.write(with_sum(bytes));
    CHECK(refusal(Talk(), file).find("has version 2") != std::string::npos);
    file.write("{}");
    CHECK(refusal(Talk(), file).find("session") != std::string::npos);
}

TEST_CASE("session: damaged files are errors, with a right check sum too; nothing is taken over") {
    const File file;
    const Talk talk;
    talk.say("Hello.");
    REQUIRE(save_session(*talk.chat, file.path));
    const std::string good = file.read();
    const Talk victim;
    for (const size_t cut : {size_t{0}, size_t{7}, size_t{19}, good.size() / 2, good.size() - 1}) {
        file.write(good.substr(0, cut));
        refusal(victim, file);
    }
    // Every byte in front of the pages, set to 0xff or changed, under a check sum that is right again: each
    // is an error or a session, never a crash. The sanitizers watch.
    const size_t pages = good.find("<|im_start|>");
    REQUIRE(pages != std::string::npos);
    int refused = 0;
    for (size_t at = 20; at < 600; at += 3) {
        std::string bytes = good;
        bytes[at] = at % 2 ? '\xff' : static_cast<char>(bytes[at] ^ 0x40);
        file.write(with_sum(bytes));
        Chat& chat = *victim.chat;
        chat.restore({});
        refused += !load_session(chat, file.path);
    }
    CHECK(refused > 50);
    file.write(good);
    CHECK(load_session(*victim.chat, file.path));
}
