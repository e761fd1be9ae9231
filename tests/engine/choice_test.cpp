// Best-of and beams through the engine on the bundled model: each answer is what it would be alone, and the
// best one really is, shown by enumerating all texts that a small grammar allows.
#include <algorithm>
#include <limits>
#include <map>

#include <doctest/doctest.h>

#include "tests/loaded_engine.h"

using namespace nibble;

namespace {

EngineConfig config_for(int32_t max_sequences, int32_t ctx, int32_t page_size, bool reuse) {
    EngineConfig config;
    config.runner.ctx = ctx;
    config.runner.max_sequences = max_sequences;
    config.runner.page_size = page_size;
    config.prefix_cache = reuse;
    return config;
}

struct Loaded : LoadedEngine {
    explicit Loaded(int32_t max_sequences, int32_t ctx = 256, int32_t page_size = 32, bool reuse = true)
        : LoadedEngine(config_for(max_sequences, ctx, page_size, reuse)) {}
};

Request request(const Engine& e, std::string_view text, int64_t n, Decoding d = {}) {
    Request r;
    r.prompt = e.tokenizer().encode(text);
    r.max_tokens = n;
    r.sampling.seed = 10;
    r.decoding = d;
    return r;
}

Decoding beams(int32_t width, double length_penalty = 1) {
    return {Decoding::Kind::beams, width, length_penalty};
}

struct Ended {
    std::vector<Alternative> alternatives;
    std::vector<Token> tokens;
    std::string text;
    double logprob = 0;  // of the tokens
    Finish finish = Finish::none;
    int events = 0;
};

std::map<RequestId, Ended> run_all(Engine& e, int32_t* prefilled = nullptr, int cancel_after = -1) {
    std::map<RequestId, Ended> ended;
    for (int step = 0; !e.idle(); ++step) {
        if (step == cancel_after)
            for (RequestId id = 0; id < 100; ++id) e.cancel(id);
        const auto report = e.step();
        REQUIRE_MESSAGE(report, (report ? "" : report.error().message()));
        if (prefilled) *prefilled += report->prefill_tokens;
        for (const Event& event : report->events) {
            Ended& a = ended[event.request];
            ++a.events;
            if (event.token >= 0) a.tokens.push_back(event.token), a.logprob += event.logprob;
            a.text += event.text;
            a.finish = event.finish;
            if (!event.alternatives.empty()) a.alternatives = event.alternatives;
        }
    }
    return ended;
}

Ended run_one(Engine& e, Request r, int cancel_after = -1) {
    const auto id = e.submit(std::move(r));
    REQUIRE_MESSAGE(id, (id ? "" : id.error().message()));
    return run_all(e, nullptr, cancel_after)[*id];
}

// Every complete text of at most `depth` tokens under the grammar, by asking for the model's opinion on each
// prefix alone.
void enumerate(Engine& e, const Request& base, const Matcher& matcher, const Alternative& so_far, int depth,
               std::vector<Alternative>& all) {
    Request r = base;
    r.prompt.insert(r.prompt.end(), so_far.tokens.begin(), so_far.tokens.end());
    r.max_tokens = 1;
    r.logprobs = static_cast<int32_t>(e.tokenizer().n_vocab());
    r.constraint = {};
    r.decoding = {};
    RequestId id = *e.submit(r);
    const auto report = e.step();
    REQUIRE(report);
    REQUIRE(report->events[0].request == id);
    for (const TokenLogprob& t : report->events[0].top) {
        Matcher next = matcher;
        if (!next.allows(t.token)) continue;
        REQUIRE(next.accept(t.token));
        Alternative longer = so_far;
        longer.tokens.push_back(t.token);
        longer.logprob += t.logprob;
        const bool ends = e.tokenizer().is_end_of_generation(t.token) || !next.may_continue();
        if (ends || depth == 1)
            all.push_back(longer);
        else
            enumerate(e, base, next, longer, depth - 1, all);
    }
}

// The best text of two tokens that a beam search of this width finds: the definition of beam_search.h, from
// the model's opinion on each prefix alone.
Alternative best_of_two(Engine& e, const Request& base, size_t width) {
    struct Text {
        Alternative answer;
        bool ended = false;
    };
    const auto extend = [&](const std::vector<Text>& beams) {
        std::vector<Text> all;
        for (const Text& beam : beams) {
            Request r = base;
            r.prompt.insert(r.prompt.end(), beam.answer.tokens.begin(), beam.answer.tokens.end());
            r.max_tokens = 1;
            r.logprobs = static_cast<int32_t>(e.tokenizer().n_vocab());
            r.decoding = {};
            REQUIRE(e.submit(r));
            const auto report = e.step();
            REQUIRE(report);
            for (const TokenLogprob& t : report->events[0].top) {
                Text longer = beam;
                longer.answer.tokens.push_back(t.token);
                longer.answer.logprob += t.logprob;
                longer.answer.text += e.tokenizer().piece(t.token);
                longer.ended = longer.answer.tokens.size() == 2 ||
                               e.tokenizer().is_end_of_generation(t.token) ||
                               std::ranges::any_of(r.stop, [&](const std::string& s) {
                                   return longer.answer.text.find(s) != std::string::npos;
                               });
                all.push_back(longer);
            }
        }
        std::ranges::stable_sort(all, std::greater(), [](const Text& t) { return t.answer.logprob; });
        return all;
    };
    std::vector<Text> beams(1), ended;
    for (int step = 0; step < 2; ++step) {
        const std::vector<Text> all = extend(beams);
        beams.clear();
        for (size_t rank = 0; rank < all.size() && beams.size() < width; ++rank)
            if (!all[rank].ended)
                beams.push_back(all[rank]);
            else if (rank < width)
                ended.push_back(all[rank]);
    }
    for (Text& t : ended) t.answer.score = answer_score(t.answer.logprob, t.answer.tokens.size(), 1);
    return std::ranges::max_element(ended, {}, [](const Text& t) { return t.answer.score; })->answer;
}

}  // namespace

TEST_CASE("beams: as many go on as were asked for, however many stop strings end") {
    Loaded l(4);
    Engine& e = *l.engine;
    for (const char* prompt : {"When the", "Once upon a", "The King said to his"}) {
        INFO(prompt);
        Request r = request(e, prompt, 2);
        r.logprobs = 40;
        REQUIRE(e.submit(r));
        const auto report = e.step();
        REQUIRE(report);
        // The likeliest beginnings all end an answer.
        for (const TokenLogprob& t : report->events[0].top) r.stop.push_back(e.tokenizer().piece(t.token));
        run_all(e);
        r.logprobs = -1;
        const Alternative expected = best_of_two(e, r, 4);
        r.decoding = beams(4);
        const Ended found = run_one(e, r);
        CHECK(found.alternatives[0].tokens == expected.tokens);
        CHECK(found.alternatives[0].score == doctest::Approx(expected.score).epsilon(1e-6));
    }
}

TEST_CASE("log-probabilities are the model's own, also where a constraint forbids what is likely") {
    Loaded l(1);
    Engine& e = *l.engine;
    Request r = request(e, "Once upon a time", 1);
    r.logprobs = static_cast<int32_t>(e.tokenizer().n_vocab());
    REQUIRE(e.submit(r));
    const auto top = e.step()->events.at(0).top;
    run_all(e);
    r.constraint = *e.constraint(*Grammar::from_regex("[xyz]{1,3}"));
    r.logprobs = 0;
    const Ended found = run_one(e, r);
    REQUIRE(found.tokens.size() == 1);
    const auto own = std::ranges::find(top, found.tokens[0], &TokenLogprob::token);
    REQUIRE(own != top.end());
    CHECK(found.logprob == doctest::Approx(own->logprob).epsilon(1e-9));
}

TEST_CASE("choices: an answer that keeps the constraint comes before likelier ones that were cut") {
    Loaded l(8);
    Engine& e = *l.engine;
    Request r = request(e, "Once upon a time", 3);
    r.constraint = *e.constraint(*Grammar::from_regex("(the )+man|x[.]"));
    r.sampling.logit_bias = {{*e.tokenizer().find("x"), 5}};  // scores are those without it
    for (const auto kind : {Decoding::Kind::best_of, Decoding::Kind::beams}) {
        INFO(static_cast<int>(kind));
        r.decoding = {kind, 8};
        const Ended found = run_one(e, r);
        const auto complete = [](const Alternative& a) { return a.finish == Finish::complete; };
        CHECK(complete(found.alternatives[0]));
        CHECK(!std::ranges::all_of(found.alternatives, complete));
        CHECK(std::ranges::is_partitioned(found.alternatives, complete));
    }
}

TEST_CASE("best-of: what is held back when nothing can follow is part of the answer") {
    Loaded l(2);
    Engine& e = *l.engine;
    Request r = request(e, "x", 20);
    r.constraint = *e.constraint(*Grammar::from_regex("qzx"));
    for (Token t = 0; t < static_cast<Token>(e.tokenizer().n_vocab()); ++t)
        if (e.tokenizer().piece(t).find('z') != std::string::npos)
            r.sampling.logit_bias.push_back({t, -std::numeric_limits<double>::infinity()});
    r.stop = {"qzx"};
    const Ended alone = run_one(e, r);
    CHECK(alone.finish == Finish::stuck);
    CHECK(alone.text == "q");
    r.decoding = {Decoding::Kind::best_of, 2};
    const Ended both = run_one(e, r);
    REQUIRE(both.alternatives.size() == 2);
    CHECK(both.alternatives[0].text == "q");
    CHECK(both.alternatives[1].text == "q");
}

TEST_CASE("beams: as wide as there are texts, the search finds the best of all, under every length penalty") {
    Loaded l(64);
    Engine& e = *l.engine;
    for (const char* regex : {"[ab]{1,3}", "(he|a)?( o)?s?"}) {
        INFO(regex);
        Request r = request(e, "Once upon a time", 4);
        r.constraint = *e.constraint(*Grammar::from_regex(regex));
        std::vector<Alternative> all;
        enumerate(e, r, Matcher(r.constraint), {}, 4, all);
        REQUIRE(all.size() > 10);
        REQUIRE(all.size() <= 64);
        for (const double penalty : {0.0, 0.7, 1.0, 3.0}) {
            INFO(penalty);
            for (Alternative& a : all) a.score = answer_score(a.logprob, a.tokens.size(), penalty);
            std::ranges::sort(all, std::greater(), &Alternative::score);
            r.decoding = beams(64, penalty);
            const Ended found = run_one(e, r);
            REQUIRE(found.alternatives.size() == all.size());
            CHECK(found.alternatives[0].tokens == all[0].tokens);
            CHECK(found.text == found.alternatives[0].text);
            for (size_t i = 0; i < all.size(); ++i)
                CHECK(found.alternatives[i].score == doctest::Approx(all[i].score).epsilon(1e-6));
        }
    }
}

TEST_CASE("beams: the numbers are those of the model, whatever pages were shared and copied on the way") {
    for (const int32_t page_size : {4, 32}) {
        INFO(page_size);
        Loaded l(6, 128, page_size);
        Engine& e = *l.engine;
        Request r = request(e, "The King said to his daughter,", 40, beams(6));
        r.ignore_eos = true;
        r.logprobs = 2;
        const Ended found = run_one(e, r);
        REQUIRE(found.alternatives.size() == 6);
        CHECK(found.finish == Finish::length);
        Loaded alone(1, 128, page_size, false);
        for (const Alternative& a : found.alternatives) {
            REQUIRE(a.tokens.size() == 40);
            REQUIRE(a.details.size() == 40);
            CHECK(a.text == e.tokenizer().decode(a.tokens));
            double sum = 0;
            Request prefix = request(e, "", 1);
            prefix.prompt = r.prompt;
            prefix.logprobs = static_cast<int32_t>(e.tokenizer().n_vocab());
            for (size_t i = 0; i < a.tokens.size(); ++i) {
                REQUIRE(alone.engine->submit(prefix));
                const auto top = alone.engine->step()->events.at(0).top;
                const auto t = std::ranges::find(top, a.tokens[i], &TokenLogprob::token);
                REQUIRE(t != top.end());
                CHECK(a.details[i].logprob == doctest::Approx(t->logprob).epsilon(1e-9));
                CHECK(a.details[i].top.size() == 2);
                sum += t->logprob;
                prefix.prompt.push_back(a.tokens[i]);
            }
            CHECK(a.logprob == doctest::Approx(sum).epsilon(1e-9));
            CHECK(a.score == doctest::Approx(sum / 40).epsilon(1e-9));
        }
        for (size_t i = 1; i < 6; ++i) CHECK(found.alternatives[i - 1].score >= found.alternatives[i].score);
    }
}

TEST_CASE("beams: one beam is the greedy text, with its end") {
    Loaded l(2, 128);
    Engine& e = *l.engine;
    for (const char* stop : {"", "and"}) {
        Request r = request(e, "Tell me a story.", 60);
        r.sampling.temperature = 0;
        if (*stop) r.stop = {stop};
        const Ended greedy = run_one(e, r);
        r.decoding = beams(1);
        const Ended one = run_one(e, r);
        CHECK(one.text == greedy.text);
        CHECK(one.finish == greedy.finish);
        CHECK(one.alternatives[0].tokens == greedy.tokens);
    }
}

TEST_CASE(
    "best-of: each answer is what its seed gives alone, the prompt is computed once, the best comes first") {
    Loaded many(5), single(1);
    for (const int64_t n : {1, 30}) {
        Request r = request(*many.engine, "The old woman went into the wood to gather sticks, and", n,
                            {Decoding::Kind::best_of, 5});
        const RequestId id = *many.engine->submit(r);
        int32_t prefilled = 0;
        Ended best = run_all(*many.engine, &prefilled)[id];
        if (n == 1) CHECK(prefilled == static_cast<int32_t>(r.prompt.size()));
        CHECK(best.events == 2);
        REQUIRE(best.alternatives.size() == 5);
        std::vector<double> scores;
        r.decoding = {};
        r.logprobs = 0;
        for (const Alternative& a : best.alternatives) {
            r.sampling.seed = a.seed;
            const Ended alone = run_one(*single.engine, r);
            CHECK(alone.tokens == a.tokens);
            CHECK(alone.text == a.text);
            CHECK(alone.finish == a.finish);
            CHECK(alone.logprob == doctest::Approx(a.logprob).epsilon(1e-9));
            scores.push_back(alone.logprob / static_cast<double>(alone.tokens.size()));
        }
        CHECK(std::ranges::is_sorted(scores, std::greater()));
        CHECK(best.text == best.alternatives[0].text);
        std::ranges::sort(best.alternatives, {}, &Alternative::seed);
        for (size_t i = 0; i < 5; ++i) CHECK(best.alternatives[i].seed == 10 + i);
    }
}

TEST_CASE("choices among other requests: each gets what it gets alone, and waits for room") {
    Loaded l(4, 128);
    Engine& e = *l.engine;
    const std::vector<Request> requests = {request(e, "A fox", 20), request(e, "The King", 20, beams(3)),
                                           request(e, "A goose", 20, {Decoding::Kind::best_of, 4}),
                                           request(e, "The sea", 20, beams(2)), request(e, "Why", 20)};
    std::vector<Ended> alone;
    for (const Request& r : requests) alone.push_back(run_one(e, r));
    std::vector<RequestId> ids;
    for (const Request& r : requests) ids.push_back(*e.submit(r));
    auto together = run_all(e);
    for (size_t i = 0; i < requests.size(); ++i) {
        INFO(i);
        CHECK(together[ids[i]].text == alone[i].text);
        CHECK(together[ids[i]].finish == alone[i].finish);
        REQUIRE(together[ids[i]].alternatives.size() == alone[i].alternatives.size());
        for (size_t k = 0; k < alone[i].alternatives.size(); ++k)
            CHECK(together[ids[i]].alternatives[k].tokens == alone[i].alternatives[k].tokens);
    }
}

TEST_CASE("choices: a full context, cancelling, no tokens at all, and what is refused") {
    Loaded l(4, 40);
    Engine& e = *l.engine;
    for (const Decoding d : {beams(4), Decoding{Decoding::Kind::best_of, 4}}) {
        Request r = request(e, "Once upon a time", -1, d);
        r.ignore_eos = true;
        const Ended full = run_one(e, r);
        CHECK(full.finish == Finish::context);
        CHECK(full.alternatives.size() == 4);
        CHECK(full.alternatives[0].tokens.size() + r.prompt.size() == 40);
        const Ended cut = run_one(e, r, 7);
        CHECK(cut.finish == Finish::cancelled);
        REQUIRE(cut.alternatives.size() == 4);
        CHECK(cut.alternatives[0].tokens.size() == 7);
        CHECK(!cut.text.empty());
        CHECK(run_one(e, r, 0).finish == Finish::cancelled);
        r.max_tokens = 0;
        CHECK(run_one(e, r).finish == Finish::length);
    }
    CHECK(e.submit(request(e, "x", 1, beams(5))).error().what.find("at most 4") != std::string::npos);
    CHECK(!e.submit(request(e, "x", 1, beams(0))));
    CHECK(!e.submit(request(e, "x", 1, beams(2, -1))));
    CHECK(!e.submit(request(e, "x", 1, {Decoding::Kind::best_of, 5})));
}
