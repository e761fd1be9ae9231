// Constrained requests through the engine on the bundled model: valid output, the best allowed token, free
// and constrained requests in one batch.
#include <map>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "src/text/pattern.h"
#include "tests/loaded_engine.h"

using namespace nibble;

namespace {

EngineConfig config_for(int32_t max_sequences) {
    EngineConfig config;
    config.runner.ctx = 512;
    config.runner.max_sequences = max_sequences;
    return config;
}

struct Loaded : LoadedEngine {
    explicit Loaded(int32_t max_sequences = 1) : LoadedEngine(config_for(max_sequences)) {}
    std::shared_ptr<Constraint> constraint(Result<Grammar> g) {
        REQUIRE_MESSAGE(g, (g ? "" : g.error().message()));
        auto c = engine->constraint(std::move(*g));
        REQUIRE_MESSAGE(c, (c ? "" : c.error().message()));
        return *c;
    }
};

struct Answer {
    std::vector<Token> tokens;
    std::string text;
    Finish finish = Finish::none;
    bool operator==(const Answer&) const = default;
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

Request request(const Engine& e, std::shared_ptr<Constraint> constraint, uint64_t seed,
                double temperature = 0.8) {
    Request r;
    r.prompt = e.tokenizer().encode("Once upon a time");
    r.max_tokens = 400;
    r.sampling.seed = seed;
    r.sampling.temperature = temperature;
    r.constraint = std::move(constraint);
    return r;
}

constexpr std::string_view schema =
    R"({"type":"object","properties":{"name":{"type":"string","maxLength":20},"age":{"type":"integer","minimum":0,"maximum":130},"friends":{"type":"array","items":{"enum":["fox","crow","king"]},"maxItems":3},"kind":{"anyOf":[{"type":"boolean"},{"type":"null"}]}},"required":["name","age","friends"],"additionalProperties":false})";

void check_person(const std::string& text) {
    INFO(text);
    const auto v = nlohmann::json::parse(text, nullptr, false);
    REQUIRE(v.is_object());
    CHECK(v.at("name").is_string());
    REQUIRE(v.at("age").is_number_integer());
    CHECK((v.at("age") >= 0 && v.at("age") <= 130));
    REQUIRE(v.at("friends").is_array());
    CHECK(v.at("friends").size() <= 3);
    for (const auto& f : v.at("friends")) CHECK((f == "fox" || f == "crow" || f == "king"));
    CHECK(v.size() == (v.contains("kind") ? 4 : 3));
}

}  // namespace

TEST_CASE("answers after a schema are valid, whatever the seed and temperature") {
    Loaded l;
    const auto c = l.constraint(Grammar::from_json_schema(schema));
    for (uint64_t seed = 0; seed < 30; ++seed) {
        const double temperature = seed % 3 == 0 ? 0.0 : seed % 3 == 1 ? 0.8 : 1.5;
        REQUIRE(l.engine->submit(request(*l.engine, c, seed, temperature)));
        const Answer a = run_all(*l.engine).begin()->second;
        REQUIRE((a.finish == Finish::complete || a.finish == Finish::eos));
        check_person(a.text);
    }
    CHECK(c->counters().masks_reused > c->counters().masks_made / 4);
}

TEST_CASE("answers after a regular expression match it in PCRE2") {
    Loaded l;
    for (const char* regex :
         {"[A-Z][a-z]{2,8}, (the|a) (fox|king)\\.", "\\d{3}-\\d{4}", "(\\w+ ){3}end", "[^a-z]{5,9}"}) {
        INFO(regex);
        const auto c = l.constraint(Grammar::from_regex(regex));
        const auto pattern = Pattern::create("^(?:" + std::string(regex) + ")$");
        REQUIRE(pattern);
        for (uint64_t seed = 0; seed < 8; ++seed) {
            REQUIRE(l.engine->submit(request(*l.engine, c, seed)));
            const Answer a = run_all(*l.engine).begin()->second;
            INFO(a.text);
            if (a.finish == Finish::length) continue;  // \w+ may go on
            CHECK((a.finish == Finish::complete || a.finish == Finish::eos));
            CHECK(pattern->matches(a.text));
        }
    }
}

TEST_CASE("a constraint that allows everything changes nothing; greedy takes the best allowed token") {
    Loaded l;
    const auto all = l.constraint(Grammar::from_gbnf("root ::= .*"));
    const auto answer = [&](std::shared_ptr<Constraint> c, double temperature) {
        Request r = request(*l.engine, std::move(c), 5, temperature);
        r.max_tokens = 40;
        REQUIRE(l.engine->submit(std::move(r)));
        return run_all(*l.engine).begin()->second;
    };
    CHECK(answer(all, 0.9) == answer(nullptr, 0.9));
    // Greedy without the letter e: compared with forbidding its tokens by bias.
    const auto no_e = l.constraint(Grammar::from_gbnf("root ::= [^eE]*"));
    Request biased = request(*l.engine, nullptr, 5, 0);
    biased.max_tokens = 40;
    const Tokenizer& t = l.engine->tokenizer();
    for (size_t i = 0; i < t.n_vocab(); ++i) {
        const auto id = static_cast<Token>(i);
        const bool control = t.is_control(id) && !t.is_end_of_generation(id);
        if (control || (!t.is_end_of_generation(id) && t.piece(id).find_first_of("eE") != std::string::npos))
            biased.sampling.logit_bias.push_back({id, -INFINITY});
    }
    REQUIRE(l.engine->submit(std::move(biased)));
    const Answer expected = run_all(*l.engine).begin()->second;
    const Answer got = answer(no_e, 0);
    CHECK(got.text.find('e') == std::string::npos);
    CHECK(got.tokens == expected.tokens);
}

TEST_CASE("free and constrained requests in one batch give what each gives alone") {
    std::vector<Answer> alone;
    for (const bool batched : {false, true}) {
        Loaded l(batched ? 4 : 1);
        const auto person = l.constraint(Grammar::from_json_schema(schema));
        const auto number = l.constraint(Grammar::from_regex("\\d{1,9}"));
        const std::shared_ptr<Constraint> constraints[] = {person, nullptr, person, number};
        std::vector<RequestId> ids;
        std::vector<Answer> answers;
        for (uint64_t i = 0; i < 4; ++i) {
            Request r = request(*l.engine, constraints[i], i);
            r.max_tokens = constraints[i] ? 400 : 60;
            ids.push_back(*l.engine->submit(std::move(r)));
            if (!batched) answers.push_back(run_all(*l.engine)[ids.back()]);
        }
        if (batched) {
            auto all = run_all(*l.engine);
            for (const RequestId id : ids) answers.push_back(all[id]);
            CHECK(answers == alone);
        }
        alone = answers;
        check_person(answers[0].text);
        check_person(answers[2].text);
    }
}

TEST_CASE("a constraint runs into a missing token: that request ends, the others go on") {
    Loaded l(2);
    const auto c = l.constraint(Grammar::from_gbnf("root ::= \"a\" \"\\U0010FFFD\""));
    Request r = request(*l.engine, c, 1);
    // Every token that could go on is excluded by bias.
    const Tokenizer& t = l.engine->tokenizer();
    for (size_t i = 0; i < t.n_vocab(); ++i)
        if (t.piece(static_cast<Token>(i)).starts_with('\xF4'))
            r.sampling.logit_bias.push_back({static_cast<Token>(i), -INFINITY});
    const RequestId stuck = *l.engine->submit(std::move(r));
    Request free = request(*l.engine, nullptr, 1);
    free.max_tokens = 20;
    free.ignore_eos = true;
    const RequestId other = *l.engine->submit(std::move(free));
    auto answers = run_all(*l.engine);
    CHECK(answers[stuck].finish == Finish::stuck);
    CHECK(answers[stuck].text == "a");
    CHECK(answers[other].tokens.size() == 20);
}
