// convert(): metadata, then tensor after tensor in chunks of rows that the pool encodes.
// Rows are decoded to f32 and encoded again, unless the bytes can be copied as they are.
#include "src/quant/convert.h"

#include <atomic>
#include <cmath>

#include "ggml/base/cat.h"
#include "ggml/file/gguf_writer.h"
#include "src/model/vocab_file.h"

namespace nibble {
namespace {

constexpr int64_t chunk_bytes = 32 << 20;  // f32 bytes of a chunk
constexpr int64_t task_bytes = 256 << 10;  // and of one task of the pool

// Where row `r` of the GGUF order stands in the source: halves of a head interleave into adjacent pairs.
int64_t source_row(int64_t r, int64_t rows, int32_t heads) {
    if (heads == 0) return r;
    const int64_t dim = rows / heads, in_head = r % dim;
    return r - in_head + (in_head % 2) * (dim / 2) + in_head / 2;
}

class TensorConverter {
  public:
    TensorConverter(const TensorPlan& plan, GgufWriter& writer, ThreadPool& pool)
        : plan_(plan), t_(*plan.source), writer_(writer), pool_(pool) {}

    Result<void> run() {
        if (t_.data.empty()) return {};
        if (t_.rows() == 1 && plan_.permuted_heads) return write_permuted_vector();
        const int64_t cols = t_.cols(), per_chunk = std::max<int64_t>(1, chunk_bytes / (cols * 4));
        const auto out_row = static_cast<int64_t>(*row_bytes(plan_.type, cols));
        std::vector<std::byte> out;
        for (int64_t first = 0; first < t_.rows(); first += per_chunk) {
            const int64_t rows = std::min(per_chunk, t_.rows() - first);
            out.resize(static_cast<size_t>(rows * out_row));
            encode_rows(first, rows, out);
            if (bad_) return not_finite();
            NIBBLE_TRY(writer_.write(plan_.name, out));
        }
        return {};
    }

  private:
    Error not_finite() const {
        return {ErrorCode::corrupt, t_.name, "holds a NaN or an infinity",
                "the checkpoint is broken; it is not converted"};
    }

    void encode_rows(int64_t first, int64_t rows, std::span<std::byte> out) {
        const int64_t cols = t_.cols(), per_task = std::max<int64_t>(1, task_bytes / (cols * 4));
        const auto in_row = *row_bytes(t_.type, cols), out_row = *row_bytes(plan_.type, cols);
        pool_.run((rows + per_task - 1) / per_task, [&](int64_t task, int) {
            std::vector<float> f(static_cast<size_t>(cols));
            for (int64_t r = task * per_task; r < std::min(rows, (task + 1) * per_task); ++r) {
                const int64_t from = source_row(first + r, t_.rows(), plan_.permuted_heads);
                info(t_.type).decode(t_.data.data() + static_cast<size_t>(from) * in_row, f.data(), f.size());
                for (const float x : f)
                    if (!std::isfinite(x)) bad_ = true;
                info(plan_.type).encode(f.data(), out.data() + static_cast<size_t>(r) * out_row, f.size());
            }
        });
    }

    Result<void> write_permuted_vector() {
        std::vector<float> f(static_cast<size_t>(t_.cols())), ordered(f.size());
        info(t_.type).decode(t_.data.data(), f.data(), f.size());
        for (int64_t i = 0; i < t_.cols(); ++i)
            ordered[static_cast<size_t>(i)] =
                f[static_cast<size_t>(source_row(i, t_.cols(), plan_.permuted_heads))];
        return writer_.write(plan_.name, std::as_bytes(std::span(ordered)));
    }

    const TensorPlan& plan_;
    const TensorInfo& t_;
    GgufWriter& writer_;
    ThreadPool& pool_;
    std::atomic<bool> bad_ = false;
};

// A GGUF source keeps all its keys; a folder gets those that its architecture and tokenizer state.
Result<void> write_metadata(const OpenedModel& model, const Vocab& vocab, Metadata& out) {
    if (model.file.kind() == TensorFile::Kind::gguf) {
        for (const Metadata::Entry& e : model.file.metadata().entries())
            if (e.key != "general.alignment" && e.key != "general.file_type" &&
                e.key != "general.quantization_version")
                out.set(e.key, e.value);
        return {};
    }
    out.set("general.architecture", std::string(model.arch->gguf));
    out.set("general.name", model.file.path().filename().string());
    Hyper hyper = model.hyper;
    Fields fields = Fields::writing(out, std::string(model.arch->gguf));
    model.arch->fields(fields, hyper);
    NIBBLE_TRY(fields.result());
    if (vocab.model == Vocab::Model::bpe && vocab.pre.empty())
        return Error{ErrorCode::unsupported, "tokenizer.json",
                     "splits words in a way that GGUF has no name for", ""};
    write_vocab(vocab, out);
    return {};
}

}  // namespace

Result<void> convert(const OpenedModel& model, const Vocab& vocab, const ConvertPlan& plan,
                     const std::filesystem::path& destination, ThreadPool& pool,
                     const std::function<void(const ConvertProgress&)>& progress) {
    GgufWriter writer = NIBBLE_TRY(GgufWriter::create(destination));
    NIBBLE_TRY(write_metadata(model, vocab, writer.metadata()));
    constexpr std::string_view factors_name = "rope_freqs.weight";
    const auto n_factors = static_cast<int64_t>(plan.rope_factors.size());
    if (n_factors) NIBBLE_TRY(writer.declare(factors_name, Type::f32, {&n_factors, 1}));
    for (const TensorPlan& p : plan.tensors)
        NIBBLE_TRY(writer.declare(
            p.name, p.type,
            std::span(p.source->ne).first(static_cast<size_t>(std::max(1, p.source->n_dims)))));
    NIBBLE_TRY(writer.begin());
    if (n_factors) NIBBLE_TRY(writer.write(factors_name, std::as_bytes(std::span(plan.rope_factors))));
    ConvertProgress done{{}, 0, plan.source_bytes};
    for (const TensorPlan& p : plan.tensors) {
        done.tensor = p.name;
        if (progress) progress(done);
        NIBBLE_TRY(TensorConverter(p, writer, pool).run());
        done.source_bytes_done += p.source->data.size();
    }
    if (progress) progress(done);
    return writer.finish();
}

}  // namespace nibble
