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
