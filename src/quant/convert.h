// convert(): a model of any readable format into one GGUF file, in parallel and with bounded memory.
// The file appears only when it is complete.
#pragma once

#include <filesystem>
#include <functional>

#include "ggml/base/thread_pool.h"
#include "src/quant/feedback.h"
#include "src/quant/importance.h"
#include "src/quant/plan.h"
#include "src/text/vocab.h"

namespace nibble {

struct ConvertProgress {
    std::string_view tensor;
    uint64_t source_bytes_done = 0, source_bytes = 0;
};

struct TensorReport {
    std::string name;
    Type from = Type::f32, to = Type::f32;
    // Root of sum (x - x')^2 / sum x^2 of the weights, over every eighth row; with feedback over all, and
    // larger than without, as columns make up for what others lost.
    double relative_error = 0;
    bool weighted = false;  // an importance was used
    bool with_feedback = false;
};

struct ConvertOptions {
    // Block scales by search (ggml/types/search.h) instead of plain rounding, for types that have one.
    bool search = true;
    const Importance* importance = nullptr;  // weighs the search; may be null
    FeedbackSource* feedback = nullptr;  // rounds by it where it has any and the type a search; may be null
    std::function<void(const ConvertProgress&)> progress = {};
};

// The names of the matrices whose types have a search, in the order in which convert() asks for their
// feedback.
std::vector<std::string> matrices_with_search(const ConvertPlan& plan);

// Writes the plan; no tokenizer, where `vocab` has no tokens. Memory beside the mapped source, whatever the
// model's size: two encoded chunks of about 32 MiB as f32, or with feedback of 128 rows for each thread if
// that is more. Errors: more tokens than the embedding has rows; with the tensor's name a NaN or infinity in
// the source, or what its type would hold as infinity.
Result<std::vector<TensorReport>> convert(const OpenedModel& model, const Vocab& vocab,
                                          const ConvertPlan& plan, const std::filesystem::path& destination,
                                          ThreadPool& pool, const ConvertOptions& options = {});

}  // namespace nibble
