// Writes GGUF version 3 as a stream: header first, then each tensor's bytes in the declared order.
// Memory is the metadata plus the chunk in the caller's hand; the file appears only when finish() succeeds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ggml/base/mapped_file.h"
#include "ggml/base/result.h"
#include "ggml/file/metadata.h"
#include "ggml/file/tensor_info.h"

namespace nibble {

// create → metadata() and declare() → begin → write for every tensor → finish. A call out of this order is an
// Error with code invalid_argument; a writer that is destroyed before finish() leaves no file behind.
class GgufWriter {
  public:
    static Result<GgufWriter> create(const std::filesystem::path& destination);

    // Filled until begin(). general.alignment (default 32) sets the alignment of the file and is stored only
    // when it differs from 32; general.quantization_version is added when a tensor has a block type.
    Metadata& metadata() { return metadata_; }

    // ne[0] is the row length; 1 to 4 dimensions, rows of whole blocks, names of at most 63 bytes (the most
    // that ggml reads).
    Result<void> declare(std::string_view name, Type type, std::span<const int64_t> ne);

    Result<void> begin();

    // The next bytes of tensor `name`, which must be the first one not yet complete. Chunks have any size.
    Result<void> write(std::string_view name, std::span<const std::byte> chunk);

    Result<void> finish();

  private:
    enum class State { declaring, writing, finished };
    struct Declared {
        TensorInfo info;
        uint64_t bytes, offset;
    };

    GgufWriter(AtomicFile file, std::string where) : file_(std::move(file)), where_(std::move(where)) {}
    Error misuse(std::string what) const;
    Result<void> place_tensors();
    Result<void> pad(uint64_t to);
    std::string header() const;
    Result<void> next_tensor();  // pads the complete tensor and passes over empty ones

    AtomicFile file_;
    std::string where_;
    Metadata metadata_;
    std::vector<Declared> tensors_;
    State state_ = State::declaring;
    uint64_t alignment_ = 32;
    size_t current_ = 0;    // index of the tensor being written
    uint64_t written_ = 0;  // bytes of it that are in the file
};

}  // namespace nibble
