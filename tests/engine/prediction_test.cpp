// Guesses by the layer behind a model's others that predicts further ahead, and by assistants that attend to
// a model's keys and values: the same texts, in fewer steps. On tiny checkpoints, of which those of tales
// have learned to predict what their model says.
#include <cstring>
#include <fstream>
#include <map>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/loaded_engine.h"

using namespace nibble;

namespace {

const std::filesystem::path models = std::filesystem::path(NIBBLE_SOURCE_DIR) / "tests/golden/models";
constexpr std::string_view with_predictor[] = {"qwen3_5",    "qwen3_5_moe", "qwen3_5_tales",
                                               "qwen3_next", "glm4_moe",    "deepseek_v3"};
constexpr std::string_view with_assistant[] = {"gemma4", "gemma4_dense", "gemma4_tales"};
constexpr std::string_view with_guest[] = {"muse_glimmer", "qwen3_tales"};
constexpr std::string_view learned[] = {"qwen3_5_tales", "gemma4_tales", "qwen3_tales"};

std::vector<std::string_view> all_models() {
    std::vector<std::string_view> all(std::begin(with_predictor), std::end(with_predictor));
    all.insert(all.end(), std::begin(with_assistant), std::end(with_assistant));
    all.insert(all.end(), std::begin(with_guest), std::end(with_guest));
    return all;
}

using Tokens = std::vector<Token>;

EngineConfig config_for(int32_t sequences = 1, int32_t batch_tokens = 0, int32_t draft_tokens = 3) {
    EngineConfig config;
    config.runner.ctx = 128;
    config.runner.page_size = 8;
    config.runner.max_sequences = sequences;
    config.runner.batch_tokens = batch_tokens;
    config.draft_tokens = draft_tokens;
    config.least_likely = 0.02;
    return config;
}

// The same with the model's assistant, if it has one.
EngineConfig with_help(std::string_view model, EngineConfig config) {
    const std::filesystem::path assistant = models / model / "assistant";
    if (std::filesystem::exists(assistant)) config.draft_model = assistant;
    return config;
}

Request request(Tokens prompt, int64_t n, double temperature, uint64_t seed = 1) {
    Request r;
    r.prompt = std::move(prompt);
    r.max_tokens = n;
    r.ignore_eos = true;
    r.sampling.temperature = temperature;
    r.sampling.seed = seed;
    return r;
}

Tokens some_tokens(size_t n, Token salt = 0) {
    Tokens t(n);
    for (size_t i = 0; i < n; ++i) t[i] = static_cast<Token>((i * 2654435761u + 17) % 90 + 7 * salt) % 90 + 3;
    return t;
}

struct Heard {
    std::map<RequestId, Tokens> tokens;
    int32_t steps = 0, drafted = 0, guessed = 0;
};

Heard hear(Engine& e) {
    Heard heard;
    while (!e.idle()) {
        const auto report = e.step();
        REQUIRE_MESSAGE(report, (report ? "" : report.error().message()));
        ++heard.steps;
        heard.drafted += report->drafted_tokens;
        for (const Event& event : report->events) {
            if (event.token >= 0) heard.tokens[event.request].push_back(event.token);
            heard.guessed += event.guessed ? 1 : 0;
        }
    }
    return heard;
}

Tokens answer(Engine& e, const Request& r) {
    const auto id = e.submit(r);
    REQUIRE_MESSAGE(id, (id ? "" : id.error().message()));
    return hear(e).tokens[*id];
}

}  // namespace

TEST_CASE("predictions change what steps there are, not what is said") {
    for (const std::string_view model : all_models()) {
        EngineConfig plain = config_for();
        plain.draft_tokens = 0;
        LoadedEngine without(with_help(model, plain), 2, models / model);
        CHECK(without.engine->runner().predictor() == nullptr);
        std::vector<Request> requests;
        for (const double temperature : {0.0, 0.5, 1.0})
            for (const size_t length : {1, 30, 60})
                requests.push_back(request(some_tokens(length, static_cast<Token>(length)), 40, temperature));
        requests[3].sampling.repeat_penalty = 1.3;
        requests[4].sampling.mirostat = 2;
        std::vector<Tokens> expected;
        for (const Request& r : requests) expected.push_back(answer(*without.engine, r));
        for (const int32_t sequences : {1, 3})
            for (const int32_t batch_tokens : {3, 16, 128})
                for (const int32_t draft_tokens : {1, 4, 12}) {
                    INFO(model << " sequences " << sequences << " batch " << batch_tokens << " draft "
                               << draft_tokens);
                    LoadedEngine with(with_help(model, config_for(sequences, batch_tokens, draft_tokens)), 2,
                                      models / model);
                    std::vector<RequestId> ids;
                    for (const Request& r : requests) ids.push_back(*with.engine->submit(r));
                    Heard heard = hear(*with.engine);
                    for (size_t i = 0; i < ids.size(); ++i) CHECK(heard.tokens[ids[i]] == expected[i]);
                    CHECK(heard.drafted > 0);
                    if (model.ends_with("tales") && batch_tokens > 3) CHECK(heard.guessed > 40);
                }
    }
}

TEST_CASE("predictions: what a predictor has learned comes true, at any temperature") {
    struct Wanted {
        double temperature;
        int32_t guessed;
    };
    for (const std::string_view model : learned)
        for (const Wanted w : {Wanted{0, 480}, Wanted{0.3, 400}, Wanted{1, 250}}) {
            LoadedEngine l(with_help(model, config_for()), 2, models / model);
            Heard all;
            for (Token salt = 0; salt < 20; ++salt) {
                REQUIRE(l.engine->submit(request(some_tokens(12, salt), 60, w.temperature, 7 + salt)));
                const Heard heard = hear(*l.engine);
                all.drafted += heard.drafted, all.guessed += heard.guessed, all.steps += heard.steps;
            }
            CHECK(all.guessed > w.guessed);
            CHECK(all.steps == 1200 - all.guessed);
            MESSAGE(model << " at temperature " << w.temperature << ": " << all.guessed << " of "
                          << all.drafted << " guesses right, " << all.steps << " steps for 1200 tokens");
        }
}

TEST_CASE("predictions of several texts at once are those of each alone") {
    const auto drafted = [](std::string_view model, int32_t sequences) {
        LoadedEngine l(with_help(model, config_for(sequences)), 2, models / model);
        for (Token salt = 0; salt < 4; ++salt) REQUIRE(l.engine->submit(request(some_tokens(12), 60, 0)));
        const Heard heard = hear(*l.engine);
        return std::pair(heard.drafted, heard.guessed);
    };
    for (const std::string_view model : learned) CHECK(drafted(model, 4) == drafted(model, 1));
}

TEST_CASE("predictions behind what is known already, and in a session's keys and values") {
    for (const std::string_view model :
         {"qwen3_5_tales", "glm4_moe", "gemma4_tales", "muse_glimmer", "qwen3_tales"}) {
        INFO(model);
        EngineConfig plain = config_for();
        plain.draft_tokens = 0;
        LoadedEngine without(plain, 2, models / model),
            with(with_help(model, config_for()), 2, models / model),
            other(with_help(model, config_for()), 2, models / model);
        Request r = request(some_tokens(40), 20, 0);
        // Pages may hold the predictor's keys and values, too: another engine cannot take them for its own.
        const bool own_pages = with.engine->runner().predictor()->reads_all();
        for (int turn = 0; turn < 3; ++turn) {
            const Tokens expected = answer(*without.engine, r);
            CHECK(answer(*with.engine, r) == expected);
            const auto prefix = with.engine->export_prefix(r.prompt);
            REQUIRE(prefix);
            CHECK(prefix->tokens.size() > 20);
            REQUIRE(other.engine->import_prefix(prefix->view()));
            CHECK(answer(*other.engine, r) == expected);
            CHECK(bool(without.engine->import_prefix(prefix->view())) == !own_pages);
            r.prompt.insert(r.prompt.end(), expected.begin(), expected.begin() + 10);
        }
        CHECK((with.engine->runner().fingerprint() != without.engine->runner().fingerprint()) == own_pages);
    }
}

TEST_CASE("predictions: what the forecast says is allocated, and more than without") {
    for (const std::string_view model : all_models()) {
        INFO(model);
        EngineConfig plain = config_for();
        plain.draft_tokens = 0;
        LoadedEngine with(with_help(model, config_for(2)), 2, models / model),
            without(plain, 2, models / model);
        const MemoryForecast &m = with.engine->runner().memory(), &less = without.engine->runner().memory();
        const DeviceFootprint& d = m.devices[0];
        CHECK(with.engine->runner().allocated_bytes() == d.cache + d.arena + d.inputs);
        CHECK(m.predictor_bytes > 0);
        CHECK(less.predictor_bytes == 0);
        if (with.engine->runner().predictor()->reads_all())
            CHECK(m.kv_bytes_per_token > less.kv_bytes_per_token);
        else
            CHECK(m.kv_bytes_per_token == less.kv_bytes_per_token);
        CHECK(m.kv_bytes_read_per_token == less.kv_bytes_read_per_token);
        CHECK(d.weights > less.devices[0].weights);
    }
}

TEST_CASE("predictions: one that fails costs its guesses, not the answer") {
    // From some run of the predictor on, everything it does fails.
    struct Fails : OverCpu {
        int left = 5;
        Result<void> run(std::span<BoundInstr> instrs, Observer* o) override {
            const bool ours = std::ranges::any_of(instrs, [](const BoundInstr& b) {
                const std::string_view label = b.instr->label;
                return label.ends_with("nextn.eh_proj") || label.ends_with("nextn.pre_projection") ||
                       label == "fc";
            });
            if (ours && left-- <= 0) return Error{ErrorCode::internal, "test", "fails", ""};
            return real->run(instrs, o);
        }
    };
    for (const std::string_view model : learned) {
        EngineConfig plain = config_for();
        plain.draft_tokens = 0;
        LoadedEngine without(plain, 2, models / model);
        Fails backend;
        Backend* const list[] = {&backend};
        auto with = Engine::load(models / model, with_help(model, config_for()), list);
        REQUIRE(with);
        const Request r = request(some_tokens(12), 60, 0.7);
        CHECK(answer(*with, r) == answer(*without.engine, r));
        CHECK(backend.left < 0);
    }
}

TEST_CASE("predictions: layers on two devices, quantized caches, an untold state of the memory") {
    struct Poison : OverCpu {
        Result<Buffer> allocate(size_t bytes, std::string_view purpose) override {
            auto b = real->allocate(bytes, purpose);
            if (b) std::memset(b->data.get(), 0xFF, bytes);
            return b;
        }
    };
    for (const std::string_view model : all_models())
        for (const Type type : {Type::f16, Type::q8_0}) {
            if (type == Type::q8_0 && model != "qwen3_5_moe" && model != "gemma4_dense") continue;
            INFO(model);
            const Request r = request(some_tokens(30), 40, 0.6);
            EngineConfig plain = config_for();
            plain.draft_tokens = 0;
            LoadedEngine without(plain, 2, models / model);
            Poison first, second;
            Backend* const list[] = {&first, &second};
            EngineConfig config = with_help(model, config_for());
            // The layers that an assistant attends to are on one device, as those that others share have to
            // be.
            config.runner.gpu_layers = model == "gemma4" ? 5 : 2;
            if (model == "gemma4_tales") config.runner.gpu_layers = 0;
            auto with = Engine::load(models / model, config, list);
            REQUIRE_MESSAGE(with, (with ? "" : with.error().message()));
            CHECK(answer(*with, r) == answer(*without.engine, r));
        }
}

TEST_CASE(
    "guests: windows of their own, of models that carry states or share keys, read up to the last layer") {
    struct Visit {
        std::string_view model, guest;
        std::vector<int> sources;
        int window;  // 19 is that of other layers of Muse Glimmer, too
    };
    const auto scratch = std::filesystem::temp_directory_path() / "nibble_guest_test";
    for (const Visit& v :
         {Visit{"muse_glimmer", "muse_glimmer", {0, 2, 4}, 19},
          Visit{"muse_glimmer", "muse_glimmer", {3, 4, 1}, 12},
          Visit{"qwen3_tales", "qwen3_tales", {2, 0}, 12}, Visit{"qwen3_5_tales", "qwen3_tales", {0, 1}, 16},
          Visit{"gemma4", "muse_glimmer", {1, 2, 4}, 24}, Visit{"gemma4", "muse_glimmer", {5, 0, 3}, 18}}) {
        INFO(v.model << " window " << v.window);
        std::filesystem::remove_all(scratch);
        std::filesystem::copy(models / v.guest / "assistant", scratch);
        std::filesystem::permissions(scratch / "config.json", std::filesystem::perms::owner_all);
        auto config = nlohmann::json::parse(std::ifstream(scratch / "config.json"));
        config["sliding_window"] = v.window;
        config["use_sliding_window"] = true;
        config["layer_types"] = {"sliding_attention", "full_attention"};
        (config.contains("dflash_config") ? config["dflash_config"] : config)["target_layer_ids"] = v.sources;
        std::ofstream(scratch / "config.json") << config.dump();
        EngineConfig plain = config_for();
        plain.draft_tokens = 0;
        LoadedEngine without(plain, 2, models / v.model);
        int32_t drafted = 0;
        for (const int32_t batch_tokens : {7, 128}) {
            EngineConfig guessing = config_for(2, batch_tokens);
            guessing.draft_model = scratch;
            LoadedEngine with(guessing, 2, models / v.model);
            for (Token salt = 0; salt < 3; ++salt) {
                const Request r = request(some_tokens(50, salt), 60, 0.4, salt);
                const Tokens expected = answer(*without.engine, r);
                CHECK(answer(*with.engine, r) == expected);
                const auto id = with.engine->submit(r);  // behind what is known
                REQUIRE(id);
                Heard again = hear(*with.engine);
                CHECK(again.tokens[*id] == expected);
                drafted += again.drafted;
            }
        }
        CHECK(drafted > 0);
    }
    std::filesystem::remove_all(scratch);
}

TEST_CASE("assistants: what they cannot help with is refused") {
    LoadedEngine any(config_for(), 1, models / "gemma4");
    Backend* const list[] = {any.backend.get()};
    const auto refused = [&](std::string_view model, const std::filesystem::path& assistant) {
        EngineConfig config = config_for();
        config.draft_model = models / assistant;
        const auto e = Engine::load(models / model, config, list);
        REQUIRE(!e);
        return e.error().message();
    };
    const auto says = [](const std::string& message, std::string_view what) {
        INFO(message);
        CHECK(message.find(what) != std::string::npos);
    };
    says(refused("gemma4_tales", "gemma4/assistant"), "200 tokens, the model 100");
    says(refused("gemma4_dense", "gemma4/assistant"), "cannot attend to the keys");
    says(refused("gemma4/assistant", "gemma4/assistant"), "says nothing by itself");
    says(refused("qwen3", "muse_glimmer/assistant"), "reads what a layer 3 says, this model has 3");
    says(refused("gemma4_tales/assistant", "qwen3_tales/assistant"), "says nothing by itself");
    says(refused("qwen3_tales/assistant", "qwen3_tales/assistant"), "says nothing by itself");
    const auto second = cpu_backend(1);
    Backend* const two[] = {any.backend.get(), second.get()};
    EngineConfig split = with_help("gemma4_tales", config_for());
    split.runner.gpu_layers = 1;
    const auto apart = Engine::load(models / "gemma4_tales", split, two);
    REQUIRE(!apart);
    says(apart.error().message(), "layers on two devices");
    // Nothing of it is read where nothing is guessed.
    EngineConfig config = config_for(1, 0, 0);
    config.draft_model = models / "nowhere";
    CHECK(Engine::load(models / "gemma4", config, list));
}

TEST_CASE("predictions: nothing is read that was not written, behind prefixes of all kinds") {
    struct Filled : OverCpu {
        int byte = 0;
        explicit Filled(int value) : byte(value) {}
        Result<Buffer> allocate(size_t bytes, std::string_view purpose) override {
            auto b = real->allocate(bytes, purpose);
            if (b) std::memset(b->data.get(), byte, bytes);
            return b;
        }
    };
    const auto drafted = [](int byte) {
        Filled backend(byte);
        Backend* const list[] = {&backend};
        auto e = Engine::load(models / "qwen3_5_tales", config_for(2, 16), list);
        REQUIRE(e);
        std::vector<int32_t> counts;
        for (Token salt = 0; salt < 8; ++salt) {
            Request r = request(some_tokens(40, salt), salt % 4 == 3 ? 0 : 20, 0.5);
            for (int turn = 0; turn < 3; ++turn) {
                const Tokens said = answer(*e, r);
                r.prompt.insert(r.prompt.end(), said.begin(), said.end());
                r.prompt.insert(r.prompt.end(), {70, 71, 72 + turn});
                r.max_tokens = 10;
                // One that shares its beginning, and is cancelled.
                Request other = r;
                other.prompt.insert(other.prompt.end(), {5, 6});
                other.max_tokens = 20;
                const auto id = *e->submit(other);
                for (int i = 0; i < 6 && !e->idle(); ++i) REQUIRE(e->step());
                e->cancel(id);
                const Heard heard = hear(*e);
                counts.push_back(heard.drafted);
                const auto again = e->submit(r);
                REQUIRE(again);
                const Heard rest = hear(*e);
                counts.push_back(rest.drafted), counts.push_back(rest.guessed);
            }
        }
        return counts;
    };
    const auto clean = drafted(0);
    CHECK(clean == drafted(0xFF));
    CHECK(std::ranges::count(clean, 0) < 30);
}
