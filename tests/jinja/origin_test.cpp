// Where text came from: each operation on strings must carry the origin of every byte along.
// Results are written with «» around what is not the template's.
#include <doctest/doctest.h>

#include "src/text/jinja/chat_template.h"

using namespace nibble;
using Json = nlohmann::ordered_json;

namespace {

std::string marked(const std::string& source, const Json& extra) {
    const auto t = ChatTemplate::parse(source, "t");
    if (!t.ok()) return t.error().message();
    ChatTemplate::Input in;
    in.extra = extra;
    in.messages = Json::parse(R"([{"role": "user", "content": "C"}, {"role": "im_end", "content": "D"}])");
    in.tools = Json::parse(R"([{"name": "N", "parameters": {"K": [1, "V", null]}}])");
    in.bos_token = "<s>";
    const auto segments = t->render_segments(in);
    if (!segments.ok()) return segments.error().message();
    std::string s;
    for (const TemplateSegment& segment : *segments) {
        s += segment.from_template ? segment.text : "«" + segment.text + "»";
    }
    return s;
}

struct Case {
    const char *source, *expect;
};

// u is "User Text" and w is "  ab,c\nd  "; both come from outside.
const Case cases[] = {
    {"{{ u }}", "«User Text»"},
    {"{{ 'a' ~ u ~ 1 ~ 'b' }}", "a«User Text»1b"},
    {"{{ 'a' + u + u + 'b' }}", "a«User TextUser Text»b"},
    {"{{ u[5:] }}{{ ('ab' + u)[1:4] }}{{ u[0] }}{{ ('a' + u)[::-1] }}", "«Text»b«UsUtxeT resU»a"},
    {"{{ ('[' ~ u ~ ']') | upper }}{{ u | lower | title }}", "[«USER TEXT»]«User Text»"},
    {"{{ ('x' ~ u) | capitalize }}", "X«user text»"},
    {"{{ (' ' ~ u ~ ' ') | trim }}|{{ w.strip() }}|{{ ('xx' ~ u).lstrip('x') }}",
     "«User Text»|«ab,c\nd»|«User Text»"},
    {"{{ u.replace('Text', 'word') }}{{ 'a-b'.replace('-', u) }}", "«User »worda«User Text»b"},
    {"{{ ('-' ~ u ~ '-') | replace('-', '=') }}", "=«User Text»="},
    {"{{ 'a'.replace('', u[0]) }}", "«U»a«U»"},
    {"{{ ('<t>' ~ u ~ '</t>').split('<')[1] }}{{ w.split(',')[0] | trim }}", "t>«User Textab»"},
    {"{{ u.split() | join('-') }}{{ ['a', u] | join(u[4]) }}", "«User»-«Text»a« User Text»"},
    {"{{ '-'.join(['a', u]) }}{{ u.join(['a', 'b']) }}", "a-«User Text»a«User Text»b"},
    {"{{ w.splitlines() | map('trim') | join('|') }}", "«ab,c»|«d»"},
    {"{{ ('a ' ~ u).partition(' ')[2] }}{{ u.rsplit(' ', 1)[1] }}", "«User TextText»"},
    {"{{ ('a' ~ u) * 2 }}", "a«User Text»a«User Text»"},
    {"{{ '%s=%5s' % ('k', u[:2]) }}{{ '{}:{:>3}'.format(u[0], u[1]) }}", "k=   «UsU»:  «s»"},
    {"{{ (u ~ '%s') % 1 }}{{ (u ~ '{}').format('x') }}", "«User Text»1«User Text»x"},
    {"{{ u | tojson }}{{ {'k': u, u: 1} | tojson }}",
     "\"«User Text»\"{\"k\": \"«User Text»\", \"«User Text»\": 1}"},
    {"{{ [u, 'a'] }}{{ {'k': [u]} | string }}", "['«User Text»', 'a']{'k': ['«User Text»']}"},
    {"{{ u | indent(2, true) }}{{ 'a\nb' | indent(u[:1]) }}", "  «User Text»a\n«U»b"},
    {"{{ '<' ~ u[:1] ~ h | escape }}", "<«U&lt;»"},
    {"{{ ('<' ~ h) | escape }}", "&lt;«&lt;»"},
    {"{{ u | reverse }}{{ ('a' ~ u) | first }}{{ u | last }}{{ u | list | join }}",
     "«txeT resU»a«tUser Text»"},
    {"{{ u.center(11, '*') }}{{ u[:1].zfill(3) }}{{ u.removeprefix('User ') }}", "*«User Text»*00«UText»"},
    {"{% set x %}a{{ u }}b{% endset %}{{ x }}", "a«User Text»b"},
    {"{% macro m(p) %}[{{ p }}]{% endmacro %}{{ m(u) }}", "[«User Text»]"},
    {"{% macro m() %}[{{ caller() }}]{% endmacro %}{% call m() %}{{ u }}{% endcall %}", "[«User Text»]"},
    {"{% filter upper %}a{{ u }}{% endfilter %}", "A«USER TEXT»"},
    {"{% set ns = namespace(s='') %}{% for c in u[:2] %}{% set ns.s = ns.s ~ c ~ '.' %}{% endfor %}{{ ns.s "
     "}}",
     "«U».«s»."},
    {"{{ [u, 'b', 'a'] | sort | join(',') }}{{ [u, u] | unique | join }}", "a,b,«User TextUser Text»"},
    {"{{ u | default('x') }}{{ n | default(u) }}{{ u if u else 'x' }}{{ u or 'x' }}",
     "«User TextUser TextUser TextUser Text»"},
    {"{{ '5' ~ five | int }}{{ u | length }}{{ u == u }}{{ u is string }}", "559TrueTrue"},
    {"{{ u | wordcount ~ '%.1f' % 2.5 }}", "22.5"},
    {"{{ messages[0].role }}{{ messages[0].content }}{{ messages[1].role }}", "user«Cim_end»"},
    {"{{ tools[0].name }}{{ tools | tojson }}",
     "«N»[{\"«name»\": \"«N»\", \"«parameters»\": {\"«K»\": [1, \"«V»\", null]}}]"},
    {"{{ bos_token }}{{ strftime_now('%Y') | length }}", "<s>4"},
    {"{% for k, v in tools[0].items() if v is string %}{{ k }}={{ v }}{% endfor %}", "«name»=«N»"},
    {"{{ '<|' ~ messages[0].role ~ '|>' ~ '<|' ~ messages[1].role ~ '|>' }}", "<|user|><|«im_end»|>"},
};

}  // namespace

TEST_CASE("operations keep the origin of every byte") {
    const Json extra = {{"u", "User Text"}, {"w", "  ab,c\nd  "}, {"h", "<"}, {"five", "5"}};
    for (const Case& c : cases) {
        const std::string source = c.source;
        CAPTURE(source);
        CHECK(marked(source, extra) == c.expect);
    }
}

TEST_CASE("origins of text: spans stay sorted, merged and inside") {
    jinja::Text t;
    t.append("ab", false);
    t.append("cd", true);
    t.append("ef", true);
    t.append("", true);
    t.append("gh", false);
    REQUIRE(t.untrusted().size() == 1);
    CHECK(t.untrusted()[0] == jinja::ByteSpan{2, 6});
    CHECK_FALSE(t.untrusted_at(1));
    CHECK(t.untrusted_at(2));
    CHECK(t.untrusted_at(5));
    CHECK_FALSE(t.untrusted_at(6));
    const jinja::Text part = t.slice(5, 7);
    CHECK(part.str() == "fg");
    REQUIRE(part.untrusted().size() == 1);
    CHECK(part.untrusted()[0] == jinja::ByteSpan{0, 1});
    CHECK_FALSE(t.slice(0, 2).any_untrusted());
    CHECK_FALSE(t.slice(6, 8).any_untrusted());
}
