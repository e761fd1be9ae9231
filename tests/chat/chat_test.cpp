// Conversations with the bundled model, without a terminal: what is sent, what is reused, what is left out.
// The model is tiny; nothing here depends on what it says.
#include "src/chat/chat.h"

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

EngineConfig config_for(int32_t ctx, int32_t draft_tokens) {
    EngineConfig config;
    config.runner.ctx = ctx;
    config.draft_tokens = draft_tokens;
    return config;
}

struct Model : LoadedEngine {
    explicit Model(int32_t ctx, int32_t draft_tokens = 0) : LoadedEngine(config_for(ctx, draft_tokens)) {}
    Chat chat(Overflow overflow = Overflow::drop, int64_t max_tokens = 20, const char* name = nullptr) const {
        const auto source = name ? *read_text_file(root / "prompts" / cat(name, ".jinja"))
                                 : *engine->tokenizer().vocab().chat_template;
        auto t = ChatTemplate::parse(source, "template");
        REQUIRE(t);
        ChatOptions options;
        options.sampling.seed = 1;
        options.max_tokens = max_tokens;
        options.overflow = overflow;
        return Chat(*engine, ChatFormat(engine->tokenizer(), std::move(*t), !name), std::move(options));
    }
};

struct Log {
    std::string text;
    std::vector<std::string> notices;
    ChatHooks hooks() {
        return {[this](std::string_view s) { text += s; },
                [this](const std::string& s) { notices.push_back(s); },
                {}};
    }
};

Turn say(Chat& chat, const std::string& message, Log& log) {
    const auto turn = chat.say(message, log.hooks());
    REQUIRE_MESSAGE(turn, (turn ? "" : turn.error().message()));
    return *turn;
}

}  // namespace

TEST_CASE("chat: only what is new is prefilled, to the page") {
    const Model model(512);
    Chat chat = model.chat();
    chat.conversation.system = "You tell stories about foxes, kings, geese and the deep dark wood.";
    Log log;
    int32_t known = 0;
    for (const char* message : {"Tell me a story about a fox.", "And then what came?", "Who was she?"}) {
        const Turn turn = say(chat, message, log);
        CHECK(turn.finish != Finish::none);
        // Pages of 32 tokens are reused whole; the last sampled token was never computed.
        CHECK(turn.prefill_tokens <= turn.prompt_tokens - known + 33);
        if (known > 64) CHECK(turn.prefill_tokens < turn.prompt_tokens / 2);
        known = turn.context_used - 1;
        CHECK(chat.conversation.messages.back().content == turn.text);
    }
    CHECK(log.notices.empty());
    CHECK(known > 64);
    const Turn again = *chat.answer(log.hooks());
    CHECK(again.prefill_tokens <= 33);
}

TEST_CASE("chat: the same as rendering and encoding everything anew") {
    const Model model(512);
    Chat chat = model.chat();
    Log log;
    say(chat, "Tell me a story.", log);
    const Turn reused = say(chat, "Go on. <|im_end|>", log);
    Chat fresh = model.chat();
    fresh.conversation = chat.conversation;
    const auto ids = fresh.prompt_tokens();  // of the finished conversation
    REQUIRE(ids);
    CHECK(model.engine->tokenizer().decode(*ids) == fresh.format().render(fresh.conversation)->text());
    CHECK(chat.prompt_tokens()->size() >= static_cast<size_t>(reused.prompt_tokens));
    // What the user spelled is text: control tokens of six turns' borders only.
    const Token end = *model.engine->tokenizer().find("<|im_end|>");
    CHECK(std::ranges::count(*ids, end) == 4);
}

TEST_CASE("chat: regenerate, undo, edit; a seed reproduces the whole conversation") {
    const Model model(512);
    Log log;
    const auto texts = [&] {
        Chat chat = model.chat();
        const std::string first = say(chat, "Tell me a story.", log).text;
        const std::string second = chat.answer(log.hooks())->text;
        CHECK(chat.conversation.messages.size() == 2);
        CHECK(chat.conversation.undo());
        CHECK(chat.conversation.empty());
        CHECK(!chat.conversation.undo());
        CHECK(!chat.answer(log.hooks()));
        return std::pair(first, second);
    };
    const auto once = texts();
    CHECK(once.first != once.second);
    CHECK(texts() == once);
}

TEST_CASE("chat: a conversation that outgrows the context") {
    const Model model(128);
    Log log;
    const std::string message = "Tell me another story about a king and his three daughters in the wood.";
    SUBCASE("drop: the oldest turns, whole, with a notice; the system prompt stays") {
        Chat chat = model.chat(Overflow::drop);
        chat.conversation.system = "You tell stories.";
        for (int i = 0; i < 6; ++i) CHECK(say(chat, message, log).context_used <= 128);
        CHECK(!log.notices.empty());
        CHECK(chat.left_out() > 0);
        CHECK(chat.left_out() % 2 == 0);
        CHECK(chat.conversation.messages.size() == 12);  // none is forgotten
        const std::string sent = model.engine->tokenizer().decode(*chat.prompt_tokens());
        CHECK(sent.starts_with("<|im_start|>system\nYou tell stories.<|im_end|>\n<|im_start|>user\n"));
    }
    SUBCASE("drop: what fits again after undo is sent again") {
        Chat chat = model.chat(Overflow::drop);
        for (int i = 0; i < 4; ++i) say(chat, message, log);
        CHECK(chat.left_out() > 0);
        while (chat.conversation.messages.size() > 2) CHECK(chat.conversation.undo());
        say(chat, "Why?", log);
        CHECK(chat.left_out() == 0);
    }
    SUBCASE("asking for the likely tokens leaves nothing out for good") {
        Chat chat = model.chat(Overflow::drop);
        for (int i = 0; i < 3; ++i) say(chat, message, log);
        const size_t before = chat.left_out();
        CHECK(chat.next_tokens(3));
        CHECK(chat.left_out() == before);
    }
    SUBCASE("an answer that does not fit leaves the one before") {
        Chat chat = model.chat();
        say(chat, message, log);
        const Conversation before = chat.conversation;
        for (int i = 0; i < 20; ++i) chat.conversation.system += message;
        CHECK(!chat.answer(log.hooks()));
        CHECK(chat.conversation.messages == before.messages);
        CHECK(chat.left_out() == 0);
        // Nor does one that fails after the oldest turns were left out.
        chat.conversation = before;
        for (int i = 0; i < 3; ++i) say(chat, message, log);
        const size_t left_out = chat.left_out();
        std::string book;
        for (int i = 0; i < 20; ++i) book += message;
        CHECK(!chat.say(book, log.hooks()));
        CHECK(chat.left_out() == left_out);
    }
    SUBCASE("stop: an error with both numbers, and the message is taken back") {
        Chat chat = model.chat(Overflow::stop);
        Result<Turn> turn = chat.say(message, log.hooks());
        size_t n = 0;
        for (; turn && n < 10; ++n) turn = chat.say(message, log.hooks());
        REQUIRE(!turn);
        CHECK(turn.error().what.find("128") != std::string::npos);
        CHECK(chat.conversation.messages.back().role == "assistant");
    }
    SUBCASE("shift: an answer makes room for itself and goes on") {
        Chat chat = model.chat(Overflow::shift, 200);
        chat.options.sampling.logit_bias = {{4088, -1e3}, {4090, -1e3}};  // it never ends its turn
        CHECK(say(chat, "Hi", log).context_used == 128);
        CHECK(!log.notices.empty());  // nothing to leave out: it fills the context and ends with a notice
        chat.conversation.messages = {
            {"user", message}, {"assistant", "Once."}, {"user", message}, {"assistant", "Twice."}};
        log.notices.clear();
        const Turn turn = say(chat, "Go on", log);
        CHECK(turn.context_used <= 128);
        CHECK(turn.generated > 60);
        CHECK(log.notices.size() >= 2);
    }
    SUBCASE("one message that is too long alone") {
        Chat chat = model.chat();
        std::string book;
        for (int i = 0; i < 20; ++i) book += message;
        const auto turn = chat.say(book, log.hooks());
        REQUIRE(!turn);
        CHECK(turn.error().what.find("128") != std::string::npos);
        CHECK(chat.conversation.empty());
    }
}

TEST_CASE("chat: guesses do not move the place where an answer makes room for itself") {
    std::string expected;
    for (const int32_t draft_tokens : {0, 3, 12}) {
        const Model model(128, draft_tokens);
        Chat chat = model.chat(Overflow::shift, 300);
        chat.options.sampling.temperature = 0;  // it repeats itself
        chat.options.sampling.logit_bias = {{4088, -1e3}, {4090, -1e3}};
        chat.conversation.messages = {{"user", "Once upon a time"}, {"assistant", "Once."}};
        Log log;
        const Turn turn = say(chat, "Go on", log);
        CHECK(log.notices.size() >= 1);
        CHECK(turn.generated > 100);
        CHECK((turn.guessed > 20) == (draft_tokens > 0));
        if (draft_tokens == 0) expected = turn.text;
        CHECK(turn.text == expected);
    }
}

TEST_CASE("chat: stopping keeps what came") {
    const Model model(512);
    Chat chat = model.chat(Overflow::drop, -1);
    chat.options.sampling.logit_bias = {{4088, -1e3}, {4090, -1e3}};
    Log log;
    ChatHooks hooks = log.hooks();
    hooks.interrupted = [&] { return log.text.size() > 40; };
    const auto turn = chat.say("Tell me a story.", hooks);
    REQUIRE(turn);
    CHECK(turn->finish == Finish::cancelled);
    CHECK(chat.conversation.messages.back().content == log.text);
    CHECK(log.text.size() > 40);
    CHECK(chat.say("And then?", log.hooks()));
}

TEST_CASE("chat: a fallback template knows what ends a turn") {
    const Model model(512);
    CHECK(model.chat().format().stops().empty());  // a control token ends it
    const auto stop = [&](const char* name) {
        const auto stops = model.chat(Overflow::drop, 1, name).format().stops();
        return stops.empty() ? std::string() : stops[0];
    };
    CHECK(stop("plain") == "\nUser:");
    CHECK(stop("alpaca") == "\n### Instruction:");
    CHECK(stop("gemma") == "<end_of_turn>");
    CHECK(stop("llama3") == "<|eot_id|>");
    CHECK(stop("chatml").empty());
}

TEST_CASE("chat: a control token that ends a turn ends the answer, named as an end or not") {
    const Model model(512);
    const Tokenizer& t = model.engine->tokenizer();
    const Token marker = *t.find("<|im_start|>");
    REQUIRE(t.is_control(marker));
    REQUIRE(!t.is_end_of_generation(marker));
    auto source = ChatTemplate::parse(
        "{% for m in messages %}{{ m.role }}: {{ m.content }}<|im_start|>\n{% endfor %}"
        "assistant:",
        "template");
    REQUIRE(source);
    Chat chat = model.chat();
    chat.set_format(ChatFormat(t, std::move(*source), false));
    CHECK(chat.format().stops().empty());
    CHECK(chat.format().stop_tokens() == std::vector<Token>{marker});
    chat.options.sampling.logit_bias = {{marker, 1000}};
    Log log;
    const Turn turn = say(chat, "Hi", log);
    CHECK(turn.finish == Finish::eos);
    CHECK(turn.generated == 1);
    CHECK(turn.text.empty());
}

TEST_CASE("chat: the most likely next tokens") {
    const Model model(512);
    Chat chat = model.chat();
    Log log;
    say(chat, "Tell me a story.", log);
    const auto top = chat.next_tokens(5);
    REQUIRE(top);
    REQUIRE(top->size() == 5);
    CHECK((*top)[0].logprob <= 0);
    CHECK((*top)[0].logprob >= (*top)[4].logprob);
    CHECK(chat.conversation.messages.size() == 2);
}

TEST_CASE("conversations: saved and loaded, hostile files refused by name") {
    const fs::path path = fs::temp_directory_path() / cat("nibble-chat-", ::getpid(), ".json");
    Conversation c;
    c.system = "Be \"brief\"\n";
    c.messages = {{"user", "na\xc3\xafve \xe2\x98\x83\n"}, {"assistant", "<think>\n1</think>2"}};
    REQUIRE(save_conversation(c, path));
    CHECK(*load_conversation(path) == c);
    c.messages[0].content = "\xff";
    REQUIRE(save_conversation(c, path));
    CHECK(load_conversation(path)->messages[0].content == "\xef\xbf\xbd");
    for (const char* bad :
         {"", "[", "[]", "{}", R"({"messages": 1})", R"({"messages": [1]})",
          R"({"messages": [{"role": "user"}]})", R"({"messages": [{"role": 1, "content": ""}]})",
          R"({"messages": [{"role": "root", "content": ""}]})",
          R"({"messages": [{"role": "assistant", "content": ""}]})",
          R"({"messages": [{"role": "user", "content": ""}, {"role": "system", "content": ""}]})"}) {
        std::ofstream(path) << bad;
        const auto r = load_conversation(path);
        INFO(bad);
        REQUIRE(!r);
        CHECK(r.error().where == path.string());
    }
    std::ofstream(path) << "{\"messages\":" << std::string(300'000, '[') << std::string(300'000, ']') << "}";
    CHECK(load_conversation(path).error().what.find("too deeply") != std::string::npos);
    fs::remove(path);
    CHECK(!load_conversation(path));
    CHECK(!save_conversation(c, "/nonexistent/x.json"));
}
