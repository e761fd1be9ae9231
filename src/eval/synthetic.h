// Models of a given shape with random weights, made in memory in their final types.
// Enough to measure speed and memory, to test, and to try a conversion before a download.
#pragma once

#include "ggml/base/thread_pool.h"
#include "ggml/file/tensor_file.h"
#include "src/eval/shape.h"
#include "src/text/vocab.h"

namespace nibble {

enum class Fill : uint8_t {
    random,   // weights that keep activations in a normal range
    nothing,  // addresses without memory behind them: for sizes only, nothing may be computed
};

// Types are chosen per matrix as `nibble quantize --type <recipe>` would; types that are only read have
// random codes, in all matrices but the embedding and the output. The weights depend on the seed alone, not
// on the number of threads. Errors: an unknown recipe, an architecture that is not implemented, sizes that do
// not fit together, not enough memory.
Result<TensorFile> synthetic_model(const ModelShape& shape, std::string_view recipe, Fill fill, uint64_t seed,
                                   ThreadPool& pool);

// Writes such a model as GGUF, with the memory of its largest tensor. The vocabulary is filled up with unused
// tokens to the shape's size. Returns the bytes of its tensors.
Result<uint64_t> write_synthetic(const ModelShape& shape, std::string_view recipe, uint64_t seed, Vocab vocab,
                                 const std::filesystem::path& destination, ThreadPool& pool);

}  // namespace nibble
