// Tokenizers of well-known models against expected ids, and the bundled one against its reference.
// gpt-2 and phi-3 are in the repository; more are read from $NIBBLE_TEST_DATA/tokenizers when it is set.
#include <cstdlib>
#include <filesystem>

#include "tests/text/common.h"

using namespace nibble;
using namespace nibble::text_test;
namespace fs = std::filesystem;

namespace {

fs::path vocabulary(const std::string& name) {
    const fs::path own = root / "tests/data/tokenizers" / (name + ".gguf");
    if (fs::exists(own)) return own;
    const char* more = std::getenv("NIBBLE_TEST_DATA");
    const fs::path other = more ? fs::path(more) / "tokenizers" / (name + ".gguf") : fs::path();
    return fs::exists(other) ? other : fs::path();
}

}  // namespace

TEST_CASE("Phi-3: special tokens swallow the white space behind them, which a GGUF file does not say") {
    const Tokenizer t = open_tokenizer(root / "tests/data/tokenizers/phi-3.gguf");
    CHECK(t.encode("<|user|>\nHi<|end|>\n<|assistant|>\n", special) ==
          std::vector<Token>{32010, 6324, 32007, 32001});
}

TEST_CASE("expected ids of known vocabularies, and their text back") {
    for (const std::string name : {"gpt-2", "phi-3", "llama-spm", "starcoder", "deepseek-coder"}) {
        INFO(name);
        const fs::path path = vocabulary(name);
        if (path.empty()) {
            MESSAGE(name << " is not checked: set NIBBLE_TEST_DATA to a folder with tokenizers/" << name
                         << ".gguf");
            continue;
        }
        const Tokenizer tokenizer = open_tokenizer(path);
        const nlohmann::json expected = json_file(fs::path(path).replace_extension(".json"));
        REQUIRE(expected["cases"].size() == 46);
        for (const auto& c : expected["cases"]) {
            const auto text = c["text"].get<std::string>();
            INFO(c.dump());
            const auto ids = tokenizer.encode(text, {false, false});
            CHECK(ids == c["ids"].get<std::vector<Token>>());
            CHECK(tokenizer.decode(ids) == text);
        }
    }
}

TEST_CASE("the bundled tokenizer, from tokenizer.json and from the GGUF") {
    const auto golden = json_file(root / "tests/golden/fairytale.json");
    const std::string alice = *read_text_file(root / "tests/data/alice.txt");
    std::vector<Token> first;
    for (const char* model : {"models/fairytale", "models/fairytale-int8.gguf"}) {
        INFO(model);
        const Tokenizer tokenizer = open_tokenizer(root / model);
        for (const auto& prompt : golden["prompts"])
            CHECK(tokenizer.encode(prompt["text"].get<std::string>(), {true, true}) ==
                  prompt["ids"].get<std::vector<Token>>());
        const auto ids = tokenizer.encode(alice);
        CHECK(tokenizer.decode(ids) == alice);
        if (first.empty()) first = ids;
        CHECK(ids == first);
        CHECK(tokenizer.is_end_of_generation(4088));
        CHECK(tokenizer.is_end_of_generation(4090));
        CHECK(!tokenizer.is_end_of_generation(44));
        CHECK(tokenizer.encode("<|im_end|>").size() > 1);
        CHECK(tokenizer.encode("<|im_end|>", {true, true}) == std::vector<Token>{4090});
        CHECK(tokenizer.encode("<think>") == std::vector<Token>{4092});
    }
}
