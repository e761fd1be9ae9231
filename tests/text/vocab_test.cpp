// The rules of both models on small vocabularies made by hand, and vocabularies that lie.
// A lie ends in an Error that names it, or in tokens that still hold the text.
#include <limits>

#include "tests/text/common.h"

using namespace nibble;
using namespace nibble::text_test;

namespace {

using Ids = std::vector<Token>;
const std::string sp = "\xE2\x96\x81";

Vocab pairs_vocab() {
    Vocab v = byte_vocab();
    for (const char* t : {"ab", "bc", "abc", "aa"}) add(v, t);  // 256 to 259
    v.merges = {"b c", "a b", "a bc", "a a"};
    return v;
}

}  // namespace

TEST_CASE("bpe: the best rank first, on equal ranks the leftmost pair") {
    const Tokenizer t = must_create(pairs_vocab());
    CHECK(t.encode("abc") == Ids{258});
    CHECK(t.encode("aaa") == Ids{259, 'a'});
    CHECK(t.encode("aaaa") == Ids{259, 259});
    CHECK(t.encode("abab") == Ids{256, 256});
    CHECK(t.encode("bcbc") == Ids{257, 257});
    CHECK(t.piece(258) == "abc");
    CHECK(t.find("abc") == 258);
    CHECK(!t.find("abcd"));
}

TEST_CASE("bpe: a whole word goes before merges only with ignore_merges") {
    Vocab v = byte_vocab();
    const Token word = add(v, "xyz");
    const Token secret = add(v, "key", TokenType::control);
    CHECK(must_create(v).encode("xyz") == Ids{'x', 'y', 'z'});
    v.ignore_merges = true;
    const Tokenizer t = must_create(std::move(v));
    CHECK(t.encode("xyz") == Ids{word});
    CHECK(t.encode("key") == Ids{'k', 'e', 'y'});  // text never becomes a control token
    CHECK(t.encode("key", special) == Ids{secret});
}

TEST_CASE("special tokens: user-defined always, control on request, the longest first") {
    Vocab v = byte_vocab();
    const Token user = add(v, "<u>", TokenType::user_defined),
                more = add(v, "<u><v>", TokenType::user_defined);
    const Token end = add(v, "<e>", TokenType::control), longer = add(v, "<u><v>!", TokenType::control);
    v.bos = end;
    v.eos = user;
    v.add_bos = v.add_eos = true;
    const Tokenizer t = must_create(std::move(v));
    CHECK(t.encode("<u><v>!", plain) == Ids{more, '!'});
    CHECK(t.encode("<u><v>!", special) == Ids{longer});
    CHECK(t.encode("<u><u", plain) == Ids{user, '<', 'u'});
    CHECK(t.encode("<e>", plain) == Ids{'<', 'e', '>'});
    CHECK(t.encode("a<e>b", special) == Ids{'a', end, 'b'});
    CHECK(t.encode("") == Ids{end, user});
    CHECK(t.encode("a") == Ids{end, 'a', user});
    CHECK(t.is_control(end));
    CHECK(!t.is_control(user));
    CHECK(t.is_end_of_generation(user));
    CHECK(t.decode(Ids{end, 'a', user}, false) == "a<u>");
}

TEST_CASE("special tokens swallow white space where the vocabulary says so") {
    Vocab v = byte_vocab();
    const Token left = add(v, "<l>", TokenType::control), right = add(v, "<r>", TokenType::control);
    v.strip_left = {left};
    v.strip_right = {right, 'z'};  // in any order
    const Tokenizer t = must_create(std::move(v));
    CHECK(t.encode("a \n<l> b<r>\n c<r> <l> ", special) ==
          Ids{'a', left, ' ', 'b', right, 'c', right, left, ' '});
}

TEST_CASE("spm: highest score first, leftmost on ties, bytes for the rest, a space in front") {
    Vocab v = spm_vocab();
    const Token space = add(v, sp, TokenType::normal, -1), a = add(v, "a", TokenType::normal, -1),
                aa = add(v, "aa", TokenType::normal, -2), space_a = add(v, sp + "a", TokenType::normal, -3),
                user = add(v, "<u>", TokenType::user_defined);
    const auto byte = [](unsigned b) { return static_cast<Token>(b + 1); };
    const Tokenizer t = must_create(v);
    CHECK(t.encode("").empty());
    CHECK(t.encode("a") == Ids{space_a});
    CHECK(t.encode("aa") == Ids{space, aa});
    CHECK(t.encode("aaa") == Ids{space, aa, a});
    CHECK(t.encode("a a") == Ids{space_a, space_a});
    CHECK(t.encode("\xC3\xA9") == Ids{space, byte(0xC3), byte(0xA9)});
    CHECK(t.encode("\xC3z") == Ids{space, byte(0xC3), byte('z')});
    CHECK(t.encode("a<u>a") == Ids{space_a, user, space_a});
    CHECK(t.decode(t.encode("  a\n")) == "  a\n");
    v.prefix_first_only = true;
    CHECK(must_create(v).encode("a<u>a") == Ids{space_a, user, a});
    v.remove_extra_whitespaces = true;
    CHECK(must_create(v).encode("  a   a ") == Ids{space_a, space_a});
    v.add_space_prefix = false;
    CHECK(must_create(v).encode("a") == Ids{a});
}

TEST_CASE("spm: words are cut at spaces only where no token crosses one") {
    Vocab v = spm_vocab();
    add(v, sp, TokenType::normal, -9);
    const Token a = add(v, "a", TokenType::normal, -9), cross = add(v, "a" + sp, TokenType::normal, -1);
    v.add_space_prefix = false;
    CHECK(must_create(std::move(v)).encode("a a") == Ids{cross, a});
}

TEST_CASE("spm: without a byte token a character becomes one unknown token, or nothing") {
    Vocab v;
    v.model = Vocab::Model::spm;
    v.unk = add(v, "<unk>", TokenType::unknown);
    const Token a = add(v, "a");
    CHECK(must_create(v).encode("a\xC3\xA9"
                                "a") == Ids{a, 0, a});
    v.unk.reset();
    CHECK(must_create(v).encode("a\xC3\xA9"
                                "a") == Ids{a, a});
}

TEST_CASE("vocabularies that lie are refused, naming the lie") {
    CHECK(contains(error_of(Vocab{}), "0 tokens"));
    Vocab v = byte_vocab();
    v.pre = "wishful";
    CHECK(contains(error_of(v), "wishful"));
    v = byte_vocab();
    v.eos = 256;
    CHECK(contains(error_of(v), "256"));
    v.eos = -2;
    CHECK(contains(error_of(v), "-2"));
    v.eos = -1;  // "none", as some files say it
    CHECK(error_of(v).empty());
    v = byte_vocab();
    v.types = {1, 1};
    CHECK(contains(error_of(v), "token types"));
    v.types.assign(256, 9);
    CHECK(contains(error_of(v), "type 9"));
    v = pairs_vocab();
    v.merges.push_back("a zz");
    CHECK(contains(error_of(v), "merge 4"));
    v.merges.back() = "c a";  // both are tokens, "ca" is none
    CHECK(contains(error_of(v), "merge 4"));
    for (const char* m : {"", " ", "ab", "ab "}) {
        v.merges.back() = m;
        CHECK(contains(error_of(v), "merge 4"));
    }
    v = spm_vocab();
    v.scores.pop_back();
    CHECK(contains(error_of(v), "scores"));
    v = spm_vocab();
    v.scores[3] = std::numeric_limits<float>::quiet_NaN();
    CHECK(contains(error_of(v), "score of token 3"));
    v = spm_vocab();
    for (const char* name : {"<0xG0>", "<0x4>>", "<0x041>", "0x41", ""}) {
        v.tokens[9] = name;
        CHECK(contains(error_of(v), "byte token 9"));
    }
}

TEST_CASE("special tokens have a greatest length, ordinary tokens have none") {
    Vocab v = byte_vocab();
    const Token longest = add(v, std::string(512, 'x'), TokenType::control);
    add(v, std::string(513, 'y'));
    CHECK(must_create(v).encode(std::string(514, 'x'), special) == Ids{longest, 'x', 'x'});
    for (const TokenType type : {TokenType::control, TokenType::user_defined}) {
        Vocab w = v;
        add(w, std::string(513, 'z'), type);
        CHECK(contains(error_of(w), "special token 258 has 513 bytes"));
    }
}

TEST_CASE("odd but possible: duplicates, empty tokens, ends out of range, infinite scores, a missing byte") {
    Vocab v = byte_vocab();
    add(v, "");
    add(v, "", TokenType::user_defined);
    add(v, "", TokenType::control);
    add(v, "a");
    add(v, "b", TokenType::control);
    v.end_of_generation = {-5, 1 << 30, 7};
    v.types[0] = 0;  // "undefined" counts as normal
    const Tokenizer t = must_create(v);
    CHECK(t.encode("ab", plain) == Ids{'a', 'b'});
    CHECK(t.is_end_of_generation(7));
    CHECK(!t.is_end_of_generation(-5));
    CHECK(t.piece(-1).empty());
    CHECK(t.piece(1 << 30).empty());
    CHECK(t.decode(Ids{-1, 'x', 1 << 30}) == "x");

    Vocab s = spm_vocab();
    s.scores[0] = std::numeric_limits<float>::infinity();
    const Token ab = add(s, "ab", TokenType::normal, -std::numeric_limits<float>::infinity());
    add(s, "a");
    add(s, "b");
    s.add_space_prefix = false;
    CHECK(must_create(std::move(s)).encode("ab") == Ids{ab});

    v = byte_vocab();
    v.tokens['q'] = "not a byte";
    CHECK(must_create(v).encode("aqb") == Ids{'a', 'b'});
    v.unk = 1;
    CHECK(must_create(v).encode("aqb") == Ids{'a', 1, 'b'});
}
