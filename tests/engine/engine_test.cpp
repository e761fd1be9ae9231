// The engine on the bundled checkpoint: the same tokens whatever the chunks, threads and company.
// Also: prefix reuse, cancellation, the ends of requests, exact footprint.
#include "src/engine/engine.h"

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>
#include <numeric>

#include <doctest/doctest.h>
#include <unistd.h>

#include "ggml/base/cat.h"
#include "ggml/base/mapped_file.h"
#include "ggml/cpu/cpu_backend.h"
#include "src/engine/scheduler.h"
#include "tests/golden/single_sequence.h"
#include "tests/loaded_engine.h"

using namespace nibble;

namespace {

const std::filesystem::path root = NIBBLE_SOURCE_DIR;
const std::filesystem::path checkpoint = root / "models/fairytale", int8 = bundled_model();

std::vector<Token> some_tokens(size_t n) {
    std::vector<Token> t(n);
    for (size_t i = 0; i < n; ++i) t[i] = static_cast<Token>((i * 2654435761u + 17) % 4000);
    return t;
}

using Loaded = LoadedEngine;

Request request(std::string_view text, const Engine& e, int64_t n, uint64_t seed = 1) {
    Request r;
    r.prompt = e.tokenizer().encode(text);
    r.max_tokens = n;
    r.sampling.seed = seed;
    r.ignore_eos = true;
    return r;
}

struct Answer {
    std::vector<Token> tokens;
    std::string text;
    Finish finish = Finish::none;
};

std::map<RequestId, Answer> run_all(Engine& e) {
    std::map<RequestId, Answer> answers;
    while (!e.idle()) {
        const auto report = e.step();
        REQUIRE_MESSAGE(report, (report ? "" : report.error().message()));
        for (const Event& event : report->events) {
            Answer& a = answers[event.request];
            if (event.token >= 0) a.tokens.push_back(event.token);
            a.text += event.text;
            a.finish = event.finish;
        }
    }
    return answers;
}

}  // namespace

TEST_CASE("logits are equal to the last bit for chunks of 1, 7 and 512 and for 1, 2 and 4 threads") {
    const std::vector<Token> tokens = some_tokens(200);
    struct Case {
        std::filesystem::path path;
        Type type;
    };
    for (const Case& c : {Case{checkpoint, Type::f16}, Case{int8, Type::f16}, Case{int8, Type::q8_0}}) {
        std::vector<float> expected;
        for (const int threads : {1, 2, 4})
            for (const size_t chunk : {512, 7, 1}) {
                INFO(c.path.string() << " threads " << threads << " chunk " << chunk);
                auto s = SingleSequence::load(c.path, c.type, cpu_backend(threads));
                REQUIRE(s);
                std::span<float> logits;
                for (size_t i = 0; i < tokens.size(); i += chunk) {
                    auto r = s->feed(std::span(tokens).subspan(i, std::min(chunk, tokens.size() - i)));
                    REQUIRE(r);
                    logits = *r;
                }
                if (expected.empty()) expected.assign(logits.begin(), logits.end());
                CHECK(std::memcmp(expected.data(), logits.data(), logits.size_bytes()) == 0);
            }
    }
}

TEST_CASE("what is in unused cache memory never matters") {
    // A NaN behind the last token would spread if a kernel read past the sequence and masked afterwards.
    struct Poison : OverCpu {
        Result<Buffer> allocate(size_t bytes, std::string_view purpose) override {
            auto b = real->allocate(bytes, purpose);
            if (b) std::memset(b->data.get(), 0xFF, bytes);
            return b;
        }
    };
    const std::vector<Token> tokens = some_tokens(37);
    auto clean = SingleSequence::load(int8, Type::f16, cpu_backend(2));
    auto poisoned = SingleSequence::load(int8, Type::f16, std::make_shared<Poison>());
    REQUIRE(clean);
    REQUIRE(poisoned);
    const auto a = clean->feed(tokens), b = poisoned->feed(tokens);
    REQUIRE(a);
    REQUIRE(b);
    CHECK(std::memcmp(a->data(), b->data(), a->size_bytes()) == 0);
}

TEST_CASE("requests in one batch get the same tokens as alone") {
    const std::vector<std::string> prompts = {
        "Once upon a time", "The King said to his daughter,", "A",
        "There was a fox who lived in a hole under the hill, and every morning"};
    std::vector<Answer> alone;
    for (const std::string& p : prompts) {
        Loaded one({});
        REQUIRE(one.engine->submit(request(p, *one.engine, 40)));
        alone.push_back(run_all(*one.engine).begin()->second);
        CHECK(alone.back().tokens.size() == 40);
        CHECK(alone.back().finish == Finish::length);
    }
    for (const int32_t batch_tokens : {4, 9, 512}) {
        EngineConfig config;
        config.runner.max_sequences = 3;  // one waits
        config.runner.batch_tokens = batch_tokens;
        Loaded many(config);
        std::vector<RequestId> ids;
        for (const std::string& p : prompts)
            ids.push_back(*many.engine->submit(request(p, *many.engine, 40)));
        auto answers = run_all(*many.engine);
        for (size_t i = 0; i < prompts.size(); ++i) {
            CHECK(answers[ids[i]].tokens == alone[i].tokens);
            CHECK(answers[ids[i]].text == alone[i].text);
        }
    }
}

TEST_CASE("a known prefix is reused and changes nothing") {
    std::string story;
    for (int i = 0; i < 12; ++i) story += "The old woman went into the wood to gather sticks. ";
    EngineConfig without;
    without.prefix_cache = false;
    Loaded fresh(without), cached({});
    std::vector<Answer> expected;
    for (const uint64_t seed : {1, 2}) {
        REQUIRE(fresh.engine->submit(request(story + "Then", *fresh.engine, 20, seed)));
        expected.push_back(run_all(*fresh.engine).begin()->second);
    }
    int32_t prefilled[2] = {};
    for (const int i : {0, 1}) {
        REQUIRE(
            cached.engine->submit(request(story + "Then", *cached.engine, 20, static_cast<uint64_t>(i) + 1)));
        std::vector<Token> tokens;
        while (!cached.engine->idle()) {
            const auto report = cached.engine->step();
            REQUIRE(report);
            prefilled[i] += report->prefill_tokens;
            for (const Event& e : report->events) tokens.push_back(e.token);
        }
        CHECK(tokens == expected[static_cast<size_t>(i)].tokens);
    }
    CHECK(prefilled[0] > 100);
    CHECK(prefilled[1] <= 32);  // at most what does not fill a page
}

TEST_CASE("a step tells what is left of the prompts") {
    EngineConfig config;
    config.runner.ctx = 256;
    config.runner.batch_tokens = 16;
    const Loaded loaded(config, 2);
    const Request r = request("Once upon a time there was a king who had three sons and a castle in the wood",
                              *loaded.engine, 3, 1);
    const auto size = static_cast<int32_t>(r.prompt.size());
    REQUIRE(size > 17);
    REQUIRE(loaded.engine->submit(r));
    REQUIRE(loaded.engine->submit(r));
    int32_t read = 0, steps = 0;
    for (; !loaded.engine->idle(); ++steps) {
        const auto report = loaded.engine->step();
        REQUIRE(report);
        read += report->prefill_tokens;
        if (steps == 0) CHECK(report->prefill_left == 2 * size - 16);
        if (report->prefill_left == 0) CHECK(report->events.size() > 0);
    }
    CHECK(steps > 3);
    CHECK(read <= 2 * size);
}

TEST_CASE("a step that is stopped is as if it had not begun") {
    for (const char* model : {"fairytale", "qwen3_5", "lfm2", "gemma3"}) {
        INFO(model);
        const auto path =
            model == std::string_view("fairytale") ? bundled_model() : root / "tests/golden/models" / model;
        EngineConfig config;
        config.runner.ctx = 128;
        config.runner.batch_tokens = 16;
        config.runner.page_size = 8;
        config.draft_tokens = 6;
        Request r;
        r.sampling.temperature = 0;
        r.ignore_eos = true;
        r.max_tokens = 12;
        for (Token t = 0; t < 60; ++t) r.prompt.push_back(3 + t % 20 * 7 % 90);
        const Loaded fresh(config, 2, path);
        REQUIRE(fresh.engine->submit(r));
        const std::vector<Token> expected = run_all(*fresh.engine).begin()->second.tokens;

        int64_t asked = 0, stop_at = -1;
        CpuOptions options;
        options.threads = 2;
        options.stop = [&] { return asked++ >= stop_at && stop_at >= 0; };
        auto backend = CpuBackend::create(options);
        REQUIRE(backend);
        Backend* const list[] = {backend->get()};
        auto engine = Engine::load(path, config, list);
        REQUIRE(engine);
        REQUIRE(engine->submit(r));
        REQUIRE(engine->step());
        const int64_t a_step = std::exchange(asked, 0);
        CHECK(a_step > 5);
        // The beginning, the middle and the end of a step, of the prompt and of the answer. A state that was
        // begun to be written is lost: what it was made of is computed again.
        std::vector<Token> tokens;
        int32_t stopped = 0;
        for (int64_t n = 0; !engine->idle(); ++n) {
            asked = 0, stop_at = n == 1 ? 0 : n == 4 || n == 12 ? a_step / 2 : n == 8 ? a_step - 1 : -1;
            const auto report = engine->step();
            REQUIRE_MESSAGE(report, (report ? "" : report.error().message()));
            if (stop_at >= 0) {
                CHECK(report->events.empty());
                CHECK(report->prefill_tokens + report->decode_tokens == 0);
                ++stopped;
            }
            for (const Event& e : report->events) tokens.push_back(e.token);
        }
        CHECK(stopped >= 3);
        CHECK(tokens == expected);

        // What was read before stays known.
        for (Token& t : r.prompt) t = (t + 40) % 90 + 3;
        const auto id = engine->submit(r);
        REQUIRE(id);
        stop_at = -1;
        REQUIRE(engine->step());
        REQUIRE(engine->step());
        asked = 0, stop_at = 3;
        REQUIRE(engine->step());
        engine->cancel(*id);
        const auto end = engine->step();
        REQUIRE(end);
        REQUIRE(end->events.size() == 1);
        CHECK(end->events[0].finish == Finish::cancelled);
        CHECK(engine->idle());
        REQUIRE(engine->submit(r));
        stop_at = -1;
        const auto again = engine->step();
        REQUIRE(again);
        CHECK(again->prefill_left <= 60 - 32);  // with its own 16 rows at least 48 are done
        run_all(*engine);
    }
}

TEST_CASE("a known prefix longer than the window is reused as well") {
    for (const std::string_view model : {"phi3", "gemma3", "gemma4", "gpt_oss"}) {
        INFO(model);
        EngineConfig config;
        config.runner.ctx = 128;
        config.runner.batch_tokens = 24;
        config.runner.page_size = 8;
        EngineConfig without = config;
        without.prefix_cache = false;
        const auto path = root / "tests/golden/models" / model;
        Loaded cached(config, 2, path), fresh(without, 2, path);
        Request r;
        r.sampling.temperature = 0;
        r.ignore_eos = true;
        r.max_tokens = 20;
        for (Token t = 0; t < 80; ++t) r.prompt.push_back(3 + t * 7 % 90);
        for (int turn = 0; turn < 2; ++turn) {
            REQUIRE(fresh.engine->submit(r));
            const std::vector<Token> expected = run_all(*fresh.engine).begin()->second.tokens;
            REQUIRE(cached.engine->submit(r));
            std::vector<Token> tokens;
            int32_t prefilled = 0;
            while (!cached.engine->idle()) {
                const auto report = cached.engine->step();
                REQUIRE_MESSAGE(report, (report ? "" : report.error().message()));
                prefilled += report->prefill_tokens;
                for (const Event& e : report->events) tokens.push_back(e.token);
            }
            CHECK(tokens == expected);
            if (turn == 1) CHECK(prefilled <= 8 + 5);  // what does not fill a page, and what is new
            r.prompt.insert(r.prompt.end(), tokens.begin(), tokens.end());
            r.prompt.insert(r.prompt.end(), {5, 6, 7});
        }
    }
}

TEST_CASE("a model's fingerprint tells what its positions mean") {
    const auto fingerprint = [&](int32_t ctx) {
        EngineConfig config;
        config.runner.ctx = ctx;
        return Loaded(config, 1, root / "tests/golden/models/phi4_mini").engine->runner().fingerprint();
    };
    CHECK(fingerprint(20) == fingerprint(32));
    CHECK(fingerprint(20) != fingerprint(33));  // other frequencies: the model knows two sets
    CHECK(fingerprint(33) == fingerprint(100));
}

TEST_CASE(
    "the last page of an earlier text is reused too, also where the cache has no page left for a copy") {
    EngineConfig small;
    small.runner.ctx = 64;
    EngineConfig without = small;
    without.prefix_cache = false;
    Loaded cached(small), fresh(without);
    const std::vector<Token> all = some_tokens(63);
    int32_t saved = 0;
    for (const size_t n : {20, 25, 40, 41, 50, 60, 63, 45, 30, 61}) {
        Request r;
        r.prompt.assign(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(n));
        r.sampling.temperature = 0;
        r.ignore_eos = true;
        r.max_tokens = 3;
        REQUIRE(fresh.engine->submit(r));
        const std::vector<Token> expected = run_all(*fresh.engine).begin()->second.tokens;
        REQUIRE(cached.engine->submit(r));
        std::vector<Token> tokens;
        while (!cached.engine->idle()) {
            const auto report = cached.engine->step();
            REQUIRE_MESSAGE(report, (report ? "" : report.error().message()));
            saved -= report->prefill_tokens;
            for (const Event& e : report->events) tokens.push_back(e.token);
        }
        saved += static_cast<int32_t>(n);
        CHECK(tokens == expected);
    }
    CHECK(saved > 150);
}

TEST_CASE("cancelling, stop strings, length 0 and a full context") {
    EngineConfig config;
    config.runner.ctx = 40;
    Loaded l(config);
    Engine& e = *l.engine;
    const RequestId cancelled = *e.submit(request("Once upon a time", e, -1));
    REQUIRE(e.step());
    e.cancel(cancelled);
    CHECK(run_all(e)[cancelled].finish == Finish::cancelled);

    const RequestId full = *e.submit(request("Once upon a time", e, -1));
    const Answer whole = run_all(e)[full];
    CHECK(whole.finish == Finish::context);
    CHECK(whole.tokens.size() == 36);

    Request stop = request("Once upon a time", e, -1);
    stop.stop = {whole.text.substr(12, 5)};
    const RequestId stopped = *e.submit(stop);
    const Answer cut = run_all(e)[stopped];
    CHECK(cut.finish == Finish::stop);
    CHECK(cut.text == whole.text.substr(0, whole.text.find(stop.stop[0])));

    const RequestId none = *e.submit(request("Once upon a time", e, 0));
    const Answer nothing = run_all(e)[none];
    CHECK(nothing.finish == Finish::length);
    CHECK(nothing.tokens.empty());

    CHECK(!e.submit(request("", e, 1)));
    Request long_one = request("x", e, 1);
    long_one.prompt.assign(40, 5);
    CHECK(e.submit(long_one).error().what.find("40") != std::string::npos);
    Request outside = request("x", e, 1);
    outside.prompt = {99999};
    CHECK(e.submit(outside).error().what.find("99999") != std::string::npos);
    outside.prompt = {5, -1};
    CHECK(!e.submit(outside));
}

TEST_CASE("a step that fails ends its requests, and the next one is answered") {
    Loaded l({});
    Engine& e = *l.engine;
    REQUIRE(e.submit(request("Once upon a time", e, 12)));
    const std::string expected = run_all(e).begin()->second.text;
    Request hopeless = request("The king", e, 8);
    for (Token t = 0; t < e.spec().n_vocab; ++t)
        hopeless.sampling.logit_bias.push_back({t, -std::numeric_limits<double>::infinity()});
    REQUIRE(e.submit(hopeless));
    REQUIRE(e.submit(request("The queen", e, 8)));
    const auto failed = e.step();
    REQUIRE(!failed);
    CHECK(failed.error().message().find("excludes every token") != std::string::npos);
    CHECK(e.idle());
    REQUIRE(e.submit(request("Once upon a time", e, 12)));
    const auto answers = run_all(e);
    REQUIRE(answers.size() == 1);
    CHECK(answers.begin()->second.text == expected);
}

TEST_CASE("the forecast is what is allocated") {
    for (const int32_t ctx : {1, 100, 512}) {
        EngineConfig config;
        config.runner.ctx = ctx;
        Loaded l(config);
        const MemoryForecast& f = l.engine->runner().memory();
        const DeviceFootprint& d = f.devices[0];
        CHECK(l.engine->runner().allocated_bytes() == d.cache + d.arena + d.inputs);
        Backend* const list[] = {l.backend.get()};
        const auto forecast = ModelRunner::forecast(std::move(*TensorFile::open(int8)), config.runner, list);
        REQUIRE(forecast);
        CHECK(forecast->devices[0].total() == d.total());
        CHECK(d.cache == (static_cast<size_t>(ctx) + 31) / 32 * 32 * f.kv_bytes_per_token);
    }
    // Keys and values that several layers share are there once.
    EngineConfig config;
    config.runner.ctx = 64;
    LoadedEngine l(config, 1, std::filesystem::path(NIBBLE_SOURCE_DIR) / "tests/golden/models/gemma4");
    const DeviceFootprint& d = l.engine->runner().memory().devices[0];
    CHECK(l.engine->runner().allocated_bytes() == d.cache + d.arena + d.inputs);
}

TEST_CASE("layers on two devices give the same logits") {
    const auto a = cpu_backend(1), b = cpu_backend(2);
    Backend* const list[] = {a.get(), b.get()};
    const std::vector<Token> tokens = some_tokens(50);
    std::vector<float> expected;
    for (const std::vector<int32_t>& layers :
         {std::vector<int32_t>(6, 0), {0, 0, 0, 1, 1, 1}, {1, 0, 1, 0, 1, 0}}) {
        EngineConfig config;
        config.runner.placement = {layers, 0, layers.back()};
        auto e = Engine::load(int8, config, list);
        REQUIRE_MESSAGE(e, (e ? "" : e.error().message()));
        Request r;
        r.prompt = tokens;
        r.max_tokens = 5;
        r.sampling.temperature = 0;
        REQUIRE(e->submit(r));
        const auto answer = run_all(*e).begin()->second;
        std::vector<float> ids(answer.tokens.begin(), answer.tokens.end());
        if (expected.empty()) expected = ids;
        CHECK(ids == expected);
    }
}

TEST_CASE("check-nan names the layer whose weights are broken") {
    // A copy of the model with a NaN in the norm before layer 3's feed-forward.
    std::string bytes = *read_text_file(int8);
    {
        const auto file = TensorFile::open(int8);
        const auto data = file->find("blk.3.ffn_norm.weight")->data;
        const size_t at =
            bytes.find(std::string_view(reinterpret_cast<const char*>(data.data()), data.size()));
        REQUIRE(at != std::string::npos);
        const float nan = NAN;
        std::memcpy(bytes.data() + at + 20, &nan, sizeof nan);
    }
    const auto path = std::filesystem::temp_directory_path() / cat("nibble-nan-", ::getpid(), ".gguf");
    std::ofstream(path, std::ios::binary) << bytes;
    EngineConfig config;
    config.check_nan = true;
    Loaded l(config, 1, path);
    REQUIRE(l.engine->submit(request("Once upon a time", *l.engine, 3)));
    const auto report = l.engine->step();
    REQUIRE(!report);
    CHECK(report.error().what.find("blk.3.ffn_norm") != std::string::npos);
    std::filesystem::remove(path);
}

TEST_CASE("a tokenizer that cannot be made refuses the model, whose weights are being loaded meanwhile") {
    std::string bytes = *read_text_file(int8);
    constexpr std::string_view first_merge("\3\0\0\0\0\0\0\0h e", 11);
    const size_t at = bytes.find(first_merge);
    REQUIRE(at != std::string::npos);
    bytes[at + first_merge.size() - 2] = '-';
    const auto path = std::filesystem::temp_directory_path() / cat("nibble-merges-", ::getpid(), ".gguf");
    std::ofstream(path, std::ios::binary) << bytes;
    const auto backend = cpu_backend(2);
    Backend* const list[] = {backend.get()};
    const auto engine = Engine::load(path, {}, list);
    std::filesystem::remove(path);
    REQUIRE_FALSE(engine);
    CHECK(engine.error().message().find("merge 0") != std::string::npos);
    CHECK(engine.error().message().find(path.string()) != std::string::npos);
}

TEST_CASE("the scheduler serves decoding first and fills with prompts in order") {
    using W = std::vector<Work>;
    CHECK(schedule(W{{100, false}, {1, true}, {50, false}}, {64, 8}) == std::vector<int32_t>{63, 1, 0});
    CHECK(schedule(W{{10, false}, {1, true}, {50, false}}, {64, 8}) == std::vector<int32_t>{10, 1, 50});
    CHECK(schedule(W{{10, false}, {1, true}, {50, false}}, {64, 2}) == std::vector<int32_t>{10, 1, 0});
    CHECK(schedule(W{{0, true}, {5, false}}, {3, 1}) == std::vector<int32_t>{0, 3});
    // Every text that is generated goes on, however much another one has to compute again.
    CHECK(schedule(W{{9, true}, {1, true}, {3, true}, {2, false}}, {6, 8}) ==
          std::vector<int32_t>{4, 1, 1, 0});
    CHECK(schedule(W{{9, true}, {1, true}, {3, true}}, {20, 2}) == std::vector<int32_t>{9, 1, 0});
    CHECK(schedule(W{}, {3, 1}).empty());
}
