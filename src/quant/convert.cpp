// convert(): metadata, then tensor after tensor in chunks of rows that the pool encodes.
// Rows are decoded to f32 and encoded again, or copied as they are where the type stays.
#include "src/quant/convert.h"

#include <atomic>
#include <cmath>
#include <future>
#include <limits>
#include <numeric>

#include "ggml/base/cat.h"
#include "ggml/file/gguf_writer.h"
#include "ggml/types/search.h"
#include "src/model/vocab_file.h"

namespace nibble {
namespace {

constexpr int64_t chunk_bytes = 32 << 20;         // f32 bytes of a chunk
constexpr int64_t task_bytes = 256 << 10;         // and of one task of the pool
constexpr int64_t task_rows_with_feedback = 128;  // which share one pass over the coefficients

// Where row `r` of the GGUF order stands in the source: halves of a head interleave into adjacent pairs.
int64_t source_row(int64_t r, int64_t rows, int32_t heads) {
    if (heads == 0) return r;
    const int64_t dim = rows / heads, in_head = r % dim;
    return r - in_head + (in_head % 2) * (dim / 2) + in_head / 2;
}

// The magnitude from which on a real type holds infinity; block types limit their scales instead.
float overflow_of(Type type) {
    return type == Type::f16    ? 65520.0f
           : type == Type::bf16 ? 0x1.ffp127f
                                : std::numeric_limits<float>::infinity();
}

// Encodes one tensor, chunk after chunk of rows.
class TensorConverter {
  public:
    TensorConverter(const TensorPlan& plan, GgufWriter& writer, ThreadPool& pool,
                    const ConvertOptions& options)
        : plan_(plan), t_(plan.source), writer_(writer), pool_(pool), options_(options) {}

    Result<TensorReport> run() {
        TensorReport report{plan_.name, t_->type, plan_.type, 0, false};
        if (t_->data.empty()) return report;
        if (t_.rows() == 1 && plan_.permuted_heads) {
            NIBBLE_TRY(write_permuted_vector());
            return report;
        }
        if (options_.importance && plan_.is_matrix())
            importance_ = NIBBLE_TRY(options_.importance->weights(plan_.name, t_.cols(), matrices()));
        report.weighted = !importance_.empty() && searches();
        if (options_.feedback && plan_.is_matrix() && searches()) NIBBLE_TRY(find_feedback());
        report.with_feedback = !feedback_.empty();
        const int64_t cols = t_.cols(),
                      least = feedback_.empty() ? 1 : task_rows_with_feedback * pool_.size(),
                      per_chunk = std::max(least, chunk_bytes / (cols * 4));
        const auto out_row = static_cast<int64_t>(*row_bytes(plan_.type, cols));
        // One chunk is written while the next is encoded. The future waits in its destructor, so that an
        // early return leaves no writer behind.
        std::vector<std::byte> out, writing;
        std::future<Result<void>> written;
        for (int64_t first = 0; first < t_.rows(); first += per_chunk) {
            const int64_t rows = std::min(per_chunk, t_.rows() - first);
            out.resize(static_cast<size_t>(rows * out_row));
            if (feedback_.empty())
                encode_rows(first, rows, out);
            else
                encode_rows_with_feedback(first, rows, out);
            if (written.valid()) NIBBLE_TRY(written.get());
            NIBBLE_TRY(check_values());
            std::swap(out, writing);
            written = std::async(std::launch::async, [&] { return writer_.write(plan_.name, writing); });
        }
        NIBBLE_TRY(written.get());
        report.relative_error = norm_ > 0 ? std::sqrt(error_ / norm_) : 0;
        return report;
    }

  private:
    bool searches() const { return options_.search && has_search(plan_.type) && !plan_.keeps_type(); }
    int64_t matrices() const {  // experts or heads
        const std::vector<int64_t> dims = t_.dims();
        return std::accumulate(dims.begin() + 2, dims.end(), int64_t{1}, std::multiplies());
    }
    // What the rows that were read so far say.
    Result<void> check_values() const {
        if (bad_)
            return Error{ErrorCode::corrupt, t_->name, "holds a NaN or an infinity",
                         "the checkpoint is broken; it is not converted"};
        if (!beyond_) return {};
        const std::string_view larger = plan_.type == Type::f16 ? "bf16" : "f32";
        return Error{ErrorCode::unsupported, t_->name,
                     cat("holds values that would be infinite as ", info(plan_.type).name),
                     cat("use ", larger, ": --type ", larger, ", or --keep ", plan_.name, "=", larger)};
    }

    // Sums of one task; added up in order of the tasks, so that reports do not depend on the threads.
    struct Sums {
        double error = 0, norm = 0;
    };

    void encode_rows(int64_t first, int64_t rows, std::span<std::byte> out) {
        const int64_t cols = t_.cols(), per_task = std::max<int64_t>(1, task_bytes / (cols * 4));
        const auto out_row = *row_bytes(plan_.type, cols);
        std::vector<Sums> sums(static_cast<size_t>((rows + per_task - 1) / per_task));
        pool_.run(static_cast<int64_t>(sums.size()), [&](int64_t task, int) {
            std::vector<float> f(static_cast<size_t>(cols));
            for (int64_t r = task * per_task; r < std::min(rows, (task + 1) * per_task); ++r) {
                read_row(first + r, f);
                std::byte* to = out.data() + static_cast<size_t>(r) * out_row;
                if (plan_.keeps_type())
                    copy_row(t_, stored_row(first + r), to);
                else
                    encode(f, to, first + r);
                if ((first + r) % 8 == 0) measure(f, to, sums[static_cast<size_t>(task)]);
            }
        });
        for (const Sums& s : sums) error_ += s.error, norm_ += s.norm;
    }

    int64_t stored_row(int64_t row) const { return source_row(row, t_.rows(), plan_.permuted_heads); }

    void read_row(int64_t row, std::span<float> f) {
        decode_row(t_, stored_row(row), f.data());
        note_values(f);
    }

    void note_values(std::span<const float> f) {
        bool finite = true, within = true;
        for (const float x : f) {
            finite &= std::fabs(x) <= std::numeric_limits<float>::max();
            within &= std::fabs(x) < overflow_;
        }
        if (!finite) bad_ = true;
        if (!within) beyond_ = true;
    }

    Result<void> find_feedback() {
        feedback_ = NIBBLE_TRY(options_.feedback->of(plan_.name));
        for (const Feedback& f : feedback_)
            if (f.cols != t_.cols() || t_.rows() % static_cast<int64_t>(feedback_.size()))
                return Error{ErrorCode::internal, plan_.name,
                             cat("has ", t_.rows(), " rows of ", t_.cols(), ", and feedback of ", f.cols,
                                 " columns for ", feedback_.size(), " parts"),
                             ""};
        return {};
    }

    // A task's rows belong to one expert, and its columns' losses are theirs alone.
    void encode_rows_with_feedback(int64_t first, int64_t rows, std::span<std::byte> out) {
        const auto cols = static_cast<size_t>(t_.cols()), out_row = *row_bytes(plan_.type, t_.cols());
        const int64_t part = t_.rows() / static_cast<int64_t>(feedback_.size());
        std::vector<std::pair<int64_t, int64_t>> tasks;
        for (int64_t r = first, end = 0; r < first + rows; r = end) {
            end = std::min({first + rows, r + task_rows_with_feedback, (r / part + 1) * part});
            tasks.emplace_back(r, end);
        }
        std::vector<Sums> sums(tasks.size());
        pool_.run(static_cast<int64_t>(tasks.size()), [&](int64_t task, int) {
            const auto [begin, end] = tasks[static_cast<size_t>(task)];
            Sums& s = sums[static_cast<size_t>(task)];
            std::vector<float> f(static_cast<size_t>(end - begin) * cols);
            for (int64_t r = begin; r < end; ++r)
                read_row(r, std::span(f).subspan(static_cast<size_t>(r - begin) * cols, cols));
            for (const float x : f) s.norm += static_cast<double>(x) * static_cast<double>(x);
            encode_with_feedback(plan_.type, feedback_[static_cast<size_t>(begin / part)], f.data(),
                                 end - begin, out.data() + static_cast<size_t>(begin - first) * out_row);
            for (const float x : f) s.error += static_cast<double>(x) * static_cast<double>(x);
        });
        for (const Sums& s : sums) error_ += s.error, norm_ += s.norm;
    }

    // `row` says which expert's importance holds, where there are experts.
    void encode(const std::vector<float>& f, std::byte* to, int64_t row) const {
        if (!searches()) return info(plan_.type).encode(f.data(), to, f.size());
        const float* weights = nullptr;
        if (!importance_.empty()) {
            const int64_t experts = static_cast<int64_t>(importance_.size()) / t_.cols();
            weights = importance_.data() + row * experts / t_.rows() * t_.cols();
        }
        encode_weighted(plan_.type, f.data(), weights, to, f.size());
    }

    void measure(const std::vector<float>& f, const std::byte* encoded, Sums& sums) const {
        std::vector<float> back(f.size());
        info(plan_.type).decode(encoded, back.data(), back.size());
        for (size_t i = 0; i < f.size(); ++i) {
            const double d = static_cast<double>(f[i]) - static_cast<double>(back[i]);
            sums.error += d * d;
            sums.norm += static_cast<double>(f[i]) * static_cast<double>(f[i]);
        }
    }

    Result<void> write_permuted_vector() {
        std::vector<float> f(static_cast<size_t>(t_.cols())), ordered(f.size());
        decode_row(t_, 0, f.data());
        note_values(f);
        NIBBLE_TRY(check_values());
        for (int64_t i = 0; i < t_.cols(); ++i)
            ordered[static_cast<size_t>(i)] =
                f[static_cast<size_t>(source_row(i, t_.cols(), plan_.permuted_heads))];
        return writer_.write(plan_.name, std::as_bytes(std::span(ordered)));
    }

    const TensorPlan& plan_;
    const TensorSource& t_;
    GgufWriter& writer_;
    ThreadPool& pool_;
    const ConvertOptions& options_;
    std::vector<float> importance_;
    std::span<const Feedback> feedback_;  // of all rows, or of each expert's
    const float overflow_ = overflow_of(plan_.keeps_type() ? Type::f32 : plan_.type);
    std::atomic<bool> bad_ = false, beyond_ = false;
    double error_ = 0, norm_ = 0;
};

// GGUF wants a token for every row of the embedding, also for those beyond the tokenizer.
Vocab padded(Vocab v, size_t n_vocab) {
    const auto fill = [&](auto& list, auto value) {
        if (!list.empty() && list.size() < n_vocab) list.resize(n_vocab, value);
    };
    if (v.types.empty()) v.types.assign(v.tokens.size(), static_cast<uint8_t>(TokenType::normal));
    fill(v.types, static_cast<uint8_t>(TokenType::unused));
    fill(v.scores, -10000.0f);
    while (v.tokens.size() < n_vocab) v.tokens.push_back(cat("[PAD", v.tokens.size(), "]"));
    return v;
}

// Of the source's file alone, or of how its weights were made.
bool is_of_source(std::string_view key) {
    return key == "general.alignment" || key == "general.file_type" ||
           key == "general.quantization_version" || key.starts_with("nibble.nf4.") ||
           key.starts_with("quantize.imatrix.");
}

// As the last component of the path says, which may be written as "." or with a slash behind it.
std::string name_of(const std::filesystem::path& path) {
    const std::filesystem::path whole = std::filesystem::absolute(path).lexically_normal();
    return (whole.has_filename() ? whole : whole.parent_path()).filename().string();
}

// A GGUF source keeps all its other keys; a folder gets those that its architecture and tokenizer state.
Result<void> write_metadata(const OpenedModel& model, const Vocab& vocab, Metadata& out) {
    if (model.file.kind() == TensorFile::Kind::gguf) {
        for (const Metadata::Entry& e : model.file.metadata().entries())
            if (!is_of_source(e.key)) out.set(e.key, e.value);
        return {};
    }
    out.set("general.architecture", std::string(model.arch->gguf));
    out.set("general.name", name_of(model.file.path()));
    Hyper hyper = model.hyper;
    Fields fields = Fields::writing(out, std::string(model.arch->gguf));
    model.arch->fields(fields, hyper);
    NIBBLE_TRY(fields.result());
    if (vocab.tokens.empty()) return {};
    if (vocab.model == Vocab::Model::bpe && vocab.pre.empty())
        return Error{ErrorCode::unsupported, "tokenizer.json",
                     "splits words in a way that GGUF has no name for", ""};
    write_vocab(padded(vocab, model.hyper.n_vocab), out);
    return {};
}

}  // namespace

// Types that only this program knows: other readers stop at the id, and the key says why.
void describe_private_types(const ConvertPlan& plan, Metadata& out) {
    for (const TensorPlan& p : plan.tensors)
        if (p.type == Type::nf4 || p.type == Type::nf4_dq) {
            out.set("nibble.nf4.codebook", std::string("bitsandbytes"));
            out.set("nibble.nf4.block_length", uint32_t{64});
            out.set(
                "nibble.nf4.layout",
                std::string("1004: f16 absmax, 32 bytes of codes; 1005: f16 d, 4 signed bytes, 128 bytes"));
            return;
        }
}

std::vector<std::string> matrices_with_search(const ConvertPlan& plan) {
    std::vector<std::string> names;
    for (const TensorPlan& p : plan.tensors)
        if (p.is_matrix() && has_search(p.type) && !p.keeps_type()) names.push_back(p.name);
    return names;
}

Result<std::vector<TensorReport>> convert(const OpenedModel& model, const Vocab& vocab,
                                          const ConvertPlan& plan, const std::filesystem::path& destination,
                                          ThreadPool& pool, const ConvertOptions& options) {
    NIBBLE_TRY(check_vocab_size(vocab.tokens.size(), model.spec.n_vocab, model.file.path()));
    GgufWriter writer = NIBBLE_TRY(GgufWriter::create(destination));
    NIBBLE_TRY(write_metadata(model, vocab, writer.metadata()));
    describe_private_types(plan, writer.metadata());
    for (const auto& [name, values] : plan.stated) {
        const auto n = static_cast<int64_t>(values.size());
        NIBBLE_TRY(writer.declare(name, Type::f32, {&n, 1}));
    }
    for (const TensorPlan& p : plan.tensors) {
        NIBBLE_TRY(writer.declare(p.name, p.type, p.source.dims()));
    }
    NIBBLE_TRY(writer.begin());
    for (const auto& [name, values] : plan.stated)
        NIBBLE_TRY(writer.write(name, std::as_bytes(std::span(values))));
    ConvertProgress done{{}, 0, plan.source_bytes};
    std::vector<TensorReport> reports;
    for (const TensorPlan& p : plan.tensors) {
        done.tensor = p.name;
        if (options.progress) options.progress(done);
        reports.push_back(NIBBLE_TRY(TensorConverter(p, writer, pool, options).run()));
        done.source_bytes_done += p.source.bytes();
        if (!model.file.disposable()) continue;
        p.source.each_part(release_pages);
        if (p.source.scales) release_pages(p.source.scales->data);
    }
    if (options.progress) options.progress(done);
    NIBBLE_TRY(writer.finish());
    return reports;
}

}  // namespace nibble
