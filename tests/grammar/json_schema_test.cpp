// JSON schemas: fixed texts accepted and refused, random schemas whose random texts are validated by an
// independent validator, keywords that are refused.
#include "ggml/base/cat.h"
#include "tests/grammar/support.h"
#include "tests/grammar/validator.h"

using namespace nibble;
using namespace nibble::grammar_test;

namespace {

struct Case {
    std::string schema;
    std::vector<std::string> accepted, refused;
};

void check(const Case& c) {
    INFO(c.schema);
    Recognizer r(Grammar::from_json_schema(c.schema));
    for (const std::string& text : c.accepted) {
        INFO("text: " << text);
        CHECK(r.accepts(text));
    }
    for (const std::string& text : c.refused) {
        INFO("text: " << text);
        CHECK(!r.accepts(text));
    }
}

// Random texts must parse, validate, and have only beginnings that are accepted as such.
int check_walks(const std::string& schema, Recognizer& r, std::mt19937& random, int walks) {
    const Validator validator(json::parse(schema));
    int walked = 0;
    for (int i = 0; i < walks; ++i) {
        const auto text = r.walk(random, 30);
        if (!text) continue;
        ++walked;
        INFO(schema << "\ntext: " << *text);
        const json value = json::parse(*text, nullptr, false);
        REQUIRE(!value.is_discarded());
        CHECK(validator.valid(value));
        for (size_t n = 0; n <= text->size(); ++n) CHECK(r.begins(text->substr(0, n)));
    }
    return walked;
}

}  // namespace

TEST_CASE("schemas: what is accepted and refused") {
    const std::vector<Case> cases = {
        {"true",
         {"1", "\"a\"", "{\"a\": [1, null]}", "[]", "-0.5e3"},
         {"", "tru", "[1,]", "01", "'a'", "{a:1}"}},
        {"{}", {"null", "{}", "[[], {}]"}, {"nul"}},
        {R"({"type":"string"})",
         {R"("")", R"("aé\n\u00e9\ud83d\ude00")"},
         {"1", R"("\ud83d")", "\"\n\"", R"("\x")"}},
        {R"({"type":"string","minLength":2,"maxLength":3})",
         {R"("ab")", R"("éé\n")", R"("\ud83d\ude00a")"},
         {R"("a")", R"("abcd")", R"("\ud83d\ude00")"}},
        {R"({"type":["integer","null"]})", {"0", "-12", "null"}, {"1.0", "00", "-", "1e3"}},
        {R"({"type":"number"})", {"0", "-1.5", "1e-9", "0.25E+2"}, {".5", "1.", "+1", "0x1"}},
        {R"({"type":"integer","minimum":7,"maximum":123})",
         {"7", "9", "10", "99", "100", "123"},
         {"6", "124", "07", "-7", "200"}},
        {R"({"type":"integer","exclusiveMinimum":-11,"exclusiveMaximum":3})",
         {"-10", "-1", "0", "2"},
         {"-11", "3", "-0"}},
        {R"({"type":"integer","minimum":1.5})", {"2", "10", "999"}, {"1", "0", "-5"}},
        {R"({"type":"number","minimum":0,"maximum":1})",
         {"0", "0.5", "1", "1.0", "0.999", "1.000"},
         {"1.1", "-0.1", "2", "1.001"}},
        {R"({"type":"number","exclusiveMinimum":-2,"maximum":-1})",
         {"-1", "-1.5", "-1.999", "-1.0"},
         {"-2", "-2.0", "-0.5", "0", "-2.5", "1"}},
        {R"({"type":"number","exclusiveMinimum":0,"exclusiveMaximum":1})",
         {"0.1", "0.001", "0.99"},
         {"0", "0.0", "1", "1.0", "-0.5"}},
        {R"({"enum":["a",1,null,{"b":[true]}]})",
         {R"("a")", "1", "null", R"({"b":[true]})"},
         {"2", R"("b")", "true"}},
        {R"({"type":"string","enum":["a",1]})", {R"("a")"}, {"1"}},
        {R"({"const":"x\"y"})", {R"("x\"y")"}, {R"("x")"}},
        {R"({"type":"array","items":{"type":"boolean"},"minItems":1,"maxItems":3})",
         {"[true]", "[true, false,\n true]", "[ true ]"},
         {"[]", "[true,true,true,true]", "[1]"}},
        {R"({"prefixItems":[{"type":"integer"},{"type":"string"}],"items":{"type":"null"},"minItems":1})",
         {"[1]", "[1, \"a\"]", "[1, \"a\", null, null]"},
         {"[]", "[\"a\"]", "[1, null]"}},
        {R"({"prefixItems":[{"type":"integer"}],"items":false})", {"[]", "[1]"}, {"[1,2]"}},
        {R"({"properties":{"a":{"type":"integer"},"b":{"type":"string"},"c":{"type":"null"}},"required":["b"]})",
         {R"({"b":"x"})", R"({"a": 1, "b": "x", "c": null})", R"({"b":"","c":null})",
          "{\n  \"a\": 1,\n  \"b\": \"x\"\n}"},
         {"{}", R"({"a":1})", R"({"b":"x","a":1})", R"({"b":1})", R"({"b":"x","d":1})", R"({"b":"x",})"}},
        {R"({"type":"object","properties":{"ab":{"type":"integer"}},"additionalProperties":{"type":"string"}})",
         {"{}", R"({"ab":1})", R"({"ab":1,"a":"x","abc":"y"})", R"({"b":"x"})", R"({"":"x"})"},
         {R"({"ab":"x"})", R"({"a":1})", R"({"x":"y","ab":"z"})", R"({"\u0061b":"x"})"}},
        {R"({"type":"object","additionalProperties":false})", {"{}", "{ }"}, {R"({"a":1})"}},
        {R"({"type":"object"})", {"{}", R"({"a":{"b":1}})"}, {"[]"}},
        {R"({"required":["x"]})", {R"({"x":[1]})"}, {"{}"}},
        {R"({"anyOf":[{"type":"integer"},{"const":"none"}]})", {"3", R"("none")"}, {R"("some")", "1.5"}},
        {R"({"oneOf":[{"type":"object","properties":{"k":{"const":"a"},"v":{"type":"integer"}},"required":["k","v"]},
                      {"type":"object","properties":{"k":{"const":"b"}},"required":["k"]}]})",
         {R"({"k":"a","v":1})", R"({"k":"b"})"},
         {R"({"k":"a"})", R"({"k":"c"})"}},
        {R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"}},"additionalProperties":false,"anyOf":[{"required":["a"]},{"required":["b"]}]})",
         {R"({"a":1})", R"({"b":1})", R"({"a":1,"b":2})"},
         {"{}"}},
        {R"({"allOf":[{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]},{"properties":{"b":{"type":"string"},"a":{"minimum":5}}}]})",
         {R"({"a":5})", R"({"a":7,"b":""})"},
         {R"({"a":4})", R"({"b":"x"})"}},
        {R"({"$ref":"#/$defs/node","$defs":{"node":{"type":"object","properties":{"v":{"type":"integer"},"kids":{"type":"array","items":{"$ref":"#/$defs/node"}}},"required":["v"],"additionalProperties":false}}})",
         {R"({"v":1})", R"({"v":1,"kids":[{"v":2},{"v":3,"kids":[]}]})"},
         {R"({"kids":[]})", R"({"v":1,"kids":[2]})"}},
        {R"({"type":"array","items":{"$ref":"#"}})", {"[]", "[[],[[]]]"}, {"[1]"}},
        {R"({"type":"string","pattern":"^[a-z]{2,3}\"?$"})",
         {R"("ab")", R"("abc\"")"},
         {R"("a")", R"("ab"")", R"("abcd")"}},
        {R"({"type":"string","pattern":"^\\S[^\\s]\\s.$"})",
         {R"("ab c")",
          "\"\xC3\xA4"
          "b\\tc\""},
         {"\"\xC2\xA0"
          "b c\"",
          "\"a\xE3\x80\x80 c\"", R"("ab\u00a0c")", R"("ab \r")", "\"ab \xE2\x80\xA8\""}},
        {R"({"type":"string","pattern":"b\n"})", {R"("xxb\nyy")", R"("b\n")"}, {R"("b")", "\"b\n\""}},
        {R"({"type":"string","format":"date"})",
         {R"("2024-02-28")", R"("1999-12-31")"},
         {R"("2024-02-30")", R"("2024-13-01")", R"("24-1-1")"}},
        {R"({"type":"string","format":"date-time"})",
         {R"("2024-01-31T23:59:59Z")", R"("2024-01-31T00:00:00.123+02:00")"},
         {R"("2024-01-31 23:59:59Z")", R"("2024-01-31T24:00:00Z")"}},
        {R"({"type":"string","format":"uuid"})",
         {R"("123e4567-e89b-12d3-a456-426614174000")"},
         {R"("123e4567e89b12d3a456426614174000")"}},
        {R"({"type":"string","format":"email"})", {R"("a.b@example.org")"}, {R"("a@b@c.d")", R"("@x.y")"}},
        {R"({"type":"string","format":"ipv4"})", {R"("192.168.0.255")"}, {R"("256.1.1.1")"}},
        {R"({"type":"object","properties":{"a":false,"b":true}})", {"{}", R"({"b":1})"}, {R"({"a":1})"}},
        {R"({"title":"t","description":"d","$schema":"s","default":1,"examples":[],"type":"null"})",
         {"null"},
         {"1"}},
    };
    std::mt19937 random(3);
    for (const Case& c : cases) {
        check(c);
        Recognizer r(Grammar::from_json_schema(c.schema));
        check_walks(c.schema, r, random, 10);
    }
}

TEST_CASE("schemas: what is not supported is refused by name") {
    const auto refused = [](const std::string& schema, const std::string& mentions) {
        const std::string e = error_of(Grammar::from_json_schema(schema));
        INFO(schema << " : " << e);
        CHECK(e.find(mentions) != std::string::npos);
    };
    refused("{", "not valid JSON");
    refused("3", "neither an object nor");
    refused(R"({"not":{}})", "'not' is not supported");
    refused(R"({"type":"integer","minimum":1000000000000000000})", "at most 18 digits");
    refused(R"({"type":"integer","maximum":-9.3e18})", "at most 18 digits");
    refused(R"({"type":"array","uniqueItems":true})", "'uniqueItems' is not supported");
    refused(R"({"properties":{"a":{"type":"integer","multipleOf":3}}})",
            "#/properties/a: the keyword 'multipleOf'");
    refused(R"({"patternProperties":{}})", "'patternProperties'");
    refused(R"({"if":{},"then":{}})", "'if'");
    refused(R"({"type":"wrong"})", "'type' is \"wrong\"");
    refused(R"({"type":"string","format":"color"})", "format 'color'");
    refused(R"x({"type":"string","pattern":"(?=a)"})x", "look-around");
    refused(R"({"type":"string","pattern":"a","minLength":1})", "together are not supported");
    refused(R"({"type":"number","minimum":0.5})", "bounds must be whole");
    refused(R"({"oneOf":[{"type":"integer"},{"type":"number"}]})", "branches 0 and 1 may both hold");
    refused(R"({"$ref":"http://x/y"})", "only references into the schema");
    refused(R"({"$ref":"#/$defs/x"})", "does not exist");
    refused(R"({"$ref":"#"})", "no text can ever match");
    refused(R"({"anyOf":[{"$ref":"#"},{"type":"null"}]})", "begins with itself");
    refused(R"({"allOf":[{"$ref":"#"}]})", "lead on more than");
    refused(R"({"allOf":[{"pattern":"a"},{"pattern":"b"}]})", "'pattern' in two schemas");
    refused(R"({"enum":["a"],"pattern":"a"})", "beside 'enum'");
    refused("false", "no text can ever match");
    refused(R"({"enum":[]})", "no text can ever match");
    refused(R"({"type":"integer","minimum":3,"maximum":2})", "no text can ever match");
    refused(R"({"type":"array","minItems":3,"maxItems":2})", "no text can ever match");
    refused(R"({"type":"object","required":["a"],"additionalProperties":false})", "no text can ever match");
    refused(R"({"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]})",
            "no text can ever match");
    refused(R"({"type":"object","minProperties":1})", "'minProperties'");
    refused(R"({"type":"string","minLength":-1})", "'minLength' is not a count");
    refused(R"({"type":"string","maxLength":1000000000})", "larger than");
    refused(std::string(3000, '[') + std::string(3000, ']'), "nests deeper than 512 levels");
    std::string nested = "{}";
    for (int i = 0; i < 300; ++i) nested = cat(R"({"items":)", nested, "}");
    refused(nested, "deep");
}

TEST_CASE("integer bounds are exact") {
    std::mt19937 random(5);
    for (int i = 0; i < 40; ++i) {
        const int a = static_cast<int>(random() % 400) - 200,
                  b = a + static_cast<int>(random() % (i % 2 ? 30 : 300));
        Recognizer r(
            Grammar::from_json_schema(cat(R"({"type":"integer","minimum":)", a, R"(,"maximum":)", b, "}")));
        for (int n = -700; n <= 700; ++n) {
            INFO(a << " .. " << b << ": " << n);
            CHECK(r.accepts(cat(n)) == (a <= n && n <= b));
        }
        CHECK(!r.accepts("-0"));
    }
    for (const int64_t bound : {int64_t{99}, int64_t{100}, int64_t{999'999}, int64_t{1'000'000}}) {
        Recognizer to(
            Grammar::from_json_schema(cat(R"({"type":"integer","minimum":0,"maximum":)", bound, "}")));
        Recognizer from(Grammar::from_json_schema(cat(R"({"type":"integer","minimum":)", bound, "}")));
        for (const int64_t n :
             {int64_t{0}, int64_t{7}, bound / 10, bound - 1, bound, bound + 1, bound * 10}) {
            INFO(bound << ": " << n);
            CHECK(to.accepts(cat(n)) == (n <= bound));
            CHECK(from.accepts(cat(n)) == (n >= bound));
        }
        CHECK(!to.accepts("007"));
    }
    // Hundreds of them in one object are as few states as so many texts.
    json many = {{"type", "object"}, {"properties", json::object()}};
    for (int i = 0; i < 400; ++i) many["properties"][cat("p", i)] = {{"type", "integer"}};
    CHECK(Grammar::from_json_schema(many.dump()).ok());
    Recognizer large(Grammar::from_json_schema(R"({"type":"integer","minimum":9007199254740993})"));
    CHECK(large.accepts("9007199254740993"));
    CHECK(!large.accepts("9007199254740992"));
}

namespace {

json random_schema(std::mt19937& random, int depth) {
    const auto chance = [&](unsigned n) { return random() % n == 0; };
    const auto small = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
    switch (small(depth > 0 ? 11 : 6)) {
        case 0: {
            json s = {{"type", "integer"}};
            if (chance(2)) s["minimum"] = small(300) - 150;
            if (chance(2)) s["maximum"] = small(3000) + 150;
            if (chance(3)) s["exclusiveMinimum"] = small(100) - 250;
            return s;
        }
        case 1: {
            json s = {{"type", "number"}};
            if (chance(2)) s["minimum"] = small(20) - 10;
            if (chance(2)) s[chance(2) ? "maximum" : "exclusiveMaximum"] = small(20) + 11;
            return s;
        }
        case 2: {
            json s = {{"type", "string"}};
            if (chance(2)) s["minLength"] = small(4);
            if (chance(2)) s["maxLength"] = 4 + small(5);
            return s;
        }
        case 3:
            return {{"type", json::array({"boolean", "null"})}};
        case 4:
            return {{"enum", json::array({"x", small(9), nullptr, "\xC3\xA9\""})}};
        case 5:
            return {{"const", chance(2) ? json("c\\d") : json(small(5))}};
        case 6:
        case 7: {
            json s = {{"type", "object"}, {"properties", json::object()}, {"required", json::array()}};
            for (const char* name : {"a", "ab", "b", "\xC3\xA9", "q\"r"}) {
                if (chance(2)) continue;
                s["properties"][name] = random_schema(random, depth - 1);
                if (chance(2)) s["required"].push_back(name);
            }
            if (chance(3)) s["additionalProperties"] = false;
            if (chance(3)) s["additionalProperties"] = random_schema(random, depth - 1);
            return s;
        }
        case 8: {
            json s = {{"type", "array"}, {"items", random_schema(random, depth - 1)}};
            if (chance(2)) s["minItems"] = small(3);
            if (chance(2)) s["maxItems"] = 2 + small(3);
            if (chance(3))
                s["prefixItems"] = json::array({random_schema(random, 0), random_schema(random, 0)});
            return s;
        }
        case 9:
            return {
                {"anyOf", json::array({random_schema(random, depth - 1), random_schema(random, depth - 1)})}};
        default:
            return chance(2) ? json{{"allOf", json::array({random_schema(random, depth - 1),
                                                           random_schema(random, depth - 1)})}}
                             : json{{"oneOf", json::array({random_schema(random, depth - 1),
                                                           random_schema(random, depth - 1)})}};
    }
}

}  // namespace

TEST_CASE("texts of 400 random schemas are valid") {
    std::mt19937 random(11);
    int compiled = 0, walked = 0;
    for (int i = 0; i < 400; ++i) {
        const std::string schema = random_schema(random, 3).dump();
        auto g = Grammar::from_json_schema(schema);
        if (!g) {
            // allOf of different things, oneOf that overlaps
            CHECK(!g.error().message().empty());
            continue;
        }
        ++compiled;
        Recognizer r(std::move(g));
        walked += check_walks(schema, r, random, 4);
    }
    CHECK(compiled >= 200);
    CHECK(walked >= 600);
}

TEST_CASE("damaged schemas never crash") {
    std::mt19937 random(13);
    int compiled = 0;
    for (int i = 0; i < 2000; ++i) {
        std::string text = random_schema(random, 3).dump();
        for (unsigned n = 1 + random() % 3; n > 0; --n) {
            const size_t at = random() % text.size();
            if (random() % 2) {
                text[at] = "0123456789{}[]\",:-truefalsnp$"[random() % 30];
            } else {
                text.erase(at, 1 + random() % 3);
            }
            if (text.empty()) text = "{}";
        }
        compiled += Grammar::from_json_schema(text).ok();
    }
    CHECK(compiled > 10);
}
