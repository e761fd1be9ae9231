// WeightStore: a model's tensors by canonical name, first as views into the file, then placed on devices.
// Vectors (norms, biases) become f32 when they are first asked for, small matrices of 16 bits that decide
// when they are placed; others keep their type. A matrix that is converted, or that the file stores otherwise
// (src/model/source.h), is copied, and the copy dropped once it is packed.
#pragma once

#include <deque>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "ggml/program/runner.h"
#include "src/model/architecture.h"

namespace nibble {

class WeightStore {
  public:
    // What is packed in host memory, how much of the file that is, and how much of it is left in place.
    struct Packing {
        size_t bytes = 0, file_bytes = 0, left_bytes = 0;
    };

    // The map, the file behind it and the backends must outlive the store. Matrices that would be packed in
    // host memory beyond `most_packed` bytes are used where they are.
    WeightStore(const TensorMap& tensors, Placement placement, std::span<Backend* const> backends,
                size_t most_packed = std::numeric_limits<size_t>::max());

    // The tensor as it is now: placed, or before that as it will be (layout and stride) with the data of the
    // file. Empty when the model has none of this name. Asking is what marks a tensor as used, and how. A
    // vector of another number of `elements` is not read: its shape is for the caller to refuse.
    Result<Tensor> get(const std::string& name, WeightUse use, int64_t elements = -1);

    // The same of a row that no file holds, for what runs outside the layers; the values are kept.
    Tensor constant(const std::string& name, std::span<const float> values);

    // Moves every tensor asked for so far to the device of its layer. With `release`, pages that were copied
    // and have no other use are given back (TensorFile::disposable).
    Result<void> place(bool release);

    // Of the tensors asked for so far.
    const Packing& packing() const { return packing_; }
    // Bytes of the copied matrices that stay in memory: what is held, and what will be after place().
    size_t rearranged_bytes() const;
    size_t rearranged_bytes_to_be() const;

    // A tensor of the file that nothing asked for: the model has a feature that is not implemented.
    std::optional<std::string> unused(std::span<const std::string_view> ignored) const;

  private:
    struct Entry {
        Tensor host, tensor;
        Buffer storage;
        Backend* backend = nullptr;
        const TensorSource* source = nullptr;  // null for a constant
        bool in_place = false;
    };
    Result<Tensor> host_view(const std::string& name, const TensorSource& source, WeightUse use,
                             int64_t elements);
    bool is_copied(const Entry& e, WeightUse use) const;
    // Whether place() reads the bytes of the file.
    bool is_read_to_place(const Entry& e, WeightUse use) const;
    // Whether nothing reads the host's bytes once the entry is placed.
    bool leaves_host(const Entry& e, WeightUse use) const;
    // The same tensor, already packed on the same device for another use.
    const Entry* packed_twin(const Entry& e) const;
    Backend& backend_of(std::string_view name, WeightUse use) const;

    const TensorMap* tensors_;
    Placement placement_;
    std::vector<Backend*> backends_;
    std::set<const Backend*> on_host_;  // those of them whose memory is the host's
    size_t most_packed_;
    Packing packing_;
    std::map<std::pair<std::string, WeightUse>, Entry> used_;
    std::map<const TensorSource*, std::vector<std::byte>> rearranged_;
    std::deque<std::vector<float>> vectors_;  // converted ones; a deque so that views stay valid
};

// Whether a matrix is small and decides: routers and what governs a state. Their products are taken in f32
// whatever the rest is in, as GGUF files have them.
bool decides(std::string_view name);

// The layer in "blk.<n>....", -1 for the embedding side, `n_layers` for the output side.
int32_t layer_of(std::string_view name, int32_t n_layers);

}  // namespace nibble
