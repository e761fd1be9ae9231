// GGUF files from before latent attention was stored by head: attn_kv_b in one piece and the lengths of whole
// heads. Made from what the converter writes.
#include <doctest/doctest.h>
#include <unistd.h>

#include "ggml/file/gguf_writer.h"
#include "src/model/vocab_file.h"
#include "src/quant/convert.h"
#include "tests/golden/single_sequence.h"
#include "tests/nmse.h"

using namespace nibble;
namespace fs = std::filesystem;

namespace {

const fs::path folder = fs::path(NIBBLE_SOURCE_DIR) / "tests/golden/models/deepseek_v2";

void write_gguf(const fs::path& path) {
    const auto model = open_model(std::move(*TensorFile::open(folder)));
    REQUIRE(model);
    const auto vocab = read_vocab((*model)->file);
    REQUIRE(vocab);
    const auto plan = plan_conversion(**model, {*find_recipe("f32"), true, {}});
    REQUIRE(plan);
    ThreadPool pool(1);
    REQUIRE(convert(**model, *vocab, *plan, path, pool));
}

// Rows of kv_b as `type`.
std::vector<std::byte> encoded(const TensorInfo& t, Type type) {
    const size_t n = static_cast<size_t>(t.rows() * t.cols());
    std::vector<float> values(n);
    info(t.type).decode(t.data.data(), values.data(), n);
    std::vector<std::byte> bytes(static_cast<size_t>(t.rows()) * *row_bytes(type, t.cols()));
    info(type).encode(values.data(), bytes.data(), n);
    return bytes;
}

void write_older(const fs::path& from, const fs::path& to, Type type) {
    const auto checkpoint = TensorFile::open(folder);
    const auto gguf = TensorFile::open(from);
    REQUIRE(gguf);
    auto writer = GgufWriter::create(to);
    REQUIRE(writer);
    for (const Metadata::Entry& e : gguf->metadata().entries())
        if (e.key.find("length_mla") == std::string::npos) writer->metadata().set(e.key, e.value);
    writer->metadata().set("deepseek2.attention.head_count_kv", uint32_t{4});
    writer->metadata().set("deepseek2.attention.key_length", uint32_t{28});
    writer->metadata().set("deepseek2.attention.value_length", uint32_t{12});
    struct Part {
        std::string name;
        Type type;
        std::vector<int64_t> ne;
        std::vector<std::byte> bytes;
    };
    std::vector<Part> parts;
    for (const TensorInfo& t : gguf->tensors())
        if (t.name.find("attn_k_b") == std::string::npos && t.name.find("attn_v_b") == std::string::npos)
            parts.push_back({std::string(t.name),
                             t.type,
                             {t.ne.begin(), t.ne.begin() + t.n_dims},
                             {t.data.begin(), t.data.end()}});
    for (const TensorInfo& t : checkpoint->tensors())
        if (const size_t at = t.name.find(".self_attn.kv_b_proj"); at != std::string_view::npos)
            parts.push_back({cat("blk.", t.name.substr(at - 1, 1), ".attn_kv_b.weight"),
                             type,
                             {t.ne[0], t.ne[1]},
                             encoded(t, type)});
    for (const Part& p : parts) REQUIRE(writer->declare(p.name, p.type, p.ne).ok());
    REQUIRE(writer->begin().ok());
    for (const Part& p : parts) REQUIRE(writer->write(p.name, p.bytes).ok());
    REQUIRE(writer->finish().ok());
}

std::vector<float> logits(const fs::path& path) {
    auto s = SingleSequence::load(path, Type::f32);
    REQUIRE_MESSAGE(s, (s ? "" : s.error().message()));
    std::vector<int32_t> tokens;
    for (int32_t i = 0; i < 40; ++i) tokens.push_back(3 + i * 7 % 190);
    const auto y = s->feed(tokens);
    REQUIRE(y);
    return {y->begin(), y->end()};
}

}  // namespace

TEST_CASE("keys and values out of the latent in one tensor, as older files have them") {
    const fs::path dir = fs::temp_directory_path() / cat("nibble-latent-", ::getpid());
    fs::create_directories(dir);
    write_gguf(dir / "new.gguf");
    const auto expected = logits(dir / "new.gguf");
    CHECK(expected == logits(folder));
    write_older(dir / "new.gguf", dir / "old.gguf", Type::f32);
    CHECK(logits(dir / "old.gguf") == expected);
    write_older(dir / "new.gguf", dir / "old8.gguf", Type::q8_0);
    const double error = nmse(expected, logits(dir / "old8.gguf"));
    CHECK(error < 1e-3);
    CHECK(error > 0);
    fs::remove_all(dir);
}
