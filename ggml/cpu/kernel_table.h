// KernelTable: the single-threaded kernels of one instruction set, and the list of tables compiled in.
// Kernels are pure functions of their arguments; splitting work over threads happens above them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "ggml/base/result.h"
#include "ggml/cpu/features.h"
#include "ggml/ops/ops.h"
#include "ggml/program/key_tiles.h"

namespace nibble::cpu {

// 32 activations as int8 codes: x = d * q. The sums serve formats whose codes have a zero point or a minimum.
struct Int8Block {
    float d;
    float d_sum;      // d * sum of q
    int32_t neg_sum;  // -sum of q, times a number of the instruction set's (sum_unit)
};
struct Int8Halves {  // of the first and the last 16
    float d_sum[2];
    int32_t neg_sum[2];
    int32_t neg_words;  // both as numbers of 16 bits, where the instruction set wants them
};
inline constexpr int64_t int8_block = 32;
// Rows lie in tiles of MatmulKernels::int8_rows (the last may be lower), and a tile of h rows holds block
// after block the h rows of each, as its instruction set reads them (quantize_row()): every address in a
// kernel is one pointer plus a constant.
struct Int8Rows {
    const int8_t* q = nullptr;           // [rows x K]
    const Int8Block* blocks = nullptr;   // [rows x K/32]
    const Int8Halves* halves = nullptr;  // likewise

    // The tile that starts at row `row`, a multiple of int8_rows, and has `rows` of them; from block `block`
    // of its k columns on.
    Int8Rows tile(int64_t row, int64_t rows, int64_t block, int64_t k) const {
        const int64_t at = row * (k / int8_block) + block * rows;
        return {q + at * int8_block, blocks + at, halves + at};
    }
};

// Likewise, where they are written.
struct Int8Places {
    int8_t* q = nullptr;
    Int8Block* blocks = nullptr;
    Int8Halves* halves = nullptr;

    Int8Places from(int64_t block) const { return {q + block * int8_block, blocks + block, halves + block}; }
};

// What weights of a type are multiplied by: activations as they are, rounded to bf16, or as Int8Rows.
enum class Operand : uint8_t { f32, bf16, int8 };
// Rows of bf16 are filled up with zeros to a multiple of so many columns, a step. They lie in tiles of
// MatmulKernels::bf16_rows (the last may be lower), and a tile of h rows holds step after step the h rows of
// each; with one row a tile that is row after row.
inline constexpr int64_t bf16_step = 32;

// How weights come from memory best, which is up to the processor: from so many places at once, and asked for
// so many bytes before their use if so many rows of activations meet them: a block of weights then takes so
// long that the processor does not look far enough ahead by itself. With fewer rows it does, and asking
// costs. Panels are always filled so, from one place.
struct Streaming {
    static constexpr int never = 1 << 30;
    int code_rows = 3;      // integer codes
    int factor_rows = 1;    // likewise, if their scales are integers: more work per byte
    int real_rows = never;  // packed f32, f16, bf16
    int code_streams = 1;   // integer codes of so many places at once, each asked for by its share of `bytes`
    bool one_real_group = false;  // packed reals of one group of outputs at a time, however few the rows
    int64_t bytes = 4096;
    // Into the second-level cache from `bytes` on and into the first one from first_level on, not into the
    // first one from `bytes` on: for processors whose first level waits for few lines at a time.
    bool by_levels = false;
    int64_t first_level = 2048;
};

// out[m x n] = x[m x K] * W[n x K]^T (+ bias) (+ residual), some rows and columns of a matmul.
// The order of each output's sum is k = 0, 1, 2, ... (floats and pairs of bf16; int8: exact within a block of
// 32, then block after block; tiles of bf16: 32 at a time), so it depends on nothing but the operand and K.
struct MatmulBlock {
    const TypeInfo* type = nullptr;
    Operand operand = Operand::f32;
    const std::byte* w = nullptr;  // first weight row of the block; when packed, first of a group
    int64_t w_stride = 0;          // bytes per row
    bool packed = false;           // rows lie in groups, see ggml/cpu/packed.h
    Streaming streaming;
    int64_t n = 0;  // weight rows = output columns
    int64_t k = 0;
    int64_t m = 0;  // activation rows
    // Of these, what `operand` says.
    const float* x = nullptr;
    int64_t x_stride = 0;          // floats
    const uint16_t* xb = nullptr;  // [m x xb_stride], in tiles
    int64_t xb_stride = 0;         // K rounded up to bf16_step
    Int8Rows xq;
    const float* bias = nullptr;      // [n] or null
    const float* residual = nullptr;  // [m x n] or null
    int64_t residual_stride = 0;      // floats
    float* out = nullptr;
    int64_t out_stride = 0;        // floats
    bool past_cache = false;       // nothing of out would be left there when it is read
    std::byte* scratch = nullptr;  // MatmulKernels::scratch bytes, 64-byte aligned
};

// One instruction set's way to cut a matmul.
struct MatmulShape {
    int64_t column_step = 0;  // cut columns at multiples of this; whole groups of packed rows
    int64_t max_rows = 0;     // rows of one block; cut rows at whole tiles of what is multiplied
};

struct NormBlock {
    const NormParams* params = nullptr;
    int64_t cols = 0;
    const float *x = nullptr, *weight = nullptr, *bias = nullptr, *residual = nullptr;  // one row
    float* out = nullptr;
};

// Attention of consecutive tokens of one sequence with the heads of a key-value head, over splits of the
// context.
struct AttentionBlock {
    const AttentionParams* params = nullptr;
    Tensor k_cache, v_cache;
    const int32_t* pages = nullptr;  // of the sequence
    int64_t n_pages = 0;             // entries of `pages`
    const float* q = nullptr;        // row of the first token
    int64_t q_stride = 0;            // floats
    float* out = nullptr;            // row of the first token; null: leave partial results
    int64_t out_stride = 0;
    const float* sinks = nullptr;
    int64_t first_position = 0;
    int64_t n_tokens = 0;
    int32_t kv_head = 0;   // the first of
    int32_t kv_heads = 1;  // so many, if there are few rows: together they read the cache in its order
    int64_t split_begin = 0, split_end = 0;  // of Splits
    float* partial = nullptr;                // first token's record; see partial_stride()
    int64_t partial_stride = 0;              // floats from one token's records to the next token's
    std::byte* scratch = nullptr;            // AttentionKernels::scratch_bytes(), 64-byte aligned
};

// Rows of one sequence through the convolution of some channels.
struct ConvBlock {
    const CausalConvParams* params = nullptr;
    int64_t n_channels = 0, n_rows = 0;
    const float* x = nullptr;  // of the first row; strides in floats
    int64_t x_stride = 0;
    const float *weight = nullptr, *bias = nullptr;
    float* state = nullptr;
    int64_t state_stride = 0;
    bool fresh = false;  // the state begins with zeros
    float* out = nullptr;
    int64_t out_stride = 0;
};

// Rows of one sequence through some columns of one head's state.
struct StateBlock {
    int64_t k_dim = 0, n_columns = 0, n_rows = 0;
    const float *q = nullptr, *k = nullptr, *v = nullptr;  // of the first row; strides in floats
    int64_t stride = 0;
    const float* gates = nullptr;  // [n_rows x 2]: how much stays, how much is added
    float skip = 0;                // of v in the result
    float* state = nullptr;
    int64_t state_stride = 0;
    bool fresh = false;
    float* out = nullptr;
    int64_t out_stride = 0;
};

// The kernels of an instruction set come in groups, so that one that adds something to another has only that
// compiled for it and refers to the other's groups for the rest.

// Single rows: conversion, norm, activation, addition, rotation.
struct RowKernels {
    void (*decode)(const TypeInfo&, const std::byte* src, float* dst, int64_t n);
    void (*encode)(const TypeInfo&, const float* src, std::byte* dst, int64_t n);
    void (*norm)(const NormBlock&);
    void (*glu)(const GluParams&, const float* gate, const float* up, float* out, int64_t n);
    void (*activate)(const ActivateParams&, const float* x, float* out, int64_t n);
    void (*add)(const float* a, const float* b, float scale, float* out, int64_t n);
    void (*scale)(float* x, float factor, int64_t n);
    // Rotates n_heads heads by one row of a rope table (null: none), then the Hadamard transform if any.
    void (*rope)(const RopeStoreParams&, int32_t n_heads, const float* table, const float* x, float* out);
};

// Weights and activations as matmuls read them.
struct PackKernels {
    // The packed layout of weights (ggml/cpu/packed.h): bytes of one group of `lanes` rows of k columns, 0
    // for types that have none; and n <= lanes rows into one group.
    int lanes;
    size_t (*group_bytes)(const TypeInfo&, int64_t k);
    void (*pack_group)(const TypeInfo&, const std::byte* w, int64_t stride, int64_t n, int64_t k,
                       std::byte* group);
    // k values of row `row` of a tile of h rows; the pointers are to the tile's first block of them.
    void (*quantize)(const float* x, int64_t k, int64_t row, int64_t h, int8_t* q, Int8Block* blocks,
                     Int8Halves* halves);
};

// glu(gate, up) of two products of the same x, as the x of the next product. The weights are packed and of
// one type, their columns whole blocks (int8) and steps (bf16).
struct GatedBlock {
    MatmulBlock gate;               // with MatmulKernels::gated_operand; no residual, no out
    const std::byte* up = nullptr;  // the other's weights, laid out as the gate's
    const float* up_bias = nullptr;
    const GluParams* params = nullptr;
    void (*glu)(const GluParams&, const float* gate, const float* up, float* out, int64_t n) = nullptr;
    decltype(PackKernels::quantize) quantize = nullptr;
    // Of these, what gated_operand says: the block's first row, in tiles.
    uint16_t* bf16 = nullptr;
    Int8Places int8;
    int64_t out_stride = 0;  // numbers per row
    int64_t column = 0;      // of what is written, of the gate's first column
};

// Products of so many rows (generation, checked guesses, several users) have the same bits whatever the
// number.
inline constexpr int64_t few_rows = 32;

struct MatmulKernels {
    // For products of so many rows of k columns. Up to few_rows they have the operand of one row.
    Operand (*operand)(const TypeInfo&, int64_t rows, int64_t k);
    int64_t int8_rows, bf16_rows;  // of a tile
    // n values of one row of a tile of height `h`, and zeros up to a whole step; `out` is its place in the
    // first step. Null where no type wants them.
    void (*round)(const float* x, int64_t n, int64_t h, uint16_t* out);
    MatmulShape shape;
    size_t (*scratch)(const TypeInfo&, int64_t k, bool packed);  // bytes per thread
    void (*block)(const MatmulBlock&);
    void (*gated)(const GatedBlock&);
    Operand gated_operand = Operand::int8;  // what that multiplies, and writes
};

// Rows of queries that are worth a tile of attention of their own, and a task.
inline constexpr int64_t worth_a_tile = 64;

struct AttentionKernels {
    bool bf16_products;  // what is multiplied is rounded to bf16, unless a cache is f32
    size_t (*scratch_bytes)(const AttentionParams&, int64_t tile_tokens);
    int64_t (*tile_tokens)(const AttentionParams&);  // of a tile, at most
    void (*block)(const AttentionBlock&);
    // Joins the partial records of one token and kv head, in the order of the splits.
    void (*merge)(const AttentionBlock&);
};

struct StateKernels {
    void (*causal_conv)(const ConvBlock&);
    void (*delta_rule)(const StateBlock&);
    void (*ssm_scan)(const StateBlock&);
};

struct KernelTable {
    std::string_view name;  // as --isa spells it
    std::string_view needs;
    bool (*available)(const Features&);
    const RowKernels& rows;
    const PackKernels& pack;
    const MatmulKernels& matmul;
    const AttentionKernels& attention;
    const StateKernels& state;
};

// Where the context is cut, whatever the batch: splits of whole pages, of about 256 tokens at first and of
// two and four times as many where enough lie before them to keep every thread busy. What a split gives has
// to be joined with the others, so few are better.
class Splits {
  public:
    explicit Splits(const AttentionParams& p)
        : unit_(p.page_size >= about ? p.page_size : about / p.page_size * p.page_size) {}
    int64_t begin(int64_t split) const {
        const int64_t twos = std::clamp<int64_t>(split - singles, 0, pairs),
                      fours = std::max<int64_t>(split - singles - pairs, 0);
        return unit_ * (std::min(split, singles) + 2 * twos + 4 * fours);
    }
    int64_t of(int64_t position) const {
        const int64_t unit = position / unit_, behind = unit - singles - 2 * pairs;
        if (behind >= 0) return singles + pairs + behind / 4;
        return unit < singles ? unit : singles + (unit - singles) / 2;
    }

  private:
    static constexpr int64_t about = 256, singles = 8, pairs = 12;
    int64_t unit_;
};
// A partial record: maximum, sum of exponentials, padding to 16 floats, then the weighted values.
inline constexpr int64_t partial_header = 16;
inline int64_t partial_floats(const AttentionParams& p) {
    return partial_header + (p.v_head_dim + 15) / 16 * 16;
}

// What was measured best for these kernels on this machine's processor, or on one like it.
Streaming streaming(const KernelTable& kernels, const Features& machine = features());

// All tables compiled into this binary, plainest first.
std::span<const KernelTable* const> compiled_tables();
// The table called `name`, or the best one this machine can run when `name` is empty or "auto".
// An Error when there is no such table or the machine lacks what it needs.
Result<const KernelTable*> select_table(std::string_view name, const Features& machine = features());

}  // namespace nibble::cpu
