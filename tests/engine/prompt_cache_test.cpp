// Prompt caches: what a file has of a prompt is not computed again and changes no token; what does not fit is
// passed over, and what is no prompt cache is left alone.
#include "src/engine/prompt_cache.h"

#include <algorithm>
#include <fstream>

#include <unistd.h>

#include "ggml/base/cat.h"
#include "ggml/base/mapped_file.h"
#include "tests/loaded_engine.h"

using namespace nibble;
namespace fs = std::filesystem;

namespace {

const fs::path models = fs::path(NIBBLE_SOURCE_DIR) / "tests/golden/models";
using Tokens = std::vector<Token>;

struct File {
    fs::path path = fs::temp_directory_path() / cat("nibble-prompt-cache-", ::getpid());
    ~File() { fs::remove(path); }
    std::string read() const { return *read_text_file(path); }
    void write(const std::string& bytes) const { std::ofstream(path, std::ios::binary) << bytes; }
};

Tokens some_tokens(size_t n, Token salt) {
    Tokens t(n);
    for (size_t i = 0; i < n; ++i)
        t[i] = static_cast<Token>((i * 2654435761u + static_cast<size_t>(salt)) % 90) + 3;
    return t;
}
Tokens joined(Tokens a, const Tokens& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

struct Answer {
    Tokens tokens;
    int32_t prefilled = 0;
    int64_t reused = 0;
    int32_t parting = 0;
    std::optional<Error> passed_over;
};

// One run of the program: an engine of its own.
struct Run {
    fs::path model = bundled_model();
    Type kv_type = Type::f16;
    int32_t ctx = 256;

    Answer operator()(const Tokens& prompt, const fs::path& file = {}) const {
        EngineConfig config;
        config.runner.ctx = ctx;
        config.runner.page_size = 16;
        config.runner.k_type = config.runner.v_type = kv_type;
        const LoadedEngine loaded(config, 2, model);
        Engine& engine = *loaded.engine;
        Answer a;
        Request r;
        std::optional<PromptCache> cache;
        if (!file.empty()) {
            cache.emplace(engine, file);
            const auto taken = cache->load(prompt);
            REQUIRE_MESSAGE(taken, (taken ? "" : taken.error().message()));
            a.reused = cache->reused();
            a.passed_over = cache->passed_over();
            a.parting = r.kept_beginning = cache->parting();
        }
        r.prompt = prompt;
        r.max_tokens = 8;
        r.ignore_eos = true;
        REQUIRE(engine.submit(r));
        while (!engine.idle()) {
            const auto report = engine.step();
            REQUIRE_MESSAGE(report, (report ? "" : report.error().message()));
            a.prefilled += report->prefill_tokens;
            for (const Event& e : report->events)
                if (e.token >= 0) a.tokens.push_back(e.token);
        }
        if (cache) REQUIRE(cache->save());
        return a;
    }
};

}  // namespace

TEST_CASE("prompt cache: one beginning, several ends; only they are computed, and the file stays") {
    for (const Type type : {Type::f16, Type::q8_0}) {
        const File file;
        const Run run{bundled_model(), type};
        const Tokens beginning = some_tokens(100, 1);
        const Answer first = run(joined(beginning, some_tokens(9, 5)), file.path);
        CHECK(first.reused == 0);
        CHECK(first.prefilled == 109);
        CHECK((fs::status(file.path).permissions() & fs::perms::all) ==
              (fs::perms::owner_read | fs::perms::owner_write));
        const std::string written = file.read();
        for (const size_t n : {1, 5, 12}) {
            const Tokens prompt = joined(beginning, some_tokens(n, 30));
            const Answer a = run(prompt, file.path);
            CHECK(!a.passed_over);
            CHECK(a.reused >= 100 - (n == 1));
            CHECK(a.prefilled + a.reused == static_cast<int64_t>(prompt.size()));
            CHECK(a.tokens == run(prompt).tokens);
            CHECK(file.read() == written);
        }
        const Tokens shorter(beginning.begin(), beginning.begin() + 37);
        CHECK(run(shorter, file.path).reused == 36);  // one token must be computed
        CHECK(run(shorter, file.path).tokens == run(shorter).tokens);
        CHECK(file.read() == written);
    }
}

TEST_CASE("prompt cache: windows, latent attention, several groups of layers") {
    for (const char* model : {"gemma3", "gpt_oss", "deepseek_v3", "cohere2", "exaone4"}) {
        INFO(model);
        const File file;
        const Run run{models / model, Type::f16, 128};
        const Tokens beginning = some_tokens(70, 1), prompt = joined(beginning, some_tokens(5, 40));
        run(joined(beginning, some_tokens(9, 5)), file.path);
        const Answer a = run(prompt, file.path);
        CHECK(a.reused >= 70);
        CHECK(a.prefilled + a.reused == 75);
        CHECK(a.tokens == run(prompt).tokens);
    }
}

TEST_CASE("prompt cache: written anew when more than an eighth of what it had was computed") {
    const File file;
    const Run run;
    Tokens prompt = some_tokens(30, 1);
    file.write("");  // as mktemp leaves it
    CHECK(run(prompt, file.path).reused == 0);
    prompt = joined(prompt, some_tokens(3, 2));
    CHECK(run(prompt, file.path).reused == 30);
    prompt = joined(prompt, some_tokens(3, 3));
    CHECK(run(prompt, file.path).reused == 30);  // six more
    prompt = joined(prompt, some_tokens(3, 4));
    CHECK(run(prompt, file.path).reused == 36);
    const Answer other = run(some_tokens(30, 50), file.path);
    CHECK(other.reused == 0);
    CHECK(run(some_tokens(30, 50), file.path).reused == 29);
}

TEST_CASE("prompt cache: a state is of all its tokens, so the file serves prompts that go on behind them") {
    const File file;
    const Run run{models / "qwen3_5", Type::f16, 128};
    const Tokens prompt = some_tokens(60, 1);
    run(prompt, file.path);
    const Answer again = run(prompt, file.path), more = run(joined(prompt, some_tokens(9, 7)), file.path);
    CHECK(again.reused == 32);  // whole pages, 16 tokens or more before the end
    CHECK(again.prefilled == 28);
    CHECK(again.tokens == run(prompt).tokens);
    CHECK(more.reused == 32);
    CHECK(more.tokens == run(joined(prompt, some_tokens(9, 7))).tokens);
    const Tokens part(prompt.begin(), prompt.begin() + 25);
    CHECK(run(part, file.path).reused == 0);
}

TEST_CASE("prompt cache: a state is kept where two prompts part, and serves a third") {
    for (const char* model : {"qwen3_5", "lfm2", "granitemoehybrid"}) {
        INFO(model);
        const File file;
        const Run run{models / model, Type::f16, 128};
        const Tokens beginning = some_tokens(55, 1);
        const Tokens ends[] = {joined(beginning, some_tokens(40, 5)), joined(beginning, some_tokens(30, 9)),
                               joined(beginning, some_tokens(50, 20))};
        CHECK(run(ends[0], file.path).parting == 0);
        const Answer second = run(ends[1], file.path), third = run(ends[2], file.path);
        CHECK(second.reused == 0);
        CHECK(second.parting == 48);
        CHECK(second.tokens == run(ends[1]).tokens);
        CHECK(third.reused == 48);
        CHECK(third.parting == 0);
        CHECK(third.tokens == run(ends[2]).tokens);
    }
}

TEST_CASE("prompt cache: what does not fit is passed over with the reason, and replaced") {
    const File file;
    const Run run;
    const Tokens prompt = some_tokens(60, 1);
    const Answer plain = run(prompt);
    const auto passed_over = [&](const std::string& reason) {
        const Answer a = run(prompt, file.path);
        REQUIRE(a.passed_over);
        CHECK(a.passed_over->message().find(reason) != std::string::npos);
        CHECK(a.passed_over->where == file.path.string());
        CHECK(a.reused == 0);
        CHECK(a.tokens == plain.tokens);
        CHECK(run(prompt, file.path).reused == 59);
    };
    Run{models / "qwen3", Type::f16, 128}(prompt, file.path);
    passed_over("another model");
    Run{bundled_model(), Type::q8_0}(prompt, file.path);  // passed over as well
    passed_over("other types of the KV cache (give --kv-type");
    const std::string whole = file.read();
    for (size_t n = 8; n < whole.size(); n += n < 200 ? 9 : whole.size() / 7) {
        file.write(whole.substr(0, n));
        const Answer a = run(prompt, file.path);
        CHECK(a.passed_over);
        CHECK(a.tokens == plain.tokens);
    }
    std::string changed = whole;
    changed[changed.size() / 2] ^= 1;
    file.write(changed);
    passed_over("check sum");
}

TEST_CASE("prompt cache: a file that is none is not replaced, and one that cannot be written is told first") {
    const File file;
    const LoadedEngine loaded{EngineConfig{}};
    for (const std::string text : {"some text of somebody's", "x"}) {
        file.write(text);
        const auto r = PromptCache(*loaded.engine, file.path).load(some_tokens(9, 1));
        REQUIRE(!r);
        CHECK(r.error().where == file.path.string());
        CHECK(file.read() == text);
    }
    CHECK(!PromptCache(*loaded.engine, "/nosuch/folder/file").load(some_tokens(9, 1)));
    CHECK(!PromptCache(*loaded.engine, fs::temp_directory_path()).load(some_tokens(9, 1)));
}
