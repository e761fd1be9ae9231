// The parameter table: names, text to value and back, ranges, refusals, warnings.
// Loops over the table, so that a new row is tested without editing this file.
#include "src/sample/params.h"

#include <algorithm>
#include <set>

#include "ggml/base/cat.h"
#include "tests/sample/support.h"

using namespace nibble;
using nibble::testing::with;

TEST_CASE("every row has a usable name, help, default and range") {
    std::set<std::string> names;
    for (const Param& p : param_table()) {
        CAPTURE(p.key);
        CHECK(names.insert(std::string(p.key)).second);
        CHECK(p.flag.starts_with("--"));
        CHECK(!p.help.empty());
        CHECK(find_param(p.key) == &p);
        CHECK(find_param(p.flag) == &p);
        CHECK((p.link.empty() || std::ranges::count(chain_table::links, p.link, &Link::name) == 1));
        SamplerParams params;
        CHECK(set(params, p, default_text(p)).ok());
        CHECK(get(params, p) == default_text(p));
    }
    for (const Link& l : chain_table::links) {
        CAPTURE(l.name);
        CHECK(std::ranges::count(chain_table::params, l.name, &Param::link) >= 1);
        CHECK(l.make(nibble::testing::neutral()) == nullptr);
    }
    CHECK(validate(SamplerParams{}).ok());
    CHECK(SamplerParams{}.samplers == [] {
        std::string all;
        for (const Link& l : chain_table::links) all += cat(all.empty() ? "" : ",", l.name);
        return all;
    }());
}

TEST_CASE("numbers: the limits are allowed, nothing beyond, no nonsense") {
    for (const Param& p : param_table()) {
        CAPTURE(p.key);
        const bool real = std::holds_alternative<double SamplerParams::*>(p.field);
        const bool integer = std::holds_alternative<int32_t SamplerParams::*>(p.field);
        if (!real && !integer) continue;
        SamplerParams params;
        const std::string before = get(params, p);
        for (const char* nonsense : {"nan", "-nan", "inf", "-inf", "", " ", "abc", "1x", "0x10", "1e999",
                                     "--1", "1,5", "1 2", "true"}) {
            CAPTURE(nonsense);
            const auto r = set(params, p, nonsense);
            REQUIRE(!r);
            CHECK(r.error().code == ErrorCode::invalid_argument);
            CHECK(r.error().where == p.key);
            CHECK(r.error().fix.find("allowed: ") == 0);
        }
        CHECK(!set(params, p, cat(p.min - 1)));
        CHECK(!set(params, p, cat(p.max + 1)));
        if (integer) CHECK(!set(params, p, "1.5"));
        CHECK(get(params, p) == before);
        const auto text = [&](double v) { return integer ? cat(static_cast<int64_t>(v)) : cat(v); };
        CHECK(set(params, p, text(p.min)).ok());
        CHECK(set(params, p, text(p.max)).ok());
        CHECK(get(params, p) == text(p.max));
    }
}

TEST_CASE("messages say what is allowed") {
    SamplerParams p;
    CHECK(set(p, "top_p", "nan").error().message() ==
          "top_p: 'nan' is not allowed (allowed: a number from 0 to 1)");
    CHECK(set(p, "--top-k", "-3").error().message() ==
          "top_k: '-3' is not allowed (allowed: an integer from 0 to 1073741824)");
    CHECK(set(p, "mirostat", "1").error().message() == "mirostat: '1' is not allowed (allowed: 0 or 2)");
    CHECK(
        set(p, "topk", "3")
            .error()
            .message()
            .starts_with("topk: there is no such sampling parameter (known: temperature, dynatemp_range, "));
    CHECK(
        set(p, "samplers", "top_k,topp").error().message() ==
        "samplers: there is no sampler 'topp' (allowed: a list of penalties,dry,logit_bias,top_n_sigma,top_k,"
        "typical,top_p,min_p,xtc,temperature,mirostat)");
    CHECK(set(p, "samplers", "top_k,top_p,top_k").error().what == "'top_k' is listed twice");
}

TEST_CASE("names may be keys or flags") {
    SamplerParams p;
    CHECK(set(p, "temp", "0.5").ok());
    CHECK(p.temperature == 0.5);
    CHECK(set(p, "top-k", " 7 ").ok());
    CHECK(set(p, "--top_p", "+0.25").ok());
    CHECK(p.top_k == 7);
    CHECK(p.top_p == 0.25);
    CHECK(!find_param(""));
    CHECK(!find_param("--"));
}

TEST_CASE("seed, biases, breakers and order read back what they write") {
    SamplerParams p;
    const auto round_trip = [&](std::string_view name, std::string_view text) {
        CAPTURE(name);
        const auto r = set(p, name, text);
        REQUIRE(r.ok());
        CHECK(get(p, *find_param(name)) == text);
    };
    round_trip("seed", "18446744073709551615");
    CHECK(*p.seed == UINT64_MAX);
    round_trip("seed", "random");
    CHECK(!p.seed);
    round_trip("logit_bias", "15:-2.5,7:-inf,0:3");
    CHECK(p.logit_bias.size() == 3);
    round_trip("logit_bias", "");
    CHECK(p.logit_bias.empty());
    round_trip("dry_sequence_breakers", "\\n,:,\\,,\\\\,a b,\\t");
    CHECK(p.dry_sequence_breakers == std::vector<std::string>{"\n", ":", ",", "\\", "a b", "\t"});
    round_trip("dry_sequence_breakers", "");
    CHECK(p.dry_sequence_breakers.empty());
    round_trip("samplers", "temperature;top_k");
    for (const char* bad : {"15", "15:", ":1", "-1:1", "15:nan", "15:inf", "15:2000", "1:1,", "1:1,,2:1",
                            "a:1", "99999999999:1"}) {
        CAPTURE(bad);
        CHECK(!set(p, "logit_bias", bad));
    }
    for (const char* bad : {"-1", "1.5", "18446744073709551616", "", "rand"}) {
        CAPTURE(bad);
        CHECK(!set(p, "seed", bad));
    }
    for (const char* bad : {"a,", ",a", "a,,b", "\\", "\\x"}) {
        CAPTURE(bad);
        CHECK(!set(p, "dry_sequence_breakers", bad));
    }
}

TEST_CASE("a struct filled by hand is checked as well") {
    SamplerParams p;
    p.top_p = 1.5;
    REQUIRE(!validate(p));
    CHECK(validate(p).error().message() == "top_p: '1.5' is not allowed (allowed: a number from 0 to 1)");
    CHECK(!Chain::create(p, 10));
    p = {};
    p.temperature = std::nan("");
    CHECK(!validate(p));
    p = {};
    p.mirostat = 1;
    CHECK(!validate(p));
    p = {};
    p.samplers = "top_k,nonsense";
    CHECK(!validate(p));
    p = {};
    p.logit_bias = {{-1, 0.5}};
    CHECK(!validate(p));
}

TEST_CASE("settings that fight each other are reported, defaults never") {
    using Lines = std::vector<std::string>;
    const auto warn = [](std::vector<std::pair<std::string_view, std::string_view>> settings) {
        SamplerParams p;
        for (const auto& [key, value] : settings) REQUIRE(set(p, key, value).ok());
        return conflicts(p);
    };
    CHECK(warn({}) == Lines{});
    CHECK(warn({{"temp", "0"}}) == Lines{});
    CHECK(warn({{"temp", "0.5"}, {"top_k", "20"}, {"repeat_penalty", "1.1"}}) == Lines{});
    CHECK(warn({{"temp", "0"}, {"top_p", "0.9"}}) ==
          Lines{"top_p has no effect: temperature 0 always takes the best token"});
    CHECK(warn({{"mirostat", "2"}, {"top_k", "5"}}) ==
          Lines{"top_k has no effect: mirostat does the truncation"});
    CHECK(warn({{"mirostat_tau", "3"}}) == Lines{"mirostat_tau has no effect: mirostat is 0"});
    CHECK(warn({{"xtc_probability", "0.5"}, {"xtc_threshold", "0.6"}}) ==
          Lines{"xtc_probability has no effect: two tokens cannot both reach an xtc_threshold above 0.5"});
    CHECK(warn({{"xtc_threshold", "0.2"}}) == Lines{"xtc_threshold has no effect: xtc_probability is 0"});
    CHECK(warn({{"repeat_penalty", "1.2"}, {"repeat_last_n", "0"}}) ==
          Lines{"repeat_penalty has no effect: repeat_last_n is 0"});
    CHECK(warn({{"repeat_last_n", "10"}}) == Lines{"repeat_last_n has no effect: all penalties are off"});
    CHECK(warn({{"dry_base", "2"}}) == Lines{"dry_base has no effect: dry_multiplier is 0"});
    CHECK(warn({{"dry_multiplier", "1"}, {"dry_penalty_last_n", "0"}}) ==
          Lines{"dry_multiplier has no effect: dry_penalty_last_n is 0"});
    CHECK(warn({{"samplers", "temperature"}, {"top_k", "5"}}) ==
          Lines{"top_k has no effect: 'top_k' is not in samplers"});
    CHECK(warn({{"samplers", "mirostat,temperature"}, {"mirostat", "2"}}) ==
          Lines{"mirostat is not last in samplers: it misjudges what later links change"});
    CHECK(warn({{"top_k", "1"}, {"temp", "1.5"}}) ==
          Lines{"temperature has no effect: top_k 1 leaves only the best token"});
    CHECK(warn({{"dynatemp_range", "1"}}).size() == 1);
    CHECK(warn({{"repeat_penalty", "0.9"}}).size() == 1);
}
