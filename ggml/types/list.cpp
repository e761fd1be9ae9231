// The table behind info(), find_type() and type_from_id().
// Formats with a codec come from the list in list.h, the others are stated here by geometry.
#include <cstring>
#include <limits>
#include <vector>

#include "ggml/base/cat.h"
#include "ggml/base/checked.h"
#include "ggml/types/code_layout.h"

namespace nibble {
namespace {

template <class F>
void decode_row(const std::byte* src, float* dst, size_t n) {
    for (size_t i = 0; i < n; i += F::block_len, src += sizeof(typename F::Block)) {
        typename F::Block b;
        std::memcpy(&b, src, sizeof b);  // blocks in files have no alignment
        F::decode(b, dst + i);
    }
}

template <class F>
concept Writable = requires(const float* in, typename F::Block& b) {
    F::encode(in, b);
};

template <class F>
void encode_row(const float* src, std::byte* dst, size_t n) {
    for (size_t i = 0; i < n; i += F::block_len, dst += sizeof(typename F::Block)) {
        typename F::Block b;
        F::encode(src + i, b);
        std::memcpy(dst, &b, sizeof b);
    }
}

struct Geometry {
    Type type;
    std::string_view name;
    uint32_t block_len, block_bytes;
};

// Types that files may contain but that have no codec.
constexpr Geometry geometry_only[] = {
    {Type::i8, "i8", 1, 1},   {Type::i16, "i16", 1, 2}, {Type::i32, "i32", 1, 4},
    {Type::i64, "i64", 1, 8}, {Type::f64, "f64", 1, 8},
};

std::vector<TypeInfo> build_table() {
    std::vector<TypeInfo> table;
    Formats::for_each([&]<class F>() {
        TypeInfo row{F::type, F::name,       F::block_len, sizeof(typename F::Block),
                     F::dot,  decode_row<F>, nullptr,      &layout_of<F>};
        if constexpr (Writable<F>) row.encode = encode_row<F>;
        table.push_back(row);
    });
    for (const Geometry& g : geometry_only)
        table.push_back(
            {g.type, g.name, g.block_len, g.block_bytes, DotClass::none, nullptr, nullptr, nullptr});
    return table;
}

const std::vector<TypeInfo>& table() {
    static const std::vector<TypeInfo> t = build_table();
    return t;
}

const TypeInfo* find(Type type) {
    for (const TypeInfo& t : table())
        if (t.type == type) return &t;
    return nullptr;
}

}  // namespace

const TypeInfo& info(Type type) { return *find(type); }

std::span<const TypeInfo> all_types() { return table(); }

std::optional<Type> find_type(std::string_view name) {
    for (const TypeInfo& t : table())
        if (t.name == name) return t.type;
    return {};
}

Result<Type> type_from_id(uint32_t id) {
    if (find(Type{id})) return Type{id};
    const bool retired = id == 4 || id == 5 || (id >= 31 && id <= 33) || (id >= 36 && id <= 38);
    return Error{ErrorCode::unsupported, cat("tensor type ", id),
                 retired ? "was retired from GGUF" : "is not known",
                 retired ? "convert the original model again with a current tool"
                         : "the file may be newer than this program or belong to a fork"};
}

std::optional<size_t> row_bytes(Type type, int64_t n) {
    const TypeInfo& t = info(type);
    size_t bytes = 0;
    if (n < 0 || n % t.block_len != 0) return {};
    if (!checked_mul<size_t>(static_cast<size_t>(n) / t.block_len, t.block_bytes, bytes)) return {};
    return bytes;
}

}  // namespace nibble
