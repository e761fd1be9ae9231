// What a model file says about a tensor, the same for GGUF and safetensors, and a list with lookup by name.
// Nothing is copied: data points into the mapped file.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ggml/base/result.h"
#include "ggml/types/type.h"

namespace nibble {

// Holds for every TensorInfo that a reader hands out: dimensions are >= 0, their products fit an int64, a row
// is a whole number of blocks, and data.size() == rows() * row_bytes(type, cols()). The data has whatever
// alignment the file gave it, so read elements with memcpy or unaligned loads.
struct TensorInfo {
    std::string name;
    Type type = Type::f32;
    std::array<int64_t, 4> ne{1, 1, 1, 1};  // ne[0] = row length, the fastest; unused ones are 1
    int n_dims = 0;                         // as stored, at most 4; 0 is a scalar
    std::span<const std::byte> data;
    // Set when no Type means what the file says (safetensors "U8", "F8_E4M3", "BOOL", …): the raw name, and
    // `type` is then the signed integer of the same width, i8 bytes for the types narrower than a byte.
    std::string_view dtype;

    int64_t cols() const { return ne[0]; }
    int64_t rows() const { return ne[1] * ne[2] * ne[3]; }
    int64_t elements() const { return cols() * rows(); }
    bool foreign() const { return !dtype.empty(); }
    std::string_view type_name() const { return foreign() ? dtype : info(type).name; }
};

// "[4096, 256]" in ne order.
std::string shape_text(const TensorInfo& tensor);

// Bytes of a tensor of this type and these dimensions; nothing when a dimension is negative, a product
// overflows (zeros do not hide an overflow of the others) or a row is not a whole number of blocks.
std::optional<size_t> tensor_bytes(Type type, const std::array<int64_t, 4>& ne);

// Tensors in file order with hashed lookup. Movable; not copyable, because the index views the names.
class TensorList {
  public:
    // An Error when a name occurs twice; `where` is the file it then names.
    static Result<TensorList> build(std::vector<TensorInfo> tensors, const std::string& where);

    TensorList() = default;
    TensorList(TensorList&&) = default;
    TensorList& operator=(TensorList&&) = default;

    std::span<const TensorInfo> all() const { return tensors_; }
    const TensorInfo* find(std::string_view name) const;
    size_t size() const { return tensors_.size(); }
    std::vector<TensorInfo> release() &&;  // gives the tensors back and leaves the list empty

  private:
    std::vector<TensorInfo> tensors_;
    std::unordered_map<std::string_view, uint32_t> index_;
};

}  // namespace nibble
