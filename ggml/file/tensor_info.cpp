// Size arithmetic of tensors and the list with its index.
// All of it assumes dimensions from a hostile file.
#include "ggml/file/tensor_info.h"

#include <algorithm>

#include "ggml/base/cat.h"
#include "ggml/base/checked.h"
#include "ggml/file/quote.h"

namespace nibble {

std::string shape_text(const TensorInfo& tensor) {
    std::string out = "[";
    for (int i = 0; i < tensor.n_dims; ++i) out += cat(i ? ", " : "", tensor.ne[static_cast<size_t>(i)]);
    return out + "]";
}

std::optional<size_t> tensor_bytes(Type type, const std::array<int64_t, 4>& ne) {
    int64_t product = 1;
    for (const int64_t n : ne)
        if (n < 0 || !checked_mul<int64_t>(product, std::max<int64_t>(n, 1), product)) return {};
    const auto row = row_bytes(type, ne[0]);
    size_t bytes = 0;
    // The products of ne[1..3] cannot overflow: they divide `product`, or one factor is zero.
    if (!row || !checked_mul<size_t>(*row, static_cast<size_t>(ne[1] * ne[2] * ne[3]), bytes)) return {};
    return bytes;
}

Result<TensorList> TensorList::build(std::vector<TensorInfo> tensors, const std::string& where) {
    TensorList list;
    list.tensors_ = std::move(tensors);
    list.index_.reserve(list.tensors_.size());
    for (const TensorInfo& t : list.tensors_)
        if (!list.index_.emplace(t.name, static_cast<uint32_t>(list.index_.size())).second)
            return Error{ErrorCode::corrupt, where, cat("holds two tensors named ", quote(t.name)),
                         "the file is damaged or was merged wrongly"};
    return list;
}

const TensorInfo* TensorList::find(std::string_view name) const {
    const auto it = index_.find(name);
    return it == index_.end() ? nullptr : &tensors_[it->second];
}

std::vector<TensorInfo> TensorList::release() && {
    index_.clear();
    return std::move(tensors_);
}

}  // namespace nibble
