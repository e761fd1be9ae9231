// Importance: the mean square of the activations that meet each column of a matrix, per tensor.
// Stored as a GGUF file of general.type "imatrix", the layout that other GGUF tools read and write too.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "ggml/base/result.h"

namespace nibble {

struct Importance {
    struct Entry {
        std::vector<float> sums;                // of squares, per column; of experts, one after the other
        float count = 0;                        // of activation rows
        std::vector<float> expert_counts = {};  // the same for each expert; empty: a plain matrix
    };
    std::map<std::string, Entry> tensors;  // by canonical weight name
    std::string dataset;
    uint32_t chunks = 0, chunk_tokens = 0;

    static Result<Importance> read(const std::filesystem::path& path);
    Result<void> write(const std::filesystem::path& path) const;

    // Mean squares per column, or empty when this tensor was not seen; for a matrix of experts as many lists
    // as there are experts, where one that saw no row has the mean of all. An Error when the width differs,
    // or the number of experts from that of the tensor's `matrices`.
    Result<std::vector<float>> weights(const std::string& tensor, int64_t cols, int64_t matrices) const;
};

}  // namespace nibble
