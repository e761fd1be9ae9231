// Keys of a GGUF file that are there and cannot be used: each is refused by its name, never left out
// silently. The file is a small one in memory, with one key changed at a time.
#include "tests/text/common.h"

using namespace nibble;
using namespace nibble::text_test;

namespace {

using Ids = std::vector<Token>;

Vocab small_vocab() {
    Vocab v = byte_vocab();
    v.bos = add(v, "<b>", TokenType::control);  // 256
    v.eos = add(v, "<e>", TokenType::control);
    v.end_of_generation = {257, 256};
    return v;
}

Result<Vocab> read_with(std::string_view key, MetaValue value) {
    Metadata m("here.gguf");
    m.set("general.architecture", std::string("llama"));
    write_vocab(small_vocab(), m);
    m.set(key, std::move(value));
    return read_vocab(NIBBLE_TRY(TensorFile::in_memory(std::move(m), {}, nullptr, false)));
}

Vocab must_read(std::string_view key, MetaValue value) {
    auto v = read_with(key, std::move(value));
    REQUIRE_MESSAGE(v, (v ? "" : v.error().message()));
    return std::move(*v);
}

std::string refusal(std::string_view key, MetaValue value) {
    const auto v = read_with(key, std::move(value));
    INFO(key);
    REQUIRE(!v);
    CHECK(contains(v.error().message(), key));
    CHECK(contains(v.error().message(), "here.gguf"));
    return v.error().message();
}

}  // namespace

TEST_CASE("a key of the wrong type is refused") {
    const std::string word = "1";
    for (const std::string_view key :
         {"tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
          "tokenizer.ggml.padding_token_id", "tokenizer.ggml.token_type", "tokenizer.ggml.eos_token_ids",
          "tokenizer.ggml.add_bos_token", "tokenizer.ggml.add_eos_token", "tokenizer.ggml.add_space_prefix",
          "nibble.tokenizer.nfc", "nibble.tokenizer.ignore_merges", "nibble.tokenizer.prefix_first_only",
          "nibble.tokenizer.strip_left", "nibble.tokenizer.split_regexes"})
        refusal(key, word);
    for (const std::string_view key :
         {"tokenizer.ggml.pre", "tokenizer.chat_template", "nibble.tokenizer.split_regexes"})
        refusal(key, uint32_t{1});
    refusal("tokenizer.ggml.add_bos_token", uint32_t{2});
    refusal("tokenizer.ggml.bos_token_id", 1.0f);
}

TEST_CASE("ids lie within the vocabulary, or say that there is none") {
    constexpr int64_t wraps = (int64_t{1} << 32) + 7;
    CHECK(contains(refusal("tokenizer.ggml.bos_token_id", uint32_t{258}), "258 of 258"));
    refusal("tokenizer.ggml.bos_token_id", -2);
    refusal("tokenizer.ggml.bos_token_id", wraps);
    refusal("tokenizer.ggml.bos_token_id", uint64_t{1} << 63);
    refusal("tokenizer.ggml.eos_token_ids", MetaArray(std::vector<int64_t>{1, wraps}));
    refusal("tokenizer.ggml.eos_token_ids", MetaArray(std::vector<int32_t>{-2}));
    refusal("nibble.tokenizer.strip_right", MetaArray(std::vector<int32_t>{258}));
    CHECK(must_read("tokenizer.ggml.bos_token_id", uint64_t{7}).bos == 7);
    CHECK(!must_read("tokenizer.ggml.bos_token_id", -1).bos);
    CHECK(!must_read("tokenizer.ggml.bos_token_id", uint32_t{0xFFFFFFFF}).bos);
    CHECK(
        must_read("tokenizer.ggml.eos_token_ids", MetaArray(std::vector<int32_t>{-1, 7})).end_of_generation ==
        Ids{257, 7});
}

TEST_CASE("token types are known ones, one for each token") {
    std::vector<int32_t> types(258, 1);
    CHECK(must_read("tokenizer.ggml.token_type", MetaArray(types)).types[9] == 1);
    for (const int32_t wrong : {7, 257, -1}) {
        types[9] = wrong;
        CHECK(contains(refusal("tokenizer.ggml.token_type", MetaArray(types)), cat("unknown type ", wrong)));
    }
    CHECK(contains(refusal("tokenizer.ggml.token_type", MetaArray(std::vector<int32_t>{})), "0 types"));
}
