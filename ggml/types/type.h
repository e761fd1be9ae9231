// The element types of tensors: GGUF ids, names, block geometry and codecs.
// A format is one small struct (see ggml/types/*.h); ggml/types/list.h is the list of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "ggml/base/result.h"

namespace nibble {

// Values are the ids stored in GGUF files. Ids >= 1000 are private to nibble.
enum class Type : uint32_t {
    f32 = 0,
    f16 = 1,
    q4_0 = 2,
    q4_1 = 3,
    q5_0 = 6,
    q5_1 = 7,
    q8_0 = 8,
    q8_1 = 9,
    q2_k = 10,
    q3_k = 11,
    q4_k = 12,
    q5_k = 13,
    q6_k = 14,
    q8_k = 15,
    iq2_xxs = 16,
    iq2_xs = 17,
    iq3_xxs = 18,
    iq1_s = 19,
    iq4_nl = 20,
    iq3_s = 21,
    iq2_s = 22,
    iq4_xs = 23,
    i8 = 24,
    i16 = 25,
    i32 = 26,
    i64 = 27,
    f64 = 28,
    iq1_m = 29,
    bf16 = 30,
    tq1_0 = 34,
    tq2_0 = 35,
    mxfp4 = 39,
    nvfp4 = 40,
    q1_0 = 41,
    q2_0 = 42,
    nf4 = 1004,
    nf4_dq = 1005,
};

// How the products of a format's elements are formed; owns the family of matmul kernels.
enum class DotClass : uint8_t {
    none,            // no arithmetic: indices, or a type known only by its geometry
    real,            // converts to f32 element by element: f32, f16, bf16
    scaled_int,      // integer codes times one scale per group
    scaled_int_min,  // integer codes times a scale, plus a minimum, per group
    table,           // codes looked up in a table of 16, times a scale per group
};

struct CodeLayout;  // ggml/types/code_layout.h

// One row of the list of types.
struct TypeInfo {
    Type type;
    std::string_view name;  // lower case, as the command line spells it
    uint32_t block_len;     // elements per block; a row is a whole number of blocks
    uint32_t block_bytes;   // bytes per block
    DotClass dot;
    // Either may be null: types known only by geometry, and formats that are read but not written.
    // n elements (a multiple of block_len); src/dst hold n / block_len * block_bytes bytes, any alignment.
    void (*decode)(const std::byte* src, float* dst, size_t n);
    void (*encode)(const float* src, std::byte* dst, size_t n);  // round to nearest, no search
    const CodeLayout* layout;                                    // null without a codec
};

const TypeInfo& info(Type type);        // precondition: the type is in the list
std::span<const TypeInfo> all_types();  // in the order of the list
std::optional<Type> find_type(std::string_view name);
// The type with this GGUF id; retired and unknown ids give an Error that says which.
Result<Type> type_from_id(uint32_t id);

// Bytes of a row of n elements; nothing when n is not a whole number of blocks or the size overflows.
std::optional<size_t> row_bytes(Type type, int64_t n);

}  // namespace nibble
