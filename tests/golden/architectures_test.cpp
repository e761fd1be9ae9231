// Every folder of tests/golden/models (make_architectures.py) against logits from Hugging Face transformers.
// As the folder, as the GGUF file that the converter makes of it, and at 8 and 4 bits.
#include <algorithm>
#include <cmath>
#include <cstring>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "ggml/base/mapped_file.h"
#include "ggml/file/gguf_writer.h"
#include "tests/exact_cpu.h"
#include "tests/golden/checkpoints.h"
#include "tests/golden/single_sequence.h"
#include "tests/large_vocabulary.h"

using namespace nibble;
namespace fs = std::filesystem;

namespace {

struct Case {
    int32_t ctx = 0;
    std::vector<int32_t> ids, rows, greedy;
    std::vector<std::vector<float>> logits;  // one per entry of `rows`
    // Of the layer or the assistant that guesses further ahead: for each of `rows`, and one token behind the
    // last.
    std::vector<std::vector<float>> predicted;
};

std::vector<Case> read_cases(const fs::path& folder) {
    const auto text = read_text_file(folder / "expected.json");
    REQUIRE(text);
    std::vector<Case> cases;
    const auto json = nlohmann::json::parse(*text);
    for (const auto& c : json["cases"])
        cases.push_back({c["ctx"], c["ids"], c["rows"], c["greedy"], c["logits"],
                         c.value("predicted", std::vector<std::vector<float>>())});
    return cases;
}

using Logits = std::vector<std::vector<float>>;

struct Output {
    Logits logits;
    std::vector<int32_t> greedy;
};

int32_t best(std::span<const float> logits) {
    return static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin());
}

// Feeds up to each wanted row in turn, so that a prompt arrives in pieces, and then token by token.
Output run(const fs::path& path, const Case& c, std::shared_ptr<Backend> backend) {
    Output out;
    auto s = SingleSequence::load(path, Type::f32, std::move(backend), c.ctx);
    REQUIRE_MESSAGE(s, (s ? "" : s.error().message()));
    size_t fed = 0;
    const auto feed = [&](std::span<const int32_t> tokens) {
        const auto logits = s->feed(tokens);
        REQUIRE_MESSAGE(logits, (logits ? "" : logits.error().message()));
        out.logits.emplace_back(logits->begin(), logits->end());
    };
    for (const int32_t row : c.rows) {
        const auto end = static_cast<size_t>(row) + 1;
        feed(std::span(c.ids).subspan(fed, end - fed));
        fed = end;
    }
    REQUIRE(fed == c.ids.size());
    for (size_t i = 0; i < c.greedy.size(); ++i) {
        out.greedy.push_back(best(out.logits.back()));
        if (i > 0) out.logits.pop_back();
        feed(std::vector{out.greedy.back()});
    }
    out.logits.pop_back();
    return out;
}

// What a guest's masks say behind each wanted row, of which all before it are read.
Logits block_predictions(SingleSequence& s, const Case& c) {
    Logits out;
    Predictor& predictor = *s.runner().predictor();
    const auto n_vocab = static_cast<size_t>(s.runner().spec().n_vocab);
    size_t fed = 0;
    for (const int32_t row : c.rows) {
        const auto end = static_cast<size_t>(row) + 1;
        REQUIRE(s.feed(std::span(c.ids).subspan(fed, end - fed)));
        REQUIRE(s.read_sources(static_cast<int32_t>(end - fed)));
        const auto logits = s.guess_block(end < c.ids.size() ? c.ids[end] : c.greedy[0]);
        REQUIRE_MESSAGE(logits, (logits ? "" : logits.error().message()));
        CHECK(logits->size() == n_vocab * static_cast<size_t>(predictor.block_size() - 1));
        for (size_t at = 0; at < logits->size(); at += n_vocab)
            out.emplace_back(logits->begin() + at, logits->begin() + at + n_vocab);
        fed = end;
    }
    return out;
}

// What the predictor makes of the text's hidden states and the tokens behind them, in the same pieces, and of
// the state that it has itself behind the last. An assistant takes the last state of each piece alone, and
// its own at the same position.
Logits predictions(const fs::path& path, const fs::path& assistant, const Case& c,
                   std::shared_ptr<Backend> backend) {
    Logits out;
    auto s = SingleSequence::load(path, Type::f32, std::move(backend), c.ctx, true, assistant);
    REQUIRE_MESSAGE(s, (s ? "" : s.error().message()));
    Predictor* const predictor = s->runner().predictor();
    REQUIRE(predictor != nullptr);
    CHECK(predictor->reads_all() == (assistant.empty() || predictor->block_size() > 0));
    if (predictor->block_size() > 0) return block_predictions(*s, c);
    std::vector<int32_t> next(c.ids.begin() + 1, c.ids.end());
    next.push_back(c.greedy[0]);
    std::vector<float> state;
    const auto predict = [&](std::span<const int32_t> tokens, int32_t first, std::span<const float> hidden) {
        const auto states = s->predict(tokens, first, hidden);
        REQUIRE_MESSAGE(states, (states ? "" : states.error().message()));
        state.assign(states->begin(), states->end());
        const auto logits = predictor->logits(predictor->states(), true);
        REQUIRE(logits);
        out.emplace_back(logits->begin(), logits->end());
        const auto first_logits = predictor->logits(predictor->states(), false);
        REQUIRE(first_logits);
        REQUIRE(first_logits->size() <= out.back().size());
        CHECK(std::ranges::equal(*first_logits, std::span(out.back()).first(first_logits->size())));
    };
    size_t fed = 0;
    for (const int32_t row : c.rows) {
        const auto end = static_cast<size_t>(row) + 1;
        REQUIRE(s->feed(std::span(c.ids).subspan(fed, end - fed)));
        auto hidden = s->runner().hidden();
        REQUIRE(hidden);
        if (!predictor->reads_all()) fed = end - 1;
        const auto width = static_cast<size_t>(s->runner().spec().n_embd);
        REQUIRE(hidden->front().size() == (end - fed) * width);
        predict(std::span(next).subspan(fed, end - fed), static_cast<int32_t>(fed), hidden->front());
        fed = end;
    }
    const std::vector<float> last = state;
    predict(std::vector{best(out.back())}, static_cast<int32_t>(predictor->reads_all() ? fed : fed - 1),
            last);
    return out;
}

// Largest difference over all rows, relative to the largest expected logit.
double relative_error(const Logits& got, const Logits& expected) {
    REQUIRE(got.size() == expected.size());
    double difference = 0, largest = 0;
    for (size_t r = 0; r < got.size(); ++r) {
        REQUIRE(got[r].size() == expected[r].size());
        for (size_t i = 0; i < got[r].size(); ++i) {
            const double d = std::fabs(static_cast<double>(got[r][i]) - static_cast<double>(expected[r][i]));
            difference = d <= difference ? difference : d;  // a NaN stays
            largest = std::max(largest, std::fabs(static_cast<double>(expected[r][i])));
        }
    }
    return difference / largest;
}

std::vector<double> log_softmax(const std::vector<float>& x) {
    const double top = *std::ranges::max_element(x);
    double sum = 0;
    for (const float v : x) sum += std::exp(v - top);
    std::vector<double> y;
    for (const float v : x) y.push_back(v - top - std::log(sum));
    return y;
}

// Mean Kullback-Leibler divergence of `got` from `expected`, in nats.
double mean_kl(const Logits& got, const Logits& expected) {
    double sum = 0;
    for (size_t r = 0; r < got.size(); ++r) {
        const auto p = log_softmax(expected[r]), q = log_softmax(got[r]);
        for (size_t i = 0; i < p.size(); ++i) sum += std::exp(p[i]) * (p[i] - q[i]);
    }
    return sum / static_cast<double>(got.size());
}

// A copy of a GGUF file in which the gates and ups of experts are one tensor, as some converters write them.
fs::path joined_gate_up(const fs::path& path, const Scratch& scratch) {
    const auto file = TensorFile::open(path);
    REQUIRE(file);
    fs::path joined = scratch.dir / "joined.gguf";
    auto writer = GgufWriter::create(joined);
    REQUIRE(writer);
    writer->metadata() = file->metadata();
    constexpr std::string_view gate = "ffn_gate_exps", up = "ffn_up_exps";
    const auto is = [](const TensorInfo& t, std::string_view part) {
        return t.name.find(part) != std::string::npos;
    };
    const auto renamed = [&](std::string name, std::string_view to) {
        return name.replace(name.find(gate), gate.size(), to);
    };
    size_t n = 0;
    for (const TensorInfo& t : file->tensors()) {
        if (is(t, up)) continue;
        std::vector<int64_t> ne(t.ne.begin(), t.ne.begin() + t.n_dims);
        if (is(t, gate)) ne[1] *= 2, ++n;
        const std::string name = is(t, gate) ? renamed(t.name, "ffn_gate_up_exps") : t.name;
        REQUIRE(writer->declare(name, t.type, ne));
    }
    REQUIRE(n > 0);
    REQUIRE(writer->begin());
    for (const TensorInfo& t : file->tensors()) {
        if (is(t, up)) continue;
        if (!is(t, gate)) {
            REQUIRE(writer->write(t.name, t.data));
            continue;
        }
        const TensorInfo* const ups = file->find(renamed(t.name, up));
        REQUIRE(ups != nullptr);
        const auto experts = static_cast<size_t>(t.ne[2]), bytes = t.data.size() / experts;
        for (size_t e = 0; e < experts; ++e)
            for (const TensorInfo* half : {&t, ups})
                REQUIRE(
                    writer->write(renamed(t.name, "ffn_gate_up_exps"), half->data.subspan(e * bytes, bytes)));
    }
    REQUIRE(writer->finish());
    return joined;
}

// A copy of a GGUF file in which queries, keys, values and gates of key heads are one tensor, as older files
// have it: that of the checkpoint.
fs::path joined_key_heads(const fs::path& path, const fs::path& folder, const Scratch& scratch) {
    const auto file = TensorFile::open(path), checkpoint = TensorFile::open(folder);
    REQUIRE(file);
    REQUIRE(checkpoint);
    const auto replacement = [&](const TensorInfo& t) -> const TensorInfo* {
        const auto layer = t.name.substr(4, 1);
        const bool linear = t.name.ends_with("attn_gate.weight") || t.name.ends_with("attn_qkv.weight");
        return linear ? checkpoint->find(cat("model.layers.", layer, ".linear_attn.in_proj_qkvz.weight"))
                      : nullptr;
    };
    fs::path joined = scratch.dir / "joined_heads.gguf";
    auto writer = GgufWriter::create(joined);
    REQUIRE(writer);
    writer->metadata() = file->metadata();
    const auto put = [&](const auto& write) {
        for (const TensorInfo& t : file->tensors()) {
            const TensorInfo* const both = replacement(t);
            if (both && t.name.ends_with("attn_gate.weight")) continue;
            const TensorInfo& from = both ? *both : t;
            REQUIRE(write(both ? cat(t.name.substr(0, 6), "ssm_in.weight") : t.name, from));
        }
    };
    put([&](const std::string& name, const TensorInfo& t) {
        return writer->declare(name, t.type, std::vector<int64_t>(t.ne.begin(), t.ne.begin() + t.n_dims));
    });
    REQUIRE(writer->begin());
    put([&](const std::string& name, const TensorInfo& t) { return writer->write(name, t.data); });
    REQUIRE(writer->finish());
    return joined;
}

std::shared_ptr<Backend> cpu_backend() { return std::move(*CpuBackend::create()); }

}  // namespace

TEST_CASE("every architecture agrees with transformers, as a folder and as the GGUF made of it") {
    const Scratch scratch;
    REQUIRE(!golden_checkpoints().empty());
    for (const fs::path& folder : golden_checkpoints()) {
        const std::string name = folder.filename().string();
        SUBCASE(name.c_str()) {
            const fs::path gguf = converted(folder, "f32", scratch);
            const auto opened = open_model(std::move(*TensorFile::open(folder)));
            REQUIRE_MESSAGE(opened, (opened ? "" : opened.error().message()));
            const bool permuted = (*opened)->arch->gguf_permutes_qk;
            const bool rounds = std::ranges::any_of(
                (*opened)->tensors, [](const auto& t) { return rounds_activations(t.second->type); });
            for (const Case& c : read_cases(folder)) {
                CAPTURE(c.ctx);
                const Output reference = run(folder, c, std::make_shared<ReferenceBackend>());
                const double error = relative_error(reference.logits, c.logits);
                CHECK(error < 1e-4);
                CHECK(reference.greedy == c.greedy);

                if (rounds) CHECK(mean_kl(run(folder, c, cpu_backend()).logits, c.logits) < 1e-3);
                const Output fast = run(rounds ? gguf : folder, c, cpu_backend());
                const double cpu_error = relative_error(fast.logits, c.logits);
                CHECK(cpu_error < 1e-4);
                CHECK(fast.greedy == c.greedy);

                // Equal to the last bit where GGUF keeps the order of rows; where it permutes queries and
                // keys, their products are summed in another order.
                const Output other = run(gguf, c, std::make_shared<ReferenceBackend>());
                CHECK(relative_error(other.logits, reference.logits) < 1e-6);
                if (!permuted) CHECK(other.logits == reference.logits);
                CHECK(other.greedy == reference.greedy);
                MESSAGE(name << ": relative error " << error << ", CPU kernels " << cpu_error);
            }
        }
    }
}

TEST_CASE("what guesses further ahead agrees with transformers, as a folder and as GGUF") {
    const Scratch scratch;
    size_t n = 0;
    for (const fs::path& folder : golden_checkpoints())
        for (const Case& c : read_cases(folder)) {
            if (c.predicted.empty()) continue;
            ++n;
            const std::string name = folder.filename().string();
            CAPTURE(name);
            const fs::path assistant = fs::exists(folder / "assistant") ? folder / "assistant" : fs::path();
            const Logits reference = predictions(folder, assistant, c, std::make_shared<ReferenceBackend>());
            CHECK(relative_error(reference, c.predicted) < 1e-4);
            CHECK(relative_error(predictions(folder, assistant, c, exact_cpu()), c.predicted) < 1e-4);
            MESSAGE(name << ": relative error " << relative_error(reference, c.predicted));
            // The text does not know of it: the same bits with and without.
            const Output with = run(folder, c, cpu_backend());
            auto s = SingleSequence::load(folder, Type::f32, cpu_backend(), c.ctx, true, assistant);
            REQUIRE(s);
            const auto logits = s->feed(c.ids);
            REQUIRE(logits);
            CHECK(std::ranges::equal(*logits, with.logits.back()));
            const fs::path gguf = converted(folder, "f32", scratch);
            const fs::path other = assistant.empty() ? assistant : converted(assistant, "f32", scratch);
            const Logits same = predictions(gguf, other, c, std::make_shared<ReferenceBackend>());
            const auto opened = open_model(std::move(*TensorFile::open(folder)));
            REQUIRE(opened);
            CHECK(relative_error(same, reference) < 1e-6);
            if (!(*opened)->arch->gguf_permutes_qk) CHECK(same == reference);
        }
    CHECK(n == 12);
}

TEST_CASE("guesses among the first tokens of a large vocabulary have the logits that they have among all") {
    for (const cpu::KernelTable* table : cpu::compiled_tables()) {
        if (!table->available(cpu::features())) continue;
        for (const bool packs : {true, false}) {
            const auto backend = CpuBackend::create({2, std::string(table->name), packs});
            REQUIRE(backend);
            Backend* const list[] = {backend->get()};
            for (const std::string_view recipe : {"int4", "q8_0", "nf4", "bf16"}) {
                INFO(table->name << " packs " << packs << " " << recipe);
                check_first_tokens(list, recipe);
            }
        }
    }
}

TEST_CASE("gates and ups of experts in one tensor of a GGUF file are those of two") {
    const Scratch scratch;
    for (const std::string_view name : {"mixtral", "gemma4_moe", "granitemoe"})
        for (const std::string_view type : {"f32", "int8", "int4"}) {
            CAPTURE(name);
            CAPTURE(type);
            const fs::path folder = fs::path(NIBBLE_SOURCE_DIR) / "tests/golden/models" / name;
            const Case c = read_cases(folder).front();
            const fs::path apart = converted(folder, type, scratch), joined = joined_gate_up(apart, scratch);
            CHECK(run(joined, c, cpu_backend()).logits == run(apart, c, cpu_backend()).logits);
        }
}

TEST_CASE("a vector that a GGUF file holds with two dimensions is one still, and stays f32") {
    const Scratch scratch;
    const fs::path folder = fs::path(NIBBLE_SOURCE_DIR) / "tests/golden/models/granitehybrid_dense";
    const Case c = read_cases(folder).front();
    const fs::path ours = converted(folder, "f32", scratch), other = scratch.dir / "other.gguf";
    const auto file = TensorFile::open(ours);
    REQUIRE(file);
    auto writer = GgufWriter::create(other);
    REQUIRE(writer);
    writer->metadata() = file->metadata();
    for (const TensorInfo& t : file->tensors()) {
        const auto dims = static_cast<size_t>(t.name.ends_with("ssm_norm.weight") ? 2 : t.n_dims);
        REQUIRE(writer->declare(t.name, t.type, std::span(t.ne).first(dims)));
    }
    REQUIRE(writer->begin());
    for (const TensorInfo& t : file->tensors()) REQUIRE(writer->write(t.name, t.data));
    REQUIRE(writer->finish());
    CHECK(run(other, c, cpu_backend()).logits == run(ours, c, cpu_backend()).logits);
    const auto again = TensorFile::open(converted(other, "int4", scratch));
    REQUIRE(again);
    for (const TensorInfo& t : again->tensors())
        if (t.rows() == 1 || t.cols() == 1) CHECK(t.type == Type::f32);
}

TEST_CASE("a GGUF file is converted as the folder is that it was made of") {
    const Scratch scratch;
    for (const std::string_view name :
         {"granitehybrid_dense", "granitemoehybrid", "qwen3_5", "lfm2_moe", "gemma4"}) {
        CAPTURE(name);
        const fs::path folder = fs::path(NIBBLE_SOURCE_DIR) / "tests/golden/models" / name;
        const auto direct = TensorFile::open(converted(folder, "int8", scratch)),
                   again = TensorFile::open(converted(converted(folder, "bf16", scratch), "int8", scratch));
        REQUIRE(direct);
        REQUIRE(again);
        CHECK(direct->tensors().size() == again->tensors().size());
        for (const TensorInfo& t : direct->tensors()) {
            CAPTURE(t.name);
            const TensorInfo* const other = again->find(t.name);
            REQUIRE(other != nullptr);
            CHECK(other->type == t.type);
            CHECK(other->ne == t.ne);
            CHECK(std::ranges::equal(other->data, t.data));
        }
    }
}

TEST_CASE("key heads in one tensor give the same logits") {
    const Scratch scratch;
    const fs::path folder = fs::path(NIBBLE_SOURCE_DIR) / "tests/golden/models/qwen3_next";
    const Case c = read_cases(folder).front();
    const fs::path apart = converted(folder, "f32", scratch),
                   joined = joined_key_heads(apart, folder, scratch);
    for (const bool reference : {true, false}) {
        const auto backend = [&]() -> std::shared_ptr<Backend> {
            if (reference) return std::make_shared<ReferenceBackend>();
            return exact_cpu();
        };
        CHECK(run(joined, c, backend()).logits == run(folder, c, backend()).logits);
    }
}

TEST_CASE("every architecture runs at 8 and 4 bits and stays close") {
    const Scratch scratch;
    struct Bound {
        std::string_view type;
        double kl;
    };
    for (const fs::path& folder : golden_checkpoints()) {
        const std::string name = folder.filename().string();
        SUBCASE(name.c_str()) {
            const bool rough = name == "qwen3_5" || name == "nemotron_h_moe";
            for (const Bound bound : {Bound{"int8", rough ? 0.05 : 0.02}, Bound{"int4", 0.5}}) {
                CAPTURE(bound.type);
                const Case c = read_cases(folder).front();
                const fs::path gguf = converted(folder, bound.type, scratch);
                const double kl = mean_kl(run(gguf, c, cpu_backend()).logits, c.logits);
                CHECK(kl < bound.kl);
                CHECK(kl > 0);
                MESSAGE(name << " " << std::string(bound.type) << ": mean KL " << kl);
            }
        }
    }
}
