// tokenizer.json files in the form of the families people run, against ids from the Hugging Face tokenizers
// package (make_families.py): code, numbers, many scripts, combining marks, white space, special tokens in
// text.
#include "src/text/hf_vocab.h"
#include "tests/text/common.h"

using namespace nibble;
using namespace nibble::text_test;

namespace {

struct Family {
    std::string name, pre;  // `pre`: the GGUF name of its way of splitting, empty for SentencePiece
};

}  // namespace

TEST_CASE("a GGUF file that states merges instead of scores gives the same ids") {
    const auto document = json_file(root / "tests/data/families/gemma.json");
    auto vocab = vocab_from_hf({document["tokenizer"].dump(), "", "", ""}, "tokenizer.json");
    REQUIRE(vocab);
    const auto read = [&](const std::vector<std::string>& merges) {
        Metadata m("here.gguf");
        m.set("general.architecture", std::string("gemma4"));
        write_vocab(*vocab, m);
        m.set("tokenizer.ggml.model", std::string("gemma4"));
        m.set("tokenizer.ggml.merges", MetaArray(merges));
        return read_vocab(*TensorFile::in_memory(std::move(m), {}, nullptr, false));
    };
    std::vector<std::string> merges;
    for (const auto& m : document["tokenizer"]["model"]["merges"])
        merges.push_back(m.is_string() ? m.get<std::string>()
                                       : m[0].get<std::string>() + " " + m[1].get<std::string>());
    auto stated = read(merges);
    REQUIRE_MESSAGE(stated, (stated ? "" : stated.error().message()));
    CHECK(stated->scores == vocab->scores);
    const Tokenizer tokenizer = must_create(std::move(*stated));
    for (const auto& c : document["cases"])
        CHECK(tokenizer.encode(c["text"].get<std::string>(), special) == c["ids"].get<std::vector<Token>>());
    merges.push_back("no such");
    const auto refused = read(merges);
    REQUIRE(!refused);
    CHECK(contains(refused.error().message(), "tokenizer.ggml.merges"));
}

TEST_CASE("the ids of every family's tokenizer.json are those of the tokenizers package") {
    const Family families[] = {{"gpt2", "gpt-2"},
                               {"qwen2", "qwen2"},
                               {"qwen35", "qwen35"},
                               {"llama3", "llama-bpe"},
                               {"tekken", "tekken"},
                               {"o200k", "gpt-4o"},
                               {"smollm", "smollm"},
                               {"deepseek_coder", "deepseek-coder"},
                               {"deepseek_v3", "deepseek-v3"},
                               {"seed", "seed-coder"},
                               {"laguna", "laguna"},
                               {"tiny_aya", "tiny_aya"},
                               {"afmoe", "afmoe"},
                               {"llama2", ""},
                               {"gemma", ""}};
    for (const Family& f : families) {
        CAPTURE(f.name);
        const auto document = json_file(root / "tests/data/families" / (f.name + ".json"));
        auto vocab = vocab_from_hf({document["tokenizer"].dump(), "", "", ""}, "tokenizer.json");
        REQUIRE_MESSAGE(vocab, (vocab ? "" : vocab.error().message()));
        CHECK(vocab->pre == f.pre);
        const bool composes = f.name.starts_with("qwen");
        CHECK(vocab->nfc == composes);
        const bool bpe = vocab->model == Vocab::Model::bpe;
        const Tokenizer tokenizer = must_create(std::move(*vocab));
        REQUIRE(document["cases"].size() > 100);
        size_t wrong = 0;
        for (const auto& c : document["cases"]) {
            INFO(c.dump());
            const auto text = c["text"].get<std::string>();
            const auto ids = tokenizer.encode(text, special);
            CHECK(ids == c["ids"].get<std::vector<Token>>());
            wrong += ids != c["ids"].get<std::vector<Token>>();
            if (bpe && !composes) CHECK(tokenizer.decode(ids) == text);
        }
        MESSAGE(f.name << ": " << document["cases"].size() - wrong << " of " << document["cases"].size());
    }
}
