// Hostile templates and conversations: each must end in an Error that says which limit it met, and soon.
// Run under AddressSanitizer these also show that nothing leaks and no recursion exhausts the stack.
#include <doctest/doctest.h>

#include "src/text/jinja/chat_template.h"

using namespace nibble;
using Json = nlohmann::ordered_json;

namespace {

Result<std::string> render(const std::string& source, const Json& extra = Json()) {
    jinja::Limits limits;
    limits.steps = 2'000'000;
    limits.bytes = 64 << 20;
    limits.output = 1 << 20;
    const auto t = ChatTemplate::parse(source, "hostile", limits);
    if (!t.ok()) return t.error();
    ChatTemplate::Input in;
    in.extra = extra;
    return t->render(in);
}

std::string repeat(const std::string& s, size_t n) {
    std::string out;
    for (size_t i = 0; i < n; ++i) out += s;
    return out;
}

struct Case {
    std::string source, word;  // a word of the error
};

}  // namespace

TEST_CASE("a hostile template meets a limit") {
    const std::string loop = "{% for i in range(99999) %}{% for j in range(99999) %}";
    const std::string ends = "{% endfor %}{% endfor %}";
    const std::string grow = "{% set ns = namespace(x='ab', l=[1, 2], d=0) %}{% for i in range(99) %}";
    const std::vector<Case> cases = {
        {loop + ends, "steps"},
        {loop + "{{ 'text' }}" + ends, "bytes"},
        {grow + "{% set ns.x = ns.x ~ ns.x %}{% endfor %}", "MiB"},
        {grow + "{% set ns.x = ns.x + ns.x %}{% endfor %}", "MiB"},
        {grow + "{% set ns.x = ns.x.replace('a', ns.x) %}{% endfor %}", "takes more"},
        {grow + "{% set ns.x = ns.x | replace('', ns.x) %}{% endfor %}", "MiB"},
        {grow + "{% set ns.x = [ns.x, ns.x] | join(ns.x) %}{% endfor %}", "more than"},
        {grow + "{% set ns.x = '%s%s' % (ns.x, ns.x) %}{% endfor %}", "MiB"},
        {grow + "{% set ns.x = '{0}{0}'.format(ns.x) %}{% endfor %}", "more than"},
        {grow + "{% set ns.x %}{{ ns.x }}{{ ns.x }}{% endset %}{% endfor %}", "bytes"},
        {grow + "{% set ns.x = ns.x | tojson %}{% endfor %}", "more than"},
        {grow + "{% set ns.x = ns.x * 9 %}{% endfor %}", "memory"},
        {grow + "{% set ns.l = ns.l + ns.l %}{% endfor %}", ""},
        {grow + "{% set ns.l = [ns.l, ns.l] %}{% endfor %}", "values"},
        {"{% set ns = namespace(l=[]) %}{% for i in range(999) %}{% set ns.l = [ns.l] %}{% endfor %}",
         "deep"},
        {"{% set ns = namespace(l=[]) %}{% for i in range(999) %}{% set ns.l = {'k': ns.l} %}{% endfor %}",
         "deep"},
        {"{% set ns = namespace(l=[]) %}{% for i in range(999) %}{% set ns.l = cycler(ns.l) %}{% endfor %}",
         "deep"},
        {"{{ 'x' * 99999999999 }}", "memory"},
        {"{{ [1] * 99999999999 }}", "memory"},
        {"{{ 9223372036854775807 + 1 }}", "64 bits"},
        {"{{ 2 ** 64 }}", "64 bits"},
        {"{{ -9223372036854775807 - 2 }}", "64 bits"},
        {"{{ 99999999999999999999 }}", "64 bits"},
        {"{{ range(100001) }}", "range"},
        {"{{ range(-9223372036854775807, 9223372036854775807) }}", "range"},
        {"{{ 'x'.center(99999999999) }}", "MiB"},
        {"{{ 'x' | indent(99999999999) }}", "indent"},
        {"{{ [1] | tojson(indent=99999999999) }}", "indent"},
        {"{{ '%99999999d' % 1 }}", "width"},
        {"{{ '{:.99999999f}'.format(1) }}", "precision"},
        {"{{ [1] | batch(99999999999, 0) | list }}", ""},
        {"{{ [1] | slice(99999999999) | list }}", ""},
        {"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "deep"},
        {"{% macro m(n) %}{% if n %}{% call m(n) %}{% endcall %}{% endif %}{{ caller() }}{% endmacro %}{{ "
         "m(1) }}",
         "deep"},
        {"{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", "deep"},
        {"{{ " + repeat("(", 9999) + "1" + repeat(")", 9999) + " }}", "deep"},
        {"{{ " + repeat("[", 9999) + "1" + repeat("]", 9999) + " }}", "deep"},
        {"{{ " + repeat("-", 9999) + "1 }}", "deep"},
        {"{{ " + repeat("not ", 9999) + "1 }}", "deep"},
        {"{{ 1" + repeat(" + 1", 9999) + " }}", "deep"},
        {"{{ 1" + repeat(" | abs", 9999) + " }}", "deep"},
        {"{{ a" + repeat(".a", 9999) + " }}", "deep"},
        {"{{ a" + repeat("()", 9999) + " }}", "deep"},
        {"{{ 1" + repeat(" if 1 else 1", 9999) + " }}", "deep"},
        {repeat("{% if 1 %}", 9999) + repeat("{% endif %}", 9999), "deep"},
        {"{% set " + repeat("(", 9999) + "a" + repeat(")", 9999) + " = 1 %}", "deep"},
        {"{% for " + repeat("(", 9999) + "a" + repeat(")", 9999) + " in [] %}{% endfor %}", "deep"},
        {"{% set l = [] %}{% set _ = l.append(l) %}", "itself"},
        {"{% set l = [] %}{% set m = [l] %}{% set _ = l.append(m) %}", "changed"},
        {"{% set l = [] %}{% set _ = l.append(cycler(l)) %}", "container"},
        {"{% set l = [] %}{% set _ = l.append(namespace(l=l)) %}", "container"},
        {"{% set l = [] %}{% for i in l + [1] %}{% set _ = l.append(loop) %}{% endfor %}", "container"},
        {"{% set d = {} %}{% set _ = d.update(d=d) %}", "itself"},
        {"{% set l = [1] %}{% for i in l %}{% set _ = l.append(i) %}{% endfor %}", ""},
        {"{{ range(9999) | map('string') | map('replace', '', '0' * 9999) | join }}", "MiB"},
        {"{{ range(99999) | unique | list }}", "steps"},
        {"{{ 'a' | map(*(['map'] * 900)) | list }}", "deep"},
        {"{{ 'a' | select(*(['selectattr'] * 10500)) | list }}", "test"},
        {"{{ range(99999) | tojson(separators=('x' * 1000000, ':')) }}", "steps"},
        {"{% set x = [[]] * 1000000 %}{% for i in range(99999) %}{% set y = x | string %}{% endfor %}", ""},
        {"{% set x = 'x' * 900000 %}{% macro m(n) %}{{ x }}{% if n %}{% set _ = m(n - 1) %}{% endif %}"
         "{% endmacro %}{{ m(45) }}",
         "MiB"},
    };
    for (const Case& c : cases) {
        const std::string source = c.source.substr(0, 120);
        CAPTURE(source);
        const auto r = render(c.source);
        REQUIRE_FALSE(r.ok());
        const std::string message = r.error().message();
        CAPTURE(message);
        CHECK(r.error().where.starts_with("hostile:"));
        CHECK(message.find(c.word) != std::string::npos);
    }
}

TEST_CASE("searches take linear time and are paid by bytes") {
    // Naive, each of these compares 10^11 bytes; a search that is not linear does not end in a test's time.
    const std::string hay = "{% set x = 'a' * 1000000 %}{% set y = 'a' * 500000 %}";
    const std::vector<std::string> calls = {
        "x.find(y ~ 'b')",          "x.rfind('b' ~ y)",
        "x.count(y ~ 'b')",         "x.split(y ~ 'b')|length",
        "x.rsplit('b' ~ y)|length", "x.partition(y ~ 'b')|length",
        "x.replace(y ~ 'b', '')",   "x.rpartition('b' ~ y)|length",
        "(y ~ 'b') in x",           "x|replace(y ~ 'b', '')",
    };
    for (const std::string& call : calls) {
        CAPTURE(call);
        CHECK(render(hay + "{% set r = " + call + " %}").ok());
        const auto r = render(hay + "{% for i in range(99) %}{% set r = " + call + " %}{% endfor %}");
        REQUIRE_FALSE(r.ok());
        CHECK(r.error().message().find("more than") != std::string::npos);
    }
}

TEST_CASE("whatever reads a long string pays for it") {
    const std::string text = "{% set x = 'a' * 1000000 %}{% set y = x ~ '' %}{% set f = '%c' * 1000 %}";
    const std::vector<std::string> calls = {
        "x|wordcount",
        "x|title",
        "x|upper",
        "x|trim",
        "x|trim('a')",
        "'b'|trim(x)",
        "x|int",
        "x|float",
        "x|length",
        "x|reverse",
        "x|indent",
        "x|e",
        "x|string",
        "x.title()",
        "x.capitalize()",
        "x.strip()",
        "x.isalpha()",
        "x.isspace()",
        "x.islower()",
        "x.split()",
        "x.startswith(y)",
        "x.endswith(y)",
        "x.startswith((y ~ 'b', y))",
        "x.removeprefix(y)",
        "x is lower",
        "x is upper",
        "x is sameas y",
        "x is filter",
        "x % ()",
        "[x]|string",
        "[x]|map('wordcount')|list",
        "strftime_now(f)",
    };
    for (const std::string& call : calls) {
        CAPTURE(call);
        const auto r = render(text + "{% for i in range(9999) %}{% set r = " + call + " %}{% endfor %}");
        REQUIRE_FALSE(r.ok());
        CHECK(r.error().message().find("more than") != std::string::npos);
    }
    const auto many = render("{{ range(9999) | sort(attribute='a,' * 5000) }}");
    REQUIRE_FALSE(many.ok());
    CHECK(many.error().message().find("more than") != std::string::npos);
}

TEST_CASE("looking a name up pays for the names looked through") {
    std::string many, attributes, arguments, parameters, nested, closed;
    for (int i = 0; i < 4000; ++i) {
        const std::string n = std::to_string(i);
        many += "{% set v" + n + "=1 %}";
        attributes += "{% set ns.v" + n + "=1 %}";
        parameters += (i > 0 ? ",p" : "p") + n;
        arguments += (i > 0 ? ",p" : "p") + n + "=1";
    }
    for (int i = 0; i < 90; ++i) {
        nested += "{% for i" + std::to_string(i) + " in [1] %}";
        closed += "{% endfor %}";
    }
    const auto loop = [](const std::string& body) {
        return "{% for i in range(30000) %}" + body + "{% endfor %}";
    };
    const std::vector<std::string> sources = {
        many + loop("{{ zq }}"),
        many + loop("{{ v3999 }}"),
        many + "{% set ns = namespace() %}" + loop("{% set ns.x = 1 %}"),
        "{% set ns = namespace() %}" + attributes + loop("{{ ns.zq }}"),
        "{% set ns = namespace() %}" + attributes + loop("{{ ns['zq'] }}"),
        "{% set ns = namespace() %}" + attributes + loop("{% set ns.zq = 1 %}"),
        nested + loop(repeat("{{ zq }}", 10)) + closed,
        "{% macro m(" + parameters + ") %}{% endmacro %}" + loop("{{ m() }}"),
        "{% macro m(" + parameters + ") %}{% endmacro %}" + loop("{{ m(" + arguments + ") }}"),
        "{% set d = dict(" + arguments + ") %}{% set f = '%(p9)s' * 9999 %}" + loop("{{ f % d }}"),
        "{% set f = '{p9}' * 9999 %}{{ f.format(" + arguments + ") }}",
        "{% set k = 'a' * 99999 %}{% set d = {k ~ 1: 1, k ~ 2: 2, k ~ 3: 3} %}{% set q = k ~ 4 %}" +
            loop("{{ d[q] }}"),
    };
    for (const std::string& source : sources) {
        const std::string end = source.substr(source.size() - std::min<size_t>(source.size(), 80));
        CAPTURE(end);
        const auto r = render(source);
        REQUIRE_FALSE(r.ok());
        CAPTURE(r.error().message());
        CHECK(r.error().message().find("steps") != std::string::npos);
    }
    CHECK(render(many + "{{ v3999 }}").ok());
}

TEST_CASE("a long conversation stays far from the limits") {
    const std::string source =
        "{% for m in messages %}{% if m.content is string and not m.content.startswith('<t>') %}"
        "{% set c = m.content.split('</think>')[-1] | trim %}{{ m.role }}{{ c.replace('<x>', '') }}"
        "{% if '<tool>' in c %}{{ c | upper }}{% endif %}{% endif %}{% endfor %}";
    const auto t = ChatTemplate::parse(source, "long");  // with the limits that programs use
    REQUIRE(t.ok());
    ChatTemplate::Input in;
    for (int i = 0; i < 3000; ++i)
        in.messages.push_back({{"role", "user"}, {"content", repeat("some words ", 100)}});
    in.messages.push_back({{"role", "user"}, {"content", repeat("some words ", 100'000)}});
    const auto r = t->render(in);
    REQUIRE_MESSAGE(r.ok(), (r.ok() ? "" : r.error().message()));
    CHECK(r->size() > 4'000'000);
}

TEST_CASE("cycles and long chains of objects are freed") {
    const std::vector<std::string> sources = {
        "{% set ns = namespace() %}{% set ns.self = ns %}{{ ns.self.self is defined }}",
        "{% set ns = namespace() %}{% for i in range(9999) %}{% set ns.x = namespace(x=ns.x) %}{% endfor "
        "%}{{ 'True' }}",
        "{% macro m() %}{% endmacro %}{% set ns = namespace(m=m) %}{{ ns.m is callable }}",
        "{% set ns = namespace() %}{% for i in range(9999) %}{% set p = ns.m %}{% macro m() %}{% endmacro %}"
        "{% set ns.m = m %}{% endfor %}{{ ns.m is callable }}",
        "{% set ns = namespace() %}{% for i in range(9999) %}{% set p = ns.l %}{% for y in [1] if true %}"
        "{% set ns.l = loop %}{% endfor %}{% endfor %}{{ ns.l.index == 1 }}",
        "{% set ns = namespace() %}{% macro m() %}{% set ns.c = caller %}{% endmacro %}{% call m() %}x{% "
        "endcall %}"
        "{{ ns.c() == 'x' }}",
    };
    for (const std::string& source : sources) {
        CAPTURE(source);
        const auto r = render(source);
        REQUIRE_MESSAGE(r.ok(), (r.ok() ? "" : r.error().message()));
        CHECK(*r == "True");
    }
}

TEST_CASE("strings grow in place without being shared by accident") {
    const auto r = render(
        "{% set a = 'x' %}{% set b = a + 'y' %}{% set c = a + 'z' %}{{ a }}{{ b }}{{ c }}"
        "{% for i in [1, 2] %}{{ 'lit' + 'a' + 'b' }}{% endfor %}");
    REQUIRE(r.ok());
    CHECK(*r == "xxyxzlitablitab");
}

TEST_CASE("a conversation that makes no sense is refused") {
    const auto t = ChatTemplate::parse("{{ messages }}", "t");
    REQUIRE(t.ok());
    ChatTemplate::Input in;
    in.messages = "text";
    CHECK(t->render(in).error().message() == "conversation: 'messages' must be a list");
    in.messages = Json::array({"text"});
    CHECK(t->render(in).error().message() == "conversation: each message must be an object with a role");
    Json deep = "x";
    for (int i = 0; i < 500; ++i) deep = Json::array({deep});
    in.messages = Json::array({{{"role", "user"}, {"content", deep}}});
    CHECK(t->render(in).error().what.find("deep") != std::string::npos);
    in.messages = Json::array();
    in.extra = Json::array();
    CHECK_FALSE(t->render(in).ok());
}

TEST_CASE("a refusal carries the template's message and its line") {
    const auto t = ChatTemplate::parse(
        "a\n{% if messages %}\n{{ raise_exception('No ' ~ messages[0].role) }}{% endif %}", "t");
    REQUIRE(t.ok());
    ChatTemplate::Input in;
    in.messages = Json::array({{{"role", "user"}, {"content", "x"}}});
    const auto r = t->render(in);
    REQUIRE_FALSE(r.ok());
    CHECK(r.error().what == "No user");
    CHECK(r.error().where == "t:3");
    CHECK(t->mentions("messages"));
    CHECK_FALSE(t->mentions("tools"));
}
