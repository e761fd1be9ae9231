// tokenizer.json in its dialects: what is honoured, what is refused by name, what is damaged.
// Documents are made here; the bundled model's real one is in the other tests.
#include "src/text/hf_vocab.h"

#include "ggml/file/gguf_writer.h"
#include "tests/text/common.h"

using namespace nibble;
using namespace nibble::text_test;
using Json = nlohmann::json;

namespace {

using Ids = std::vector<Token>;
const std::string sp = "\xE2\x96\x81";

Json byte_level() {
    Json vocab;
    for (size_t b = 0; b < 256; ++b) vocab[byte_alphabet()[b]] = b;
    vocab["ab"] = 256;
    vocab["abc"] = 257;
    return {{"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", {"a b", "ab c"}}}},
            {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
            {"added_tokens",
             {{{"id", 258}, {"content", "<end>"}, {"special", true}, {"rstrip", true}},
              {{"id", 260}, {"content", "<user>"}, {"special", false}}}}};
}

Json sentencepiece() {
    Json vocab = {{"<unk>", 0}, {sp, 1}, {"a", 2}, {"b", 3}, {"ab", 4}, {sp + "ab", 5}};
    for (int b = 0; b < 256; ++b)
        vocab[cat("<0x", "0123456789ABCDEF"[b / 16], "0123456789ABCDEF"[b % 16], ">")] = 6 + b;
    return {{"model",
             {{"type", "BPE"},
              {"byte_fallback", true},
              {"unk_token", "<unk>"},
              {"vocab", vocab},
              {"merges", Json::array({Json::array({"a", "b"}), Json::array({sp, "ab"})})}}},
            {"normalizer",
             {{"type", "Sequence"},
              {"normalizers",
               {{{"type", "Prepend"}, {"prepend", sp}},
                {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", sp}}}}}},
            {"added_tokens", {{{"id", 0}, {"content", "<unk>"}, {"special", true}}}}};
}

Vocab must_read(const Json& tokenizer, const Json& tokenizer_config = nullptr,
                const Json& generation = nullptr) {
    const auto text = [](const Json& j) { return j.is_null() ? std::string() : j.dump(); };
    auto v = vocab_from_hf({text(tokenizer), text(tokenizer_config), text(generation), ""}, "tokenizer.json");
    REQUIRE_MESSAGE(v, (v ? "" : v.error().message()));
    return std::move(*v);
}

std::string text_refusal(const std::string& tokenizer) {
    const auto v = vocab_from_hf({tokenizer, "", "", ""}, "here.json");
    REQUIRE(!v);
    CHECK(contains(v.error().message(), "here.json"));
    return v.error().message();
}
std::string refusal(const Json& tokenizer) { return text_refusal(tokenizer.dump()); }

}  // namespace

TEST_CASE("byte-level: tokens, merges in both spellings, added tokens, gaps") {
    Json j = byte_level();
    const Vocab v = must_read(j);
    CHECK(v.model == Vocab::Model::bpe);
    CHECK(v.pre == "gpt-2");
    CHECK(v.tokens.size() == 261);
    CHECK(v.types[259] == static_cast<uint8_t>(TokenType::unused));
    CHECK(v.strip_right == Ids{258});
    const Tokenizer t = must_create(v);
    CHECK(t.encode("abcab") == Ids{257, 256});
    CHECK(t.encode("<end>\nx<user>\n", special) == Ids{258, 'x', 260, '\n'});
    j["model"]["merges"] = Json::array({Json::array({"a", "b"}), Json::array({"ab", "c"})});
    CHECK(must_read(j).merges == v.merges);
}

TEST_CASE("byte-level: sequences of pre-tokenizers become passes") {
    Json j = byte_level();
    const Json bytes = {{"type", "ByteLevel"}, {"use_regex", false}};
    const auto with = [&](const Json& first) {
        j["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {first, bytes}}};
        return must_read(j).split_regexes;
    };
    const Json split = {{"type", "Split"}, {"pattern", {{"Regex", "x+"}}}, {"behavior", "Isolated"}};
    CHECK(with(split) == std::vector<std::string>{"x+"});
    CHECK(with({{"type", "Digits"}, {"individual_digits", true}}) == std::vector<std::string>{"\\p{N}"});
    CHECK(with({{"type", "Digits"}, {"individual_digits", false}}) == std::vector<std::string>{"\\p{N}+"});
    CHECK(must_read(j).pre.empty());
    j["normalizer"] = {{"type", "NFC"}};
    CHECK(must_read(j).tokens.size() == 261);
    Json merged = split;
    merged["behavior"] = "MergedWithPrevious";
    for (const Json& first : {merged, Json{{"type", "Whitespace"}}, bytes}) {
        j["pre_tokenizer"]["pretokenizers"][0] = first;
        CHECK(contains(refusal(j), "not implemented"));
    }
}

TEST_CASE("ids, end tokens, BOS and the chat template") {
    Json j = byte_level();
    j["post_processor"] = {
        {"type", "TemplateProcessing"},
        {"single", {{{"SpecialToken", {{"id", "<end>"}}}}, {{"Sequence", {{"id", "A"}}}}}}};
    Vocab v = must_read(
        j, {{"bos_token", {{"content", "<end>"}}}, {"eos_token", "<user>"}, {"chat_template", "one"}},
        {{"eos_token_id", {258, 260, 9999, -1, "x"}}});
    CHECK(v.bos == 258);
    CHECK(v.add_bos);
    CHECK(!v.add_eos);
    CHECK(v.eos == 260);
    CHECK(v.end_of_generation == Ids{258, 260});
    CHECK(v.chat_template == "one");
    v = must_read(j,
                  {{"add_bos_token", false},
                   {"chat_template",
                    {{{"name", "tool"}, {"template", "t"}}, {{"name", "default"}, {"template", "d"}}}}},
                  {{"eos_token_id", 258}});
    CHECK(v.bos == 258);
    CHECK(!v.add_bos);
    CHECK(v.eos == 258);
    CHECK(v.chat_template == "d");
}

TEST_CASE("many ends are named once each, many post-processors are refused") {
    Json j = byte_level();
    Json ends = Json::array();
    for (size_t i = 0; i < 600; ++i) ends.push_back(i * 7 % 200);
    const Vocab v = must_read(j, {{"eos_token", "<end>"}}, {{"eos_token_id", ends}});
    REQUIRE(v.end_of_generation.size() == 201);
    CHECK(v.end_of_generation[1] == 7);
    CHECK(v.end_of_generation.back() == 258);
    const Json processor = {{"type", "TemplateProcessing"},
                            {"single", {{{"SpecialToken", {{"id", "<end>"}}}}}}};
    j["post_processor"] = {{"type", "Sequence"}, {"processors", Json::array()}};
    for (int i = 0; i < 64; ++i) j["post_processor"]["processors"].push_back(processor);
    CHECK(must_read(j).bos == 258);
    j["post_processor"]["processors"].push_back(processor);
    CHECK(contains(refusal(j), "post_processor has 65"));
}

TEST_CASE("sentencepiece: merges become scores, spaces by normalizer or Metaspace") {
    Json j = sentencepiece();
    Vocab v = must_read(j);
    CHECK(v.model == Vocab::Model::spm);
    CHECK(v.add_space_prefix);
    CHECK(v.unk == 0);
    CHECK(v.scores[4] == 0);
    CHECK(v.scores[5] == -1);
    CHECK(v.scores[2] == -3);
    const Tokenizer t = must_create(v);
    CHECK(t.encode("ab ab\n") == Ids{5, 5, 6 + '\n'});
    CHECK(t.decode(t.encode("ab ab\n")) == "ab ab\n");

    j["normalizer"] = nullptr;
    CHECK(contains(refusal(j), "keeps spaces"));
    j["pre_tokenizer"] = {
        {"type", "Metaspace"}, {"replacement", sp}, {"prepend_scheme", "first"}, {"split", false}};
    v = must_read(j);
    CHECK(v.add_space_prefix);
    CHECK(v.prefix_first_only);
    j["pre_tokenizer"]["prepend_scheme"] = "never";
    CHECK(!must_read(j).add_space_prefix);
    j["pre_tokenizer"]["split"] = true;
    CHECK(contains(refusal(j), "Metaspace"));
    // Gemma: spaces replaced, then a split at spaces that finds none.
    j["normalizer"] = sentencepiece()["normalizer"]["normalizers"][1];
    j["pre_tokenizer"] = {
        {"type", "Split"}, {"pattern", {{"String", " "}}}, {"behavior", "MergedWithPrevious"}};
    CHECK(!must_read(j).add_space_prefix);
}

TEST_CASE("what is not implemented is named") {
    const auto with = [](const std::string& pointer, const Json& value) {
        Json j = byte_level();
        j[Json::json_pointer(pointer)] = value;
        return refusal(j);
    };
    CHECK(contains(with("/model/type", "Unigram"), "Unigram"));
    CHECK(contains(with("/model/type", "WordPiece"), "WordPiece"));
    CHECK(contains(with("/model/end_of_word_suffix", "</w>"), "end_of_word_suffix"));
    CHECK(contains(with("/model/continuing_subword_prefix", "##"), "continuing_subword_prefix"));
    CHECK(contains(with("/model/dropout", 0.1), "dropout"));
    CHECK(contains(with("/normalizer", {{"type", "Lowercase"}}), "Lowercase"));
    CHECK(contains(with("/pre_tokenizer/type", "Punctuation"), "ByteLevel"));
    CHECK(contains(with("/pre_tokenizer/add_prefix_space", true), "add_prefix_space"));
    CHECK(contains(with("/added_tokens/1/single_word", true), "single_word"));
    Json j = sentencepiece();
    j["normalizer"]["normalizers"][0] = {{"type", "NFKC"}};
    CHECK(contains(refusal(j), "NFKC"));
}

TEST_CASE("damaged documents") {
    CHECK(contains(text_refusal("{"), "JSON"));
    CHECK(contains(text_refusal("[]"), "type"));
    CHECK(contains(text_refusal("\"\xFF\""), "JSON"));
    CHECK(contains(text_refusal(std::string(100'000, '[')), "deeper"));
    CHECK(contains(
        text_refusal("{\"pre_tokenizer\":" + std::string(100'000, '[') + std::string(100'000, ']') + "}"),
        "deeper"));
    Json j = byte_level();
    for (const Json& id : {Json(-1), Json(1e9), Json(4'000'000'000u), Json("7"), Json(nullptr), Json(1.5)}) {
        j["model"]["vocab"]["zz"] = id;
        CHECK(contains(refusal(j), "zz"));
    }
    j = byte_level();
    for (const Json& id : {Json{{"a", 1}}, Json::array({1}), Json(true)}) {
        j["model"]["vocab"]["zz"] = id;
        CHECK(contains(refusal(j), "'zz' has the impossible id"));
    }
    j = byte_level();
    for (const Json& merge :
         {Json(7), Json(nullptr), Json::array(), Json::array({"a"}), Json::array({"a", 3}), Json{{"a", "b"}},
          Json::array({"a", "b", "c"}), Json::array({Json::array({"a", "b"}), "c"})}) {
        j["model"]["merges"][0] = merge;
        CHECK(contains(refusal(j), "merges"));
    }
    j = sentencepiece();
    j["model"]["merges"][0] = "b a";
    CHECK(contains(refusal(j), "ba"));
    j = byte_level();
    j["added_tokens"] = 5;
    CHECK(contains(refusal(j), "id"));
    j["model"]["vocab"] = Json::array();
    CHECK(contains(refusal(j), "vocab"));
    j = byte_level();
    j["model"]["ignore_merges"] = "yes";
    CHECK(contains(refusal(j), "'ignore_merges' is neither true nor false"));
    const auto flags = vocab_from_hf({byte_level().dump(), R"({"add_bos_token": 1})", "", ""}, "here.json");
    REQUIRE(!flags);
    CHECK(contains(flags.error().message(), "tokenizer_config.json: 'add_bos_token'"));
    const auto config = vocab_from_hf({byte_level().dump(), "{", "", ""}, "here.json");
    REQUIRE(!config);
    CHECK(contains(config.error().message(), "tokenizer_config.json"));
}

TEST_CASE("of members of one name the last one counts") {
    const std::string whole = byte_level().dump(), model = byte_level()["model"].dump();
    // Another model before it, and within it lists before its own.
    const std::string other = R"({"type": "BPE", "vocab": {"zz": 7}, "merges": ["z z", ["y", "y"]]})";
    const auto v = vocab_from_hf({cat(R"({"model":)", other, ",", whole.substr(1)), "", "", ""}, "here.json");
    REQUIRE(v);
    CHECK(v->tokens == must_read(byte_level()).tokens);
    CHECK(v->merges == std::vector<std::string>{"a b", "ab c"});
    std::string twice = whole;
    const size_t at = twice.find(model);
    REQUIRE(at != std::string::npos);
    twice.insert(at + 1, R"("vocab": {"zz": 7}, "merges": ["z z"],)");
    const auto w = vocab_from_hf({twice, "", "", ""}, "here.json");
    REQUIRE(w);
    CHECK(w->tokens == v->tokens);
    CHECK(w->merges == v->merges);
    // A pair goes with its list, also where something else stands in the next one.
    Json objects = byte_level();
    objects["model"]["merges"] = Json::array({Json{{"x", "y"}}});
    twice = objects.dump();
    const size_t second = twice.find(R"("merges")");
    REQUIRE(second != std::string::npos);
    twice.insert(second, R"("merges": [["a", "b"]],)");
    CHECK(contains(text_refusal(twice), "no pair"));
}

TEST_CASE("tokens and merges elsewhere are not the model's") {
    Json j = byte_level();
    j["decoder"] = {{"vocab", {{"zz", 1}}}, {"merges", {"z z", Json::array({"y"})}}};
    j["model"]["other"] = {{"vocab", {{"zz", 1}}}, {"merges", {7}}};
    const Vocab v = must_read(j);
    CHECK(v.tokens == must_read(byte_level()).tokens);
    CHECK(v.merges.size() == 2);
}

TEST_CASE("a vocabulary written to GGUF metadata and read back encodes alike") {
    // What GGUF has no key for travels under nibble.tokenizer.*.
    Json j = byte_level();
    j["pre_tokenizer"] = {{"type", "Sequence"},
                          {"pretokenizers",
                           {{{"type", "Split"}, {"pattern", {{"Regex", "ab|."}}}, {"behavior", "Isolated"}},
                            {{"type", "ByteLevel"}, {"use_regex", false}}}}};
    j["model"]["ignore_merges"] = true;
    const Vocab v = must_read(j);
    const auto path = std::filesystem::temp_directory_path() / "nibble_hf_vocab_test.gguf";
    auto writer = GgufWriter::create(path);
    REQUIRE(writer);
    writer->metadata().set("general.architecture", std::string("llama"));
    write_vocab(v, writer->metadata());
    const Metadata& m = writer->metadata();
    CHECK(m.contains("nibble.tokenizer.split_regexes"));
    CHECK(m.contains("nibble.tokenizer.strip_right"));
    CHECK(!m.contains("nibble.tokenizer.strip_left"));
    REQUIRE(writer->begin());
    REQUIRE(writer->finish());
    const Tokenizer before = must_create(v), after = open_tokenizer(path);
    std::filesystem::remove(path);
    CHECK(after.vocab().split_regexes == v.split_regexes);
    CHECK(after.vocab().tokens == v.tokens);
    CHECK(after.vocab().types == v.types);
    CHECK(before.encode("abc<end> \nx", special) == Ids{256, 'c', 258, 'x'});
    CHECK(after.encode("abc<end> \nx", special) == Ids{256, 'c', 258, 'x'});
}

TEST_CASE("what ends a part of an answer does not end the answer") {
    Vocab v = byte_vocab();
    const Token end = add(v, "<|end|>", TokenType::control);
    CHECK(must_create(v).is_end_of_generation(end));  // Phi-3
    CHECK(!must_create(v).thought_tokens());
    for (const char* more : {"<|return|>", "<|call|>", "<|start|>", "<|channel|>", "<|message|>"})
        add(v, more, TokenType::control);
    v.eot = end;
    const Tokenizer parts = must_create(v);  // gpt-oss
    CHECK(!parts.is_end_of_generation(end));
    REQUIRE(parts.thought_tokens());
    CHECK(parts.thought_tokens()->close == end);
    CHECK(parts.ends().size() == 2);
}

TEST_CASE("special tokens swallow what Unicode calls white space") {
    Vocab v = byte_vocab();
    const Token left = add(v, "<l>", TokenType::control), right = add(v, "<r>", TokenType::control);
    v.strip_left = {left};
    v.strip_right = {right};
    const Tokenizer t = must_create(v);
    CHECK(t.encode("x\xE3\x80\x80 \t<l>y", special) == std::vector<Token>{'x', left, 'y'});
    CHECK(t.encode("x<r>\xC2\xA0\n\xE3\x80\x80y", special) == std::vector<Token>{'x', right, 'y'});
    CHECK(t.encode("\xE3\x80\x80<l><r>\xC2\xA0", special) == std::vector<Token>{left, right});
    // Half a character is none.
    CHECK(t.encode("<r>\xC2y", special) == std::vector<Token>{right, 0xC2, 'y'});
}
