// TensorFile::open on every kind of path, and on real files: the bundled checkpoint and, where the
// environment variable NIBBLE_TEST_DATA names them, vocabularies of well-known models.
#include "ggml/file/tensor_file.h"

#include <cstdlib>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "ggml/file/quote.h"
#include "tests/file/support.h"

using namespace nibble;
using namespace nibble::test;

namespace {

const fs::path checkpoint = fs::path(NIBBLE_SOURCE_DIR) / "models/fairytale";

std::string tiny_shard(std::string_view name) {
    return safetensors(cat(R"({")", name, R"(":{"dtype":"I8","shape":[1,2],"data_offsets":[0,2]}})"), "zz");
}

void write_gguf(const fs::path& path, Metadata m = {}) {
    auto w = GgufWriter::create(path);
    REQUIRE(w);
    w->metadata() = std::move(m);
    w->metadata().set("general.architecture", "llama");
    REQUIRE(w->begin().ok());
    REQUIRE(w->finish().ok());
}

Error error_of(const fs::path& path) {
    auto f = TensorFile::open(path);
    REQUIRE(!f);
    return f.error();
}

}  // namespace

TEST_CASE("the bundled checkpoint opens from its folder and from its files") {
    for (const char* name : {"", "model.safetensors", "config.json"}) {
        CAPTURE(name);
        auto opened = TensorFile::open(*name ? checkpoint / name : checkpoint);
        REQUIRE(opened);
        const TensorFile f = std::move(*opened);
        CHECK(f.kind() == TensorFile::Kind::hf);
        CHECK(f.config()["model_type"] == "llama");
        CHECK(f.metadata().size() == 0);
        CHECK(f.tensors().size() == 2 + 6 * 9);
        CHECK(f.tensor_bytes() == 11540992);
        CHECK(f.file_bytes() == 11547536);
        const TensorInfo* t = f.find("model.layers.5.mlp.down_proj.weight");
        REQUIRE(t);
        CHECK(t->type == Type::bf16);
        CHECK(t->cols() == 768);
        CHECK(t->rows() == 256);
        CHECK(!f.find("lm_head.weight"));
        CHECK(f.require("lm_head.weight").error().what == "tensor 'lm_head.weight' is missing");
        CHECK(*f.require("model.norm.weight") == f.find("model.norm.weight"));
        float first[4];
        info(Type::bf16).decode(t->data.data(), first, 4);
        for (const float v : first) CHECK(std::abs(v) < 1.0f);
    }
}

TEST_CASE("side files are read when asked for, and only from the folder") {
    auto f = TensorFile::open(checkpoint);
    REQUIRE(f);
    CHECK(f->text("tokenizer.json").value()->size() == 105259);
    CHECK(f->text("generation_config.json").value()->find("top_k") != std::string::npos);
    CHECK(!f->text("chat_template.jinja").value());
    CHECK(f->text("../fairytale/config.json").error().code == ErrorCode::invalid_argument);
    CHECK(!f->text(".."));
}

TEST_CASE("numbers that Python writes and JSON does not have") {
    const TempDir dir;
    write_file(dir / "model.safetensors", tiny_shard("t"));
    write_file(dir / "config.json",
               R"({"limit":[0.0, Infinity], "low":-Infinity, "none":NaN, "text":"NaN \" Infinity \\"})");
    const auto f = TensorFile::open(dir.path());
    REQUIRE_MESSAGE(f, (f ? "" : f.error().message()));
    CHECK(f->config()["limit"].dump() == R"([0.0,{"__float__":"Infinity"}])");
    CHECK(f->config()["low"].dump() == R"({"__float__":"-Infinity"})");
    CHECK(f->config()["none"].dump() == R"({"__float__":"NaN"})");
    CHECK(f->config()["text"] == "NaN \" Infinity \\");
    for (const char* bad : {R"({"a":Infinit})", R"({"a":NaNa})", R"({"a":"NaN)", "{\"a\":NaN,\"b\":\"\\"}) {
        write_file(dir / "config.json", bad);
        CHECK_MESSAGE(error_of(dir.path()).what.find("JSON") != std::string::npos, bad);
    }
}

TEST_CASE("the data stays valid when the file object moves") {
    auto opened = TensorFile::open(checkpoint);
    REQUIRE(opened);
    std::vector<TensorFile> files;
    files.push_back(std::move(*opened));
    files.reserve(10);
    const TensorInfo* t = files[0].find("model.norm.weight");
    REQUIRE(t);
    CHECK(t->data.size() == 512);
    uint32_t sum = 0;
    for (const std::byte b : t->data) sum += static_cast<uint32_t>(b);
    CHECK(sum > 0);
}

TEST_CASE("a model without a file: its data are memory, and free once they are disposed of") {
    const auto bytes = std::make_shared<std::vector<std::byte>>(48);
    TensorInfo t;
    t.name = "t";
    t.type = Type::f32;
    t.ne = {12, 1, 1, 1};
    t.n_dims = 1;
    t.data = *bytes;
    for (const bool disposable : {true, false}) {
        const auto f = TensorFile::in_memory(Metadata("memory"), {t}, bytes, disposable);
        REQUIRE(f);
        CHECK(f->disposable() == disposable);
        CHECK(f->memory_bytes() == (disposable ? 48 : 0));
    }
    CHECK(TensorFile::open(checkpoint)->memory_bytes() == 0);
}

TEST_CASE("GGUF files: alone, and in a folder of their own") {
    const TempDir dir;
    write_gguf(dir / "m.gguf");
    for (const fs::path& path : {dir / "m.gguf", dir.path()}) {
        auto f = TensorFile::open(path);
        REQUIRE(f);
        CHECK(f->kind() == TensorFile::Kind::gguf);
        CHECK(f->path() == dir / "m.gguf");
        CHECK(f->metadata().str("general.architecture") == "llama");
        CHECK(f->config().is_null());
        CHECK(!f->text("m.gguf").value());
    }
    write_file(dir / "config.json", "{}");  // many GGUF repositories carry one
    CHECK(TensorFile::open(dir.path()).value().kind() == TensorFile::Kind::gguf);
    write_file(dir / "model.safetensors", tiny_shard("w"));
    CHECK(TensorFile::open(dir.path()).value().kind() == TensorFile::Kind::hf);
    fs::remove(dir / "model.safetensors");
    write_gguf(dir / "n.gguf");
    CHECK(
        error_of(dir.path()).message() ==
        cat(dir.path().string(), ": holds 2 GGUF models: 'm.gguf', 'n.gguf' (give the path of one of them)"));
}

TEST_CASE("a folder with the parts of one split model opens it") {
    const TempDir dir;
    for (const uint16_t no : {0, 1}) {
        Metadata m;
        m.set("split.no", no);
        m.set("split.count", uint16_t{2});
        write_gguf(dir / cat("m-0000", no + 1, "-of-00002.gguf"), m);
    }
    CHECK(TensorFile::open(dir.path()).value().path() == dir / "m-00001-of-00002.gguf");
}

TEST_CASE("one part of a model without its index is no model") {
    const TempDir dir;
    write_file(dir / "config.json", R"({"model_type":"x"})");
    write_file(dir / "model-00001-of-00002.safetensors", tiny_shard("a"));
    CHECK(error_of(dir.path()).what.find("a part of a model, but no model.safetensors.index.json") !=
          std::string::npos);
    std::filesystem::rename(dir / "model-00001-of-00002.safetensors",
                            dir / "model-00001-of-00001.safetensors");
    CHECK(TensorFile::open(dir.path()));
}

TEST_CASE("sharded folders open from the folder, the index or a shard") {
    const TempDir dir;
    write_file(dir / "config.json", R"({"model_type":"x"})");
    write_file(dir / "a.safetensors", tiny_shard("a"));
    CHECK(TensorFile::open(dir.path()).value().tensors().size() == 1);  // the only one there
    write_file(dir / "b.safetensors", tiny_shard("b"));
    CHECK(error_of(dir.path()).what ==
          "has 2 .safetensors files but neither model.safetensors nor model.safetensors.index.json");
    write_file(dir / "model.safetensors.index.json",
               R"({"weight_map":{"a":"a.safetensors","b":"b.safetensors"}})");
    write_file(dir / "c.safetensors", tiny_shard("c"));
    for (const char* name : {"", "model.safetensors.index.json", "a.safetensors"}) {
        CAPTURE(name);
        auto f = TensorFile::open(*name ? dir / name : dir.path());
        REQUIRE(f);
        CHECK(f->tensors().size() == 2);
        CHECK(f->path() == dir.path());
    }
    CHECK(TensorFile::open(dir / "c.safetensors").value().find("c"));  // not one of the shards
}

TEST_CASE("what cannot be opened says why in one line") {
    const TempDir dir;
    CHECK(error_of(dir / "none").message() ==
          cat((dir / "none").string(), ": no such file or folder (check the path)"));
    CHECK(error_of(dir / "none/below").code == ErrorCode::not_found);
    CHECK(error_of("").code == ErrorCode::not_found);
    CHECK(error_of("/dev/null").what == "is not a regular file");
    CHECK(error_of(dir.path()).what.find("found nothing") != std::string::npos);
    for (int i = 0; i < 8; ++i) write_file(dir / cat("f", i), "x");
    CHECK(error_of(dir.path()).what.find("found 'f0', 'f1', 'f2', 'f3', 'f4', 'f5' and 2 more") !=
          std::string::npos);
    CHECK(error_of(dir / "f0").what == "is not a GGUF file: it does not start with 'GGUF'");
    write_file(dir / "config.json", "{}");
    CHECK(error_of(dir.path()).what.find("has a config.json but no weights") == 0);
    write_file(dir / "pytorch_model.bin", "PK");
    CHECK(error_of(dir.path()).code == ErrorCode::unsupported);
    write_file(dir / "model.safetensors", tiny_shard("w"));
    CHECK(TensorFile::open(dir.path()).ok());
    for (const char* bad : {"", "[]", "{", "{\"a\":nan}", "3"}) {
        write_file(dir / "config.json", bad);
        CHECK_MESSAGE(error_of(dir.path()).where.find("config.json") != std::string::npos, bad);
    }
    write_file(dir / "config.json", std::string(100000, '['));
    CHECK(error_of(dir.path()).what == "nests JSON deeper than 64 levels");
    fs::remove(dir / "config.json");
    CHECK(error_of(dir.path()).what == "has safetensors but no config.json");
    CHECK(error_of(dir / "model.safetensors").what == "has safetensors but no config.json");
}

TEST_CASE("vocabularies of real models") {
    const char* data = std::getenv("NIBBLE_TEST_DATA");
    if (!data || !fs::is_directory(fs::path(data) / "tokenizers")) {
        MESSAGE("skipped: set NIBBLE_TEST_DATA to a folder that has tokenizers/*.gguf");
        return;
    }
    int seen = 0;
    for (const auto& entry : fs::directory_iterator(fs::path(data) / "tokenizers")) {
        if (entry.path().extension() != ".gguf") continue;
        CAPTURE(entry.path().string());
        auto f = TensorFile::open(entry.path());
        REQUIRE(f);
        ++seen;
        CHECK(f->tensors().empty());
        const auto tokens = f->metadata().require_strings("tokenizer.ggml.tokens");
        REQUIRE(tokens);
        CHECK(tokens->size() >= 32000);
        const auto types = f->metadata().require_ints("tokenizer.ggml.token_type");
        REQUIRE(types);
        CHECK(types->size() == tokens->size());
        CHECK(f->metadata().require_str("tokenizer.ggml.model").ok());
    }
    CHECK(seen > 0);
}
