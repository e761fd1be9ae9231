// A model split into parts, as a user meets it: what opens it, what is missing, what its names are.
// How parts are read and checked is tested in tests/file/gguf_test.cpp.
#include <cstdlib>

#include "ggml/file/gguf_writer.h"
#include "ggml/file/tensor_file.h"
#include "tests/cli/common.h"

using namespace nibble;
using namespace nibble::cli_test;

namespace {

const std::string whole = (root / "models/fairytale-int8.gguf").string();

// The bundled model in two parts, DIR/tale-0000N-of-00002.gguf.
struct SplitModel : Scratch {
    std::string first = part(1), second = part(2);

    SplitModel() {
        const auto model = TensorFile::open(whole);
        REQUIRE(model);
        const auto& tensors = model->tensors();
        for (const uint16_t no : {uint16_t{0}, uint16_t{1}}) {
            auto w = GgufWriter::create(part(no + 1));
            REQUIRE(w);
            if (no == 0) w->metadata() = model->metadata();
            w->metadata().set("split.no", no);
            w->metadata().set("split.count", uint16_t{2});
            w->metadata().set("split.tensors.count", static_cast<int32_t>(tensors.size()));
            const auto of_part = [&](auto&& body) {
                size_t i = 0;
                for (const TensorInfo& t : tensors)
                    if ((i++ < tensors.size() / 2) == (no == 0)) body(t);
            };
            of_part([&](const TensorInfo& t) {
                REQUIRE(
                    w->declare(t.name, t.type, std::span(t.ne).first(static_cast<size_t>(t.n_dims))).ok());
            });
            REQUIRE(w->begin().ok());
            of_part([&](const TensorInfo& t) { REQUIRE(w->write(t.name, t.data).ok()); });
            REQUIRE(w->finish().ok());
        }
    }
    std::string part(int n) const { return (dir / cat("tale-0000", n, "-of-00002.gguf")).string(); }
};

std::string answer(const std::string& model) {
    return nibble_cli({"run", "--raw", "-m", model, "-p", "Once", "-n", "8", "--temp", "0", "-q"}).out;
}

}  // namespace

TEST_CASE("a split model runs, is inspected and converted by its first part, its folder, its name") {
    const SplitModel m;
    const std::string expected = answer(whole);
    REQUIRE(!expected.empty());
    CHECK(answer(m.first) == expected);
    CHECK(answer(m.dir) == expected);
    const auto inspect = [](const std::string& model) {
        const std::string out = nibble_cli({"inspect", model, "--no-metadata"}).out;
        return out.substr(std::min(out.find('\n'), out.size()));
    };
    CHECK(inspect(m.first) == inspect(whole));
    const std::string small = (m.dir / "small.bin").string();
    CHECK(nibble_cli({"quantize", m.first, small, "--type", "int4", "--no-search"}).code == 0);
    CHECK(!answer(small).empty());

    m.file("best-of-all.gguf", "");  // no part of anything
    ::setenv("NIBBLE_MODEL_FOLDERS", m.dir.c_str(), 1);
    CHECK(nibble_cli({"models", "--names"}).out.starts_with("best-of-all\ntale\n"));
    for (const char* name : {"tale", "tale-00001-of-00002", "tale-00001-of-00002.gguf"})
        CHECK(answer(name) == expected);
    ::unsetenv("NIBBLE_MODEL_FOLDERS");
}

TEST_CASE("parts that are missing, elsewhere or renamed are named, with what to do") {
    const SplitModel m;
    const auto refused = [](const std::string& model, int code, std::string_view says) {
        check_refused(nibble_cli({"run", "-p", "x", "-m", model}), code, says);
        check_refused(nibble_cli({"quantize", model, "/nowhere/x.gguf", "--type", "int4"}), code, says);
    };
    refused(m.second, 2, "is part 2 of 2 of a split model (open the first part, 'tale-00001-of-00002.gguf')");
    const fs::path elsewhere = m.dir / "elsewhere";
    fs::create_directory(elsewhere);
    fs::rename(m.second, elsewhere / "tale-00002-of-00002.gguf");
    refused(m.first, 1, cat(m.second, ": part 2 of 2 of the model is missing (download all parts into one"));
    refused((elsewhere / "tale-00002-of-00002.gguf").string(), 2,
            "whose first part, 'tale-00001-of-00002.gguf', is not beside it (download all parts");
    refused(elsewhere.string(), 1,
            "holds 'tale-00002-of-00002.gguf' but not the first part of that split model, "
            "'tale-00001-of-00002.gguf' (download all parts");
    fs::rename(m.first, elsewhere / "tale.gguf");
    refused((elsewhere / "tale.gguf").string(), 2, "but its name does not say so (rename the parts");
}

TEST_CASE("one file is not written under the name of a part") {
    const Scratch s;
    const std::string part = (s.dir / "q-00001-of-00002.gguf").string(),
                      fix = cat("call it ", (s.dir / "q.gguf").string());
    check_refused(nibble_cli({"quantize", whole, part, "--type", "int4"}), 2, fix);
    check_refused(nibble_cli({"synth", "--shape", "qwen3-0.6b", "-o", part, "--force"}), 2, fix);
    CHECK(!fs::exists(part));
}
