// convert(): a model of any readable format into one GGUF file, in parallel and with bounded memory.
// The file appears only when it is complete.
#pragma once

#include <filesystem>
#include <functional>

#include "ggml/base/thread_pool.h"
#include "src/quant/plan.h"
#include "src/text/vocab.h"

namespace nibble {

struct ConvertProgress {
    std::string_view tensor;
    uint64_t source_bytes_done = 0, source_bytes = 0;
};

// Writes the plan. Memory beside the mapped source: one chunk of about 32 MiB, whatever the model's size.
// A NaN or infinity in the source is an Error with the tensor's name.
Result<void> convert(const OpenedModel& model, const Vocab& vocab, const ConvertPlan& plan,
                     const std::filesystem::path& destination, ThreadPool& pool,
                     const std::function<void(const ConvertProgress&)>& progress = {});

}  // namespace nibble
