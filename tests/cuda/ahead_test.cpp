// Steps that start before the last one's tokens are known: the same events as without, whatever ends a text.
// A log-probability is not drawn on the device, so who asks for one gets every step by itself.
#include <filesystem>
#include <map>

#include <doctest/doctest.h>
#include <unistd.h>

#include "ggml/base/cat.h"
#include "ggml/cpu/cpu_backend.h"
#include "src/engine/engine.h"
#include "src/eval/synthetic.h"
#include "src/model/vocab_file.h"
#include "tests/cuda/mirror.h"
#include "tests/large_vocabulary.h"

using namespace nibble;

namespace {

struct Told {
    std::vector<Token> tokens;
    std::string text;
    Finish finish = Finish::none;
    bool operator==(const Told&) const = default;
};

struct Asked {
    Request request;
    int at = 0;                  // after so many steps
    size_t cancelled_after = 0;  // so many tokens; 0: it is not
};

class Card {
  public:
    explicit Card(const std::string& model, EngineConfig config = {}) {
        auto cpu = CpuBackend::create({1, "", true});
        REQUIRE(cpu);
        cpu_ = std::move(*cpu);
        gpu_ = test_card({.gemv = false});  // texts alone are compared with texts in company
        if (!gpu_) return;
        Backend* const both[] = {cpu_.get(), gpu_.get()};
        config.runner.ctx = 64;
        config.runner.max_sequences = 3;
        config.runner.page_size = 4;
        auto engine = Engine::load(std::filesystem::path(NIBBLE_SOURCE_DIR) / model, config, both);
        REQUIRE_MESSAGE(engine, engine.error().message());
        engine_ = std::make_unique<Engine>(std::move(*engine));
    }
    explicit operator bool() const { return engine_ != nullptr; }
    int guessed = 0;  // tokens, so far
    Engine& engine() { return *engine_; }

    // What each request was told; `alone`: every step by itself.
    std::vector<Told> tell(const std::vector<Asked>& asked, bool alone) {
        std::map<RequestId, size_t> index;
        std::vector<Told> told(asked.size());
        size_t submitted = 0;
        for (int step = 0; submitted < asked.size() || !engine_->idle(); ++step) {
            for (; submitted < asked.size() && asked[submitted].at <= step; ++submitted) {
                Request r = asked[submitted].request;
                r.logprobs = alone ? 0 : -1;
                const auto id = engine_->submit(std::move(r));
                REQUIRE_MESSAGE(id, id.error().message());
                index[*id] = submitted;
            }
            for (const auto& [id, i] : index)
                if (asked[i].cancelled_after > 0 && told[i].tokens.size() == asked[i].cancelled_after)
                    engine_->cancel(id);
            const auto report = engine_->step();
            REQUIRE_MESSAGE(report, report.error().message());
            for (const Event& e : report->events) {
                Told& t = told[index.at(e.request)];
                CHECK(t.finish == Finish::none);
                if (e.token >= 0) t.tokens.push_back(e.token);
                t.text += e.text;
                t.finish = e.finish;
                guessed += e.guessed;
            }
            REQUIRE(step < 500);
        }
        return told;
    }

  private:
    std::unique_ptr<Backend> cpu_;
    std::unique_ptr<CudaBackend> gpu_;
    std::unique_ptr<Engine> engine_;
};

Request request(std::vector<Token> prompt, int64_t max_tokens, uint64_t seed,
                std::vector<std::pair<std::string_view, std::string_view>> settings = {}) {
    Request r;
    r.prompt = std::move(prompt);
    r.max_tokens = max_tokens;
    r.sampling.seed = seed;
    for (const auto& [key, value] : settings) REQUIRE(set(r.sampling, key, value).ok());
    return r;
}

}  // namespace

TEST_CASE("a step is on its way when the one before is reported") {
    Card card("tests/golden/models/qwen2");
    if (!card) return;
    Engine& engine = card.engine();
    const auto step = [&] {
        const auto report = engine.step();
        REQUIRE(report);
        return report->events.size();
    };
    REQUIRE(engine.submit(request({3, 5, 7}, 4, 1, {{"temperature", "0"}})));
    for (const size_t launches : {2, 3, 4, 4}) {  // the last token has nothing behind it
        CHECK(step() == 1);
        CHECK(engine.runner().launches() == launches);
    }
    CHECK(engine.idle());
    // Another request takes its turn with the next step; then they go on together.
    REQUIRE(engine.submit(request({3, 5, 7}, 9, 1)));
    CHECK(step() == 1);
    CHECK(engine.runner().launches() == 6);
    REQUIRE(engine.submit(request({9, 5}, 9, 2)));
    for (const size_t launches : {6, 8, 9}) {
        CHECK(step() == (launches == 6 ? 1 : 2));
        CHECK(engine.runner().launches() == launches);
    }
    while (!engine.idle()) step();
    // What is not drawn on the device is not started ahead.
    const size_t before = engine.runner().launches();
    REQUIRE(engine.submit(request({3, 5, 7}, 4, 1, {{"mirostat", "2"}})));
    while (!engine.idle()) step();
    CHECK(engine.runner().launches() == before);
}

namespace {

void check_steps_ahead(const std::string& model) {
    INFO(model);
    Card card(model);
    if (!card) return;
    const Token n_vocab = static_cast<Token>(card.engine().tokenizer().n_vocab());
    const auto prompt = [&](Token n) {
        std::vector<Token> tokens;
        for (Token i = 0; i < n; ++i) tokens.push_back((i * i + 3 * n + 5) % n_vocab);
        return tokens;
    };
    std::vector<Asked> asked{
        {request(prompt(5), 30, 1)},
        {request(prompt(41), -1, 2, {{"top_k", "1000"}})},  // more than the device lists
        {request(prompt(3), 12, 3, {{"temperature", "0"}}), 2},
        {request(prompt(9), 14, 4, {{"presence_penalty", "0.5"}, {"repeat_last_n", "6"}}), 3},  // waits
        {request(prompt(9), 4, 5, {{"mirostat", "2"}}), 6},
        {request(prompt(5), 30, 1), 12, 4},
        {request(prompt(7), 0, 7), 13},
        {request(prompt(2), 20, 8, {{"repeat_penalty", "1.2"}, {"repeat_last_n", "-1"}}), 26},
        {request(prompt(60), 9, 9), 27},  // the context ends it
    };
    const std::vector<Told> alone = card.tell(asked, true);
    const size_t launches = card.engine().runner().launches();
    const std::vector<Told> ahead = card.tell(asked, false);
    CHECK(card.engine().runner().launches() > launches + 15);
    for (size_t i = 0; i < asked.size(); ++i) {
        INFO("request " << i);
        CHECK(ahead[i] == alone[i]);
        CHECK(ahead[i].finish != Finish::none);
    }
    CHECK(alone[5].finish == Finish::cancelled);
    CHECK(alone[8].finish == Finish::context);

    // A stop string somewhere in the text of the first one.
    const size_t n = alone[0].tokens.size();
    REQUIRE(n > 8);
    asked.resize(1);
    asked[0].request.stop = {card.engine().tokenizer().piece(alone[0].tokens[n / 2])};
    const std::vector<Told> stopped = card.tell(asked, false);
    CHECK(stopped == card.tell(asked, true));
    CHECK(stopped[0].finish == Finish::stop);
}

}  // namespace

TEST_CASE("texts of steps that start ahead are those of steps by themselves") {
    check_steps_ahead("tests/golden/models/gemma3");   // with a window
    check_steps_ahead("tests/golden/models/qwen3_5");  // with states
    check_steps_ahead("tests/golden/models/lfm2");
}

TEST_CASE("what the device cannot tell is drawn here, and the text goes on as it would") {
    Card card("models/fairytale-int8.gguf");
    if (!card) return;
    // So flat that most tokens are not among the best 256.
    const std::vector<Asked> asked{
        {request(card.engine().tokenizer().encode("Once upon a time"), 5, 1,
                 {{"temperature", "3"}, {"samplers", "temperature"}})},
        {request(card.engine().tokenizer().encode("Once upon"), 6, 2)},
    };
    const std::vector<Told> alone = card.tell(asked, true), ahead = card.tell(asked, false);
    CHECK(ahead == alone);
    CHECK(ahead[0].tokens.size() == 5);
}

namespace {

// Random weights of this shape with the bundled model's tokens, which are more than a device lists.
struct RandomModel {
    std::filesystem::path path =
        std::filesystem::temp_directory_path() / cat("nibble-ahead-", ::getpid(), ".gguf");
    explicit RandomModel(const ModelShape& shape) {
        ThreadPool pool(1);
        const auto bundled = TensorFile::open(cat(NIBBLE_SOURCE_DIR, "/models/fairytale-int8.gguf"));
        REQUIRE(bundled);
        const auto written = write_synthetic(shape, "f16", 1, *read_vocab(*bundled), path, pool);
        REQUIRE_MESSAGE(written, (written ? "" : written.error().message()));
    }
    ~RandomModel() { std::filesystem::remove(path); }
};

}  // namespace

TEST_CASE("a state that the device cannot draw from is computed again, and the text goes on as it would") {
    ModelShape shape{"random", "lfm2", 3, 32, 48, 2, 1, 16, 4096, 512, 10000, true, false, true};
    shape.attends = ".a.";
    shape.n_taps = 3;
    shape.output_norm = "token_embd_norm";
    const RandomModel model(shape);
    Card card(model.path.string());
    if (!card) return;
    std::vector<Token> prompt;
    for (Token i = 0; i < 30; ++i) prompt.push_back(7 + i * 13 % 900);
    const auto flat = [&](uint64_t seed) {
        Request r = request(prompt, 10, seed, {{"temperature", "2"}, {"samplers", "temperature"}});
        r.ignore_eos = true;
        return r;
    };
    const std::vector<Asked> asked{{flat(1)}, {flat(2), 3}, {flat(1), 4, 5}, {request(prompt, 12, 4), 5}};
    const std::vector<Told> alone = card.tell(asked, true), ahead = card.tell(asked, false);
    for (size_t i = 0; i < asked.size(); ++i) {
        INFO("request " << i);
        CHECK(ahead[i] == alone[i]);
    }
    CHECK(ahead[0].tokens.size() == 10);
}

namespace {

void check_guesses(const std::string& model, int64_t n) {
    INFO(model);
    EngineConfig guessing;
    guessing.draft_tokens = 5;
    Card plain(model), card(model, guessing);
    if (!card) return;
    std::vector<Asked> asked{
        {request({3, 5, 7, 3, 5}, n, 1, {{"temperature", "0"}})},
        {request({3, 5, 7, 3, 5}, n / 2, 1, {{"temperature", "0.4"}})},
        {request({9, 8, 9, 8}, n, 2, {{"top_k", "1000"}}), 2},
    };
    for (Asked& a : asked) a.request.sampling.logit_bias = {{3, 8}, {5, 8}};  // few words, often repeated
    CHECK(card.tell(asked, false) == plain.tell(asked, false));
    CHECK(plain.guessed == 0);
    CHECK(card.guessed > 10);
    guessing.draft_model = cat(NIBBLE_SOURCE_DIR, "/", model);  // itself
    Card two(model, guessing);
    CHECK(two.tell(asked, false) == plain.tell(asked, false));
    CHECK(two.guessed > 5);  // fewer: texts that share a step want surer guesses
}

}  // namespace

TEST_CASE("guessed tokens leave the texts of a device as they are") {
    check_guesses("tests/golden/models/gemma3", 30);
    check_guesses("tests/golden/models/lfm2", 24);  // goes back to states
}

TEST_CASE("guesses by a model's own predictor or its assistant leave the texts of a device as they are") {
    for (const std::string_view name : {"qwen3_5_tales", "gemma4_tales", "qwen3_tales"}) {
        INFO(name);
        const std::string model = cat("tests/golden/models/", name);
        EngineConfig guessing;
        guessing.draft_tokens = 3;
        guessing.least_likely = 0.02;
        if (name != "qwen3_5_tales") guessing.draft_model = cat(NIBBLE_SOURCE_DIR, "/", model, "/assistant");
        Card plain(model), card(model, guessing);
        if (!card) return;
        CHECK(card.engine().runner().predictor() != nullptr);
        const std::vector<Asked> asked{
            {request({86, 74, 71, 97, 77, 75, 80, 73, 97}, 16, 1, {{"temperature", "0"}})},
            {request({67, 80, 70, 97}, 12, 1, {{"temperature", "0.6"}})},
            {request({74, 71, 97, 85, 67, 75, 70}, 16, 2), 2}};
        CHECK(card.tell(asked, false) == plain.tell(asked, false));
        CHECK(card.guessed > 8);
    }
    auto cpu = CpuBackend::create({1, "", true});
    const auto gpu = test_card();
    if (!gpu) return;
    REQUIRE(cpu);
    Backend* const both[] = {cpu->get(), gpu.get()};
    for (const std::string_view recipe : {"int4", "q8_0", "bf16"}) {
        INFO(recipe);
        check_first_tokens(both, recipe);
    }
}
