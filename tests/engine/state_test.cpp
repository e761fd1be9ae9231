// Models that carry a state from token to token: the same tokens whatever the chunks, the company and what is
// known already. On tiny checkpoints of both kinds of state.
#include <cstring>
#include <map>

#include <doctest/doctest.h>

#include "ggml/base/cat.h"
#include "tests/golden/single_sequence.h"
#include "tests/loaded_engine.h"

using namespace nibble;

namespace {

const std::filesystem::path models = std::filesystem::path(NIBBLE_SOURCE_DIR) / "tests/golden/models";
constexpr std::string_view with_states[] = {"qwen3_5",          "qwen3_5_moe",    "lfm2", "lfm2_moe",
                                            "granitemoehybrid", "nemotron_h_moe", "lfm3"};

using Tokens = std::vector<Token>;

Tokens some_tokens(size_t n, Token salt = 0) {
    Tokens t(n);
    for (size_t i = 0; i < n; ++i) t[i] = static_cast<Token>((i * 2654435761u + 17) % 90) + 3;
    for (size_t i = n / 2; i < n; ++i) t[i] = (t[i] + salt) % 90 + 3;
    return t;
}

EngineConfig config_for(int32_t sequences = 1, int32_t batch_tokens = 0) {
    EngineConfig config;
    config.runner.ctx = 128;
    config.runner.page_size = 8;
    config.runner.max_sequences = sequences;
    config.runner.batch_tokens = batch_tokens;
    return config;
}

Request request(Tokens prompt, int64_t n = 12, uint64_t seed = 1) {
    Request r;
    r.prompt = std::move(prompt);
    r.max_tokens = n;
    r.ignore_eos = true;
    r.sampling.seed = seed;
    return r;
}

struct Heard {
    std::map<RequestId, Tokens> tokens;
    std::map<RequestId, std::vector<Alternative>> alternatives;
    int32_t prefilled = 0, decoded = 0, drafted = 0, guessed = 0;  // guessed: rightly
};

Heard hear(Engine& e) {
    Heard heard;
    while (!e.idle()) {
        const auto report = e.step();
        REQUIRE_MESSAGE(report, (report ? "" : report.error().message()));
        heard.prefilled += report->prefill_tokens;
        heard.decoded += report->decode_tokens;
        heard.drafted += report->drafted_tokens;
        for (const Event& event : report->events) {
            if (event.token >= 0) heard.tokens[event.request].push_back(event.token);
            heard.guessed += event.guessed ? 1 : 0;
            if (!event.alternatives.empty()) heard.alternatives[event.request] = event.alternatives;
        }
    }
    return heard;
}

Tokens answer(Engine& e, const Request& r, int32_t* prefilled = nullptr) {
    const auto id = e.submit(r);
    REQUIRE_MESSAGE(id, (id ? "" : id.error().message()));
    Heard heard = hear(e);
    if (prefilled) *prefilled = heard.prefilled;
    return heard.tokens[*id];
}

}  // namespace

TEST_CASE("states: logits are equal to the last bit whatever the chunks and threads, and what memory held") {
    struct Poison : OverCpu {
        Result<Buffer> allocate(size_t bytes, std::string_view purpose) override {
            auto b = real->allocate(bytes, purpose);
            if (b) std::memset(b->data.get(), 0xFF, bytes);
            return b;
        }
    };
    const Tokens tokens = some_tokens(60);
    for (const std::string_view model : with_states) {
        std::vector<float> expected;
        for (const int threads : {1, 3, 0})
            for (const size_t chunk : {60, 7, 1}) {
                INFO(model << " threads " << threads << " chunk " << chunk);
                std::shared_ptr<Backend> backend = std::make_shared<Poison>();
                if (threads > 0) backend = cpu_backend(threads);
                auto s = SingleSequence::load(models / model, Type::f16, std::move(backend));
                REQUIRE(s);
                std::span<float> logits;
                for (size_t i = 0; i < tokens.size(); i += chunk) {
                    const auto r = s->feed(std::span(tokens).subspan(i, std::min(chunk, tokens.size() - i)));
                    REQUIRE_MESSAGE(r, (r ? "" : r.error().message()));
                    logits = *r;
                }
                if (expected.empty()) expected.assign(logits.begin(), logits.end());
                CHECK(std::memcmp(expected.data(), logits.data(), logits.size_bytes()) == 0);
            }
    }
}

TEST_CASE("states: requests in one batch get what they get alone") {
    for (const std::string_view model : with_states) {
        INFO(model);
        const std::vector<Request> requests = {request(some_tokens(5)), request(some_tokens(40, 7), 20),
                                               request(some_tokens(1)), request(some_tokens(70, 11), 15),
                                               request(some_tokens(40, 7), 20, 2)};
        std::vector<Tokens> alone;
        for (const Request& r : requests)
            alone.push_back(answer(*LoadedEngine(config_for(), 1, models / model).engine, r));
        for (const int32_t batch_tokens : {3, 9, 128}) {
            LoadedEngine many(config_for(3, batch_tokens), 2, models / model);
            std::vector<RequestId> ids;
            for (const Request& r : requests) ids.push_back(*many.engine->submit(r));
            Heard heard = hear(*many.engine);
            for (size_t i = 0; i < requests.size(); ++i) CHECK(heard.tokens[ids[i]] == alone[i]);
        }
    }
}

TEST_CASE(
    "states: a conversation goes on from the state behind what is known, and shortly before it differs") {
    for (const std::string_view model : {"qwen3_5", "lfm2"})
        for (const int32_t batch_tokens : {0, 24}) {
            INFO(model << " batch " << batch_tokens);
            EngineConfig without = config_for(1, batch_tokens);
            without.prefix_cache = false;
            LoadedEngine cached(config_for(1, batch_tokens), 2, models / model),
                fresh(without, 2, models / model);
            Request r = request(some_tokens(50), 8);
            for (int turn = 0; turn < 4; ++turn) {
                const Tokens expected = answer(*fresh.engine, r);
                int32_t prefilled = 0;
                CHECK(answer(*cached.engine, r, &prefilled) == expected);
                // The last token of an answer was never computed.
                if (turn > 0) CHECK(prefilled == 1 + 3);
                r.prompt.insert(r.prompt.end(), expected.begin(), expected.end());
                r.prompt.insert(r.prompt.end(), {5, 6, 7});
            }
            // Another end: a state was kept at the last whole page 16 tokens before that of the prompt.
            r.prompt = some_tokens(50, 30);
            CHECK(answer(*cached.engine, r) == answer(*fresh.engine, r));
            r.prompt.resize(42);
            r.prompt.insert(r.prompt.end(), {80, 81, 82});
            int32_t prefilled = 0;
            CHECK(answer(*cached.engine, r, &prefilled) == answer(*fresh.engine, r));
            CHECK(prefilled == 45 - (50 - 16) / 8 * 8);
        }
}

TEST_CASE("states: of a long prompt few are kept, and other texts' stay") {
    LoadedEngine l(config_for(1, 24), 2, models / "lfm2");
    EngineConfig without = config_for(1, 24);
    without.prefix_cache = false;
    LoadedEngine fresh(without, 2, models / "lfm2");
    const Request other = request(some_tokens(20, 9), 2), longer = request(some_tokens(100), 2);
    answer(*l.engine, other);
    answer(*l.engine, longer);  // in steps to 24, 48, 72, 80, 100
    const auto prefilled = [&](Tokens prompt) {
        const Request r = request(std::move(prompt), 2);
        int32_t n = 0;
        CHECK(answer(*l.engine, r, &n) == answer(*fresh.engine, r));
        return n;
    };
    Tokens again = other.prompt;
    again.push_back(4);
    CHECK(prefilled(again) == 1);
    for (const size_t same : {75, 70}) {
        Tokens part(longer.prompt.begin(), longer.prompt.begin() + static_cast<std::ptrdiff_t>(same));
        part.push_back(4);
        CHECK(prefilled(part) == static_cast<int32_t>(same) + 1 - (same == 75 ? 72 : 0));
    }
}

TEST_CASE("states: more texts than there is room for are computed again, and right") {
    EngineConfig without = config_for(2);
    without.prefix_cache = false;
    LoadedEngine cached(config_for(2), 2, models / "qwen3_5"), fresh(without, 2, models / "qwen3_5");
    for (int round = 0; round < 2; ++round)
        for (Token salt = 0; salt < 9; ++salt) {
            std::vector<RequestId> ids, others;
            for (const Token more : {0, 20}) {
                const Request r = request(some_tokens(45, salt + more), 6);
                ids.push_back(*cached.engine->submit(r));
                others.push_back(*fresh.engine->submit(r));
            }
            Heard got = hear(*cached.engine), expected = hear(*fresh.engine);
            for (size_t i = 0; i < ids.size(); ++i) CHECK(got.tokens[ids[i]] == expected.tokens[others[i]]);
        }
}

TEST_CASE("states: answers that are chosen among several have states of their own") {
    for (const std::string_view model : {"qwen3_5", "lfm2_moe"}) {
        INFO(model);
        LoadedEngine many(config_for(5), 2, models / model), one(config_for(), 2, models / model);
        Request r = request(some_tokens(30), 14, 10);
        r.decoding = {Decoding::Kind::best_of, 5};
        auto id = *many.engine->submit(r);
        std::vector<Alternative> found = hear(*many.engine).alternatives[id];
        REQUIRE(found.size() == 5);
        for (const Alternative& a : found) {
            Request alone = request(r.prompt, r.max_tokens, a.seed);
            CHECK(answer(*one.engine, alone) == a.tokens);
        }
        // Beams share states and part: each one's numbers are those of the model.
        r.decoding = {Decoding::Kind::beams, 4};
        id = *many.engine->submit(r);
        found = hear(*many.engine).alternatives[id];
        REQUIRE(found.size() == 4);
        for (const Alternative& a : found) {
            auto s = SingleSequence::load(models / model, Type::f16, cpu_backend(1), 128);
            REQUIRE(s);
            double sum = 0;
            Tokens fed = r.prompt;
            for (const Token t : a.tokens) {
                const auto logits = s->feed(fed);
                REQUIRE(logits);
                double top = -1e30, all = 0;
                const size_t n = one.engine->tokenizer().n_vocab();
                for (size_t i = 0; i < n; ++i) top = std::max(top, static_cast<double>((*logits)[i]));
                for (size_t i = 0; i < n; ++i) all += std::exp(static_cast<double>((*logits)[i]) - top);
                sum += static_cast<double>((*logits)[static_cast<size_t>(t)]) - top - std::log(all);
                fed = {t};
            }
            CHECK(a.logprob == doctest::Approx(sum).epsilon(1e-4));
        }
    }
}

TEST_CASE("states: a prefix travels to another engine with its state") {
    for (const std::string_view model : {"qwen3_5", "lfm2"}) {
        INFO(model);
        LoadedEngine from(config_for(), 2, models / model), to(config_for(), 2, models / model),
            fresh(config_for(), 2, models / model);
        Request r = request(some_tokens(45), 10);
        const Tokens first = answer(*from.engine, r);
        r.prompt.insert(r.prompt.end(), first.begin(), first.end());
        const auto prefix = from.engine->export_prefix(r.prompt);
        REQUIRE(prefix);
        CHECK(prefix->tokens.size() == r.prompt.size() - 1);  // the last one was never computed
        REQUIRE(to.engine->import_prefix(prefix->view()));
        int32_t prefilled = 0;
        const Tokens expected = answer(*fresh.engine, r);
        CHECK(answer(*to.engine, r, &prefilled) == expected);
        CHECK(prefilled == 1);
        CachedPrefix damaged = *prefix;
        damaged.pages.back().pop_back();
        CHECK(!LoadedEngine(config_for(), 1, models / model).engine->import_prefix(damaged.view()));
    }
}

TEST_CASE("states: layers on two devices, the forecast") {
    const auto a = cpu_backend(1), b = cpu_backend(2);
    Backend* const list[] = {a.get(), b.get()};
    Tokens expected;
    for (const std::vector<int32_t>& layers : {std::vector<int32_t>(4, 0), {0, 0, 1, 1}, {1, 0, 1, 0}}) {
        EngineConfig config = config_for();
        config.runner.placement = {layers, 0, layers.back()};
        auto e = Engine::load(models / "qwen3_5", config, list);
        REQUIRE_MESSAGE(e, (e ? "" : e.error().message()));
        const Tokens got = answer(*e, request(some_tokens(40)));
        if (expected.empty()) expected = got;
        CHECK(got == expected);
    }
    LoadedEngine l(config_for(), 2, models / "qwen3_5");
    const DeviceFootprint& d = l.engine->runner().memory().devices[0];
    CHECK(l.engine->runner().allocated_bytes() == d.cache + d.arena + d.inputs);
    const ModelSpec& spec = l.engine->spec();
    // Three layers: 108 channels with three inputs, six heads of 12 x 10.
    CHECK(state_bytes(spec) == 3 * 4 * (108 * 3 + 6 * 12 * 10));
    CHECK(d.cache ==
          128 * l.engine->runner().memory().kv_bytes_per_token + (1 + kept_states) * state_bytes(spec));
}

TEST_CASE("states: a wrong guess leads back to the state before it, and the texts are the same") {
    for (const std::string_view model : with_states)
        for (const int32_t batch_tokens : {0, 3, 7}) {
            INFO(model << " batch " << batch_tokens);
            // Three words by chance, one for ever, and what the model says.
            Request mixed = request({5, 6, 7, 5, 6}, 60), forced = mixed, free = request(some_tokens(20), 60);
            mixed.sampling.logit_bias = {{5, 100}, {6, 100}, {7, 100}};
            forced.sampling.logit_bias = {{7, 1000}};
            const std::vector<Request> requests = {mixed, forced, free, mixed, forced};
            LoadedEngine without(config_for(), 2, models / model);
            std::vector<Tokens> expected;
            for (const Request& r : requests) expected.push_back(answer(*without.engine, r));
            EngineConfig config = config_for(2, batch_tokens);
            config.draft_tokens = 9;
            LoadedEngine with(config, 2, models / model);
            for (int round = 0; round < 4; ++round) {  // more texts than there are states
                std::vector<RequestId> ids;
                for (const Request& r : requests) ids.push_back(*with.engine->submit(r));
                Heard heard = hear(*with.engine);
                for (size_t i = 0; i < requests.size(); ++i) CHECK(heard.tokens[ids[i]] == expected[i]);
                CHECK(heard.drafted > 0);
                CHECK(heard.decoded == 5 * 59);  // the first of each is the prompt's
            }
        }
}

// Rows that the model computes, as the backend sees them at the first state.
struct CountsRows : OverCpu {
    int64_t rows = 0;
    int32_t layer = -1;
    Result<void> run(std::span<BoundInstr> instrs, Observer* o) override {
        for (const BoundInstr& b : instrs) {
            if (b.instr->op != &causal_conv_op) continue;
            if (layer < 0) layer = b.instr->layer;
            if (b.instr->layer == layer) rows += b.out[0].rows;
        }
        return real->run(instrs, o);
    }
};

TEST_CASE("states: a guess that is wrong from its first token on makes nothing be computed again") {
    for (const std::string_view model : with_states) {
        INFO(model);
        CountsRows backend;
        Backend* const list[] = {&backend};
        EngineConfig config = config_for();
        config.draft_tokens = 1;  // right or wrong as a whole
        auto e = Engine::load(models / model, config, list);
        REQUIRE_MESSAGE(e, (e ? "" : e.error().message()));
        Request r = request({5, 6, 5, 6, 5}, 60);
        r.sampling.logit_bias = {{5, 100}, {6, 100}};
        REQUIRE(e->submit(r));
        const Heard heard = hear(*e);
        CHECK(heard.drafted > 10);
        // The prompt, each token but the last one, and of the guesses those that were wrong.
        const int64_t wrong = heard.drafted - heard.guessed;
        CHECK(wrong > 2);
        CHECK(backend.rows == 5 + 59 + wrong);
    }
}

TEST_CASE("states: many texts guess at once, each with a state to go back to") {
    EngineConfig config = config_for(8), plain = config;
    config.draft_tokens = 3;
    LoadedEngine with(config, 2, models / "lfm2"), without(plain, 2, models / "lfm2");
    CHECK(with.engine->runner().memory().n_states == 2 * 8 + kept_states);
    CHECK(without.engine->runner().memory().n_states == 8 + kept_states);
    for (int round = 0; round < 2; ++round) {
        std::vector<RequestId> ids, others;
        for (Token i = 0; i < 8; ++i) {
            Request r = request({5, 6, 7, 5, 6, i}, 50, static_cast<uint64_t>(i));
            r.sampling.logit_bias = {{5, 100}, {6, 100}};
            ids.push_back(*with.engine->submit(r));
            others.push_back(*without.engine->submit(r));
        }
        Heard got = hear(*with.engine), expected = hear(*without.engine);
        for (size_t i = 0; i < ids.size(); ++i) CHECK(got.tokens[ids[i]] == expected.tokens[others[i]]);
        CHECK(got.drafted > 100);
    }
}

TEST_CASE("states: one that goes back leaves beams their rows") {
    EngineConfig config = config_for(4, 4);
    config.draft_tokens = 12;
    LoadedEngine l(config, 2, models / "lfm2");
    for (int lead = 1; lead < 12; ++lead) {
        Request guessing = request({5, 6, 7, 5, 6}, 40), beams = request({20, lead, 22}, 8);
        guessing.sampling.logit_bias = {{5, 100}, {6, 100}, {7, 100}};
        beams.decoding = {Decoding::Kind::beams, 3};
        REQUIRE(l.engine->submit(guessing));
        for (int i = 0; i < lead; ++i) REQUIRE(l.engine->step());
        const auto id = *l.engine->submit(beams);
        CHECK(hear(*l.engine).alternatives[id].size() == 3);
    }
}

TEST_CASE("states: of prompts that grow, each goes on behind the one before it") {
    for (const size_t texts : {1, 3, 8}) {
        INFO(texts << " texts");
        EngineConfig config = config_for(static_cast<int32_t>(texts));
        config.prompts_grow = true;
        LoadedEngine l(config, 2, models / "lfm2");
        std::vector<Tokens> prompts;
        for (size_t i = 0; i < texts; ++i) prompts.push_back(some_tokens(60, static_cast<Token>(i)));
        for (int round = 0; round < 6; ++round)
            for (Tokens& prompt : prompts) {  // in turn, as texts ask a draft model
                int32_t prefilled = 0;
                answer(*l.engine, request(prompt, 4), &prefilled);
                if (round > 0) CHECK(prefilled == 2);
                prompt.insert(prompt.end(), {3 + round, 40 - round});
            }
    }
}

TEST_CASE("states: models that carry them guess for one another") {
    for (const std::string_view model : {"qwen3_5", "lfm2"}) {
        INFO(model);
        EngineConfig config = config_for();
        LoadedEngine without(config, 2, models / model);
        config.draft_tokens = 5;
        config.draft_model = models / model;  // the same: what is drawn by chance is guessed wrong at times
        LoadedEngine with(config, 2, models / model);
        for (const double temperature : {0.0, 0.7}) {
            Request r = request(some_tokens(40), 50);
            r.sampling.temperature = temperature;
            r.sampling.logit_bias = {{5, 30}, {6, 30}, {7, 29}, {8, 28}};
            const Tokens expected = answer(*without.engine, r);
            const auto id = *with.engine->submit(r);
            Heard heard = hear(*with.engine);
            CHECK(heard.tokens[id] == expected);
            CHECK(heard.drafted > 0);
        }
    }
}
