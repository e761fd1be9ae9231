// What quantize says of models and importance files that it should not take, and of what is lost.
// The files are made here, of a few tensors or of the bundled model's.
#include <cstring>
#include <functional>

#include "ggml/file/gguf_reader.h"
#include "ggml/file/gguf_writer.h"
#include "tests/cli/common.h"

using namespace nibble;
using namespace nibble::cli_test;

namespace {

const std::string checkpoint = (root / "models/fairytale").string();

// An importance file of ones.
std::string importance_of(const Scratch& s, const std::vector<std::string>& tensors, int64_t cols) {
    const fs::path path = s.dir / "imatrix";
    const std::vector<float> ones(static_cast<size_t>(cols), 1.0f);
    const auto bytes = std::as_bytes(std::span(ones));
    auto w = GgufWriter::create(path);
    REQUIRE(w);
    w->metadata().set("general.type", std::string("imatrix"));
    const int64_t sums[] = {cols, 1}, counts[] = {1, 1};
    for (const std::string& t : tensors) {
        REQUIRE(w->declare(t + ".in_sum2", Type::f32, sums));
        REQUIRE(w->declare(t + ".counts", Type::f32, counts));
    }
    REQUIRE(w->begin());
    for (const std::string& t : tensors) {
        REQUIRE(w->write(t + ".in_sum2", bytes));
        REQUIRE(w->write(t + ".counts", bytes.first(sizeof(float))));
    }
    REQUIRE(w->finish());
    return path.string();
}

// A GGUF file of what another holds, as far as `keep` agrees; it may change the bytes.
std::string copied(const Scratch& s, const fs::path& source,
                   const std::function<bool(const std::string& name, std::span<std::byte> data)>& keep) {
    const fs::path path = s.dir / "copy.gguf";
    const auto file = GgufFile::open(source);
    auto w = GgufWriter::create(path);
    REQUIRE(file);
    REQUIRE(w);
    for (const auto& e : file->metadata.entries()) w->metadata().set(e.key, e.value);
    std::vector<std::pair<std::string, std::vector<std::byte>>> kept;
    for (const TensorInfo& t : file->tensors.all()) {
        std::vector<std::byte> data(t.data.begin(), t.data.end());
        if (!keep(t.name, data)) continue;
        REQUIRE(w->declare(t.name, t.type, std::span(t.ne).first(static_cast<size_t>(t.n_dims))));
        kept.emplace_back(t.name, std::move(data));
    }
    REQUIRE(w->begin());
    for (const auto& [name, data] : kept) REQUIRE(w->write(name, data));
    REQUIRE(w->finish());
    return path.string();
}

ProcessResult planned_with(const std::string& importance) {
    return nibble_cli({"quantize", checkpoint, "--type", "int4", "--dry-run", "--importance", importance});
}

}  // namespace

TEST_CASE(
    "quantize: an importance file has to know the model's matrices; those that it leaves out are told") {
    const Scratch s;
    check_refused(planned_with(importance_of(s, {"blk.0.attn_q", "other"}, 4)), 2,
                  "knows no matrix of this model, such as ");
    const ProcessResult some =
        planned_with(importance_of(s, {"blk.0.attn_q.weight", "blk.5.ffn_down.weight"}, 4));
    CHECK(some.code == 0);
    CHECK(some.err.find("nibble: note: 41 of 43 matrices have no importance (") != std::string::npos);
}

TEST_CASE("quantize: an importance file of the older format is named as such, with the way out") {
    const Scratch s;
    const std::string name = "blk.0.attn_q.weight";
    const auto number = [](int32_t n) { return std::string(reinterpret_cast<const char*>(&n), sizeof n); };
    const std::string old =
        cat(number(43), number(static_cast<int32_t>(name.size())), name, number(1), number(1), number(0));
    const std::string path = s.file("old.dat", old);
    check_refused(planned_with(path), 1, cat(path, ": is an importance file of the older format (.dat)"));
    check_refused(planned_with(path), 1, "llama-imatrix --in-file old.dat -o new.gguf");
    check_refused(planned_with(s.file("other.dat", old.substr(0, 10))), 1, "is not a GGUF file");
}

TEST_CASE("quantize: a model that lacks a weight is refused as it is when it is loaded") {
    const Scratch s;
    const std::string part =
        copied(s, root / "models/fairytale-int8.gguf",
               [](const std::string& name, std::span<std::byte>) { return name != "blk.3.ffn_up.weight"; });
    const std::string out = (s.dir / "out.gguf").string(), says = "tensor 'blk.3.ffn_up.weight' is missing";
    check_refused(nibble_cli({"quantize", part, out, "--type", "int8"}), 1, says);
    check_refused(nibble_cli({"run", "-m", part, "-p", "x"}), 1, says);
    CHECK(!fs::exists(out));
}

TEST_CASE("quantize: weights too small for the scales of nvfp4 are told, with the type that has some") {
    const Scratch s;
    const std::string plain = (s.dir / "f32.gguf").string(), out = (s.dir / "out.gguf").string();
    REQUIRE(nibble_cli({"quantize", checkpoint, plain, "--type", "f32"}).code == 0);
    const std::string small = copied(s, plain, [](const std::string& name, std::span<std::byte> data) {
        for (size_t i = 0; name == "blk.2.attn_q.weight" && i < data.size(); i += sizeof(float)) {
            float x;
            std::memcpy(&x, data.data() + i, sizeof x);
            x *= 0.01f;
            std::memcpy(data.data() + i, &x, sizeof x);
        }
        return true;
    });
    const auto says = [&](const std::string& source, const char* type) {
        const ProcessResult r = nibble_cli({"quantize", source, out, "--type", type, "--force"});
        CHECK(r.code == 0);
        return r.err;
    };
    const std::string warned = says(small, "nvfp4");
    CHECK(warned.find("nibble: warning: 1 of the matrices are too small") != std::string::npos);
    CHECK(warned.find("blk.2.attn_q.weight): mxfp4") != std::string::npos);
    CHECK(says(small, "mxfp4").find("warning") == std::string::npos);
    CHECK(says(plain, "nvfp4").find("warning") == std::string::npos);
}
