// The vocabulary: every op's builder function, parameters and contract. T = tokens of the batch.
// Implementations (shape rule, cost, reference, test cases) are in ggml/ops/<op>.cpp.
#pragma once

#include <array>
#include <bit>
#include <span>

#include "ggml/program/op.h"

namespace nibble {

enum class Op : uint16_t {
    embed,
    norm,
    matmul,
    rope_table,
    rope_store,
    attention,
    glu,
    activate,
    add,
    take_rows,
    copy_pages,
    moe_route,
    moe_matmul,
    moe_sum,
    splice_heads,
    scale_by_position,
    shortlist,
    draw,
    causal_conv,
    delta_rule,
    ssm_scan,
    count_,
};

// The definitions, one per file; all_ops() is in the order of the enum.
extern const OpDef embed_op, norm_op, matmul_op, rope_table_op, rope_store_op, attention_op, glu_op,
    activate_op, add_op, take_rows_op, copy_pages_op, moe_route_op, moe_matmul_op, moe_sum_op,
    splice_heads_op, scale_by_position_op, shortlist_op, draw_op, causal_conv_op, delta_rule_op, ssm_scan_op;
std::span<const OpDef* const> all_ops();

// ---- embed: out[t] = table[ids[t]] * scale -------------------------------------------------------------
// ids i32 [T x 1], table any decodable type [vocab x width] -> f32 [T x width]. drawn f32 [n x 1] or absent:
// an id of -1 - i stands for drawn[i].
// An id outside the table gives a row of zeros (the engine refuses such ids earlier).
struct EmbedParams {
    float scale = 1;
};
Ref embed(Builder& b, Ref ids, Ref table, EmbedParams p = {}, Ref drawn = {});

// The row of the table; `drawn` is null where it is absent.
constexpr int64_t embedded_row(int32_t id, const float* drawn, int64_t drawn_rows) {
    if (id >= 0 || !drawn || -1 - int64_t{id} >= drawn_rows) return id;
    return static_cast<int64_t>(drawn[-1 - int64_t{id}]);
}

// ---- norm: RMS norm or layer norm, whole rows or groups of columns (per-head norms) ---------------------
// For each group g of `group` columns (0: the whole row): y = (x - mean?) / sqrt(mean(x^2) + eps) * weight
// (+ bias) (+ residual). weight, bias f32 [1 x group], the same for every group, or [1 x cols] with
// `by_column`; residual like x. Output f32 like x.
struct NormParams {
    float eps = 1e-5f;
    int32_t group = 0;
    bool subtract_mean = false;
    bool by_column = false;
};
Ref norm(Builder& b, Ref x, Ref weight, NormParams p = {}, Ref bias = {}, Ref residual = {});

// ---- matmul: out = x * W^T for one to three matrices that share x, results side by side ------------------
// W_i [N_i x K] of any type with a codec, x f32 [rows x K] -> f32 [rows x sum N_i]; bias_i f32 [1 x N_i];
// residual f32 [rows x sum N_i] is added last. Operands in order: x, residual, W_0.., bias_0..
// Row r of the result depends on row r of x alone, to the last bit, whatever the number of rows.
struct MatmulParams {
    int32_t n_weights = 1;
};
struct MatmulOpts {
    Ref residual = {};
    std::span<const Ref> bias = {};  // empty, or one per weight (each may be absent)
};
inline constexpr size_t max_matmul_weights = 3;
Ref matmul(Builder& b, std::span<const Ref> weights, Ref x, const MatmulOpts& opts = {});
Ref matmul(Builder& b, Ref weight, Ref x, const MatmulOpts& opts = {});

// ---- rope_table: cosines and sines of a batch, once per step for all layers -----------------------------
// positions i32 [T x 1], inv_freq f32 [1 x rot/2] -> f32 [T x rot]: pairs (cos, sin) of position * inv_freq,
// times `magnitude` (yarn and longrope attention factors). Angles are formed in double precision, so that
// positions beyond 2^24 / 2^17 lose nothing.
struct RopeTableParams {
    float magnitude = 1;
};
Ref rope_table(Builder& b, Ref positions, Ref inv_freq, RopeTableParams p = {});

// ---- rope_store: rotate queries and keys, store keys and values in the cache ---------------------------
// q f32 [T x n_heads*head_dim], k f32 [T x n_kv_heads*head_dim], v f32 [T x n_kv_heads*v_head_dim], table
// from rope_table or absent (no rotation), slots i32 [T x 1] (page * page_size + offset; -1: do not store).
// v and v_cache may both be absent, v_head_dim then 0: where values are columns of the keys. k, slots and the
// caches may all be absent, n_kv_heads then 0: where another layer's keys and values are attended to. Writes
// the caches (see attention) and returns the rotated q, f32. The first rot_dim columns of each head are
// rotated, in adjacent pairs (2i, 2i+1) or in halves (i, i + rot_dim/2). With `hadamard` = 2^n, dividing
// head_dim, queries and stored keys then pass through an orthonormal Hadamard transform of every 2^n columns:
// their products stay the same, and a key's outliers are spread before 4-bit rounding (QuaRot,
// arXiv:2404.00456, section 3).
enum class RopeStyle : uint8_t { adjacent, half };
struct RopeStoreParams {
    int32_t n_heads = 1;
    int32_t n_kv_heads = 1;
    int32_t head_dim = 0;
    int32_t v_head_dim = 0;
    int32_t rot_dim = 0;
    int32_t page_size = 32;
    RopeStyle style = RopeStyle::half;
    int32_t hadamard = 0;  // 0: none
};
struct QkvRefs {
    Ref q, k, v;
};
Ref rope_store(Builder& b, QkvRefs qkv, Ref table, Ref slots, Ref k_cache, Ref v_cache,
               const RopeStoreParams& p);

// ---- attention over the paged cache ----------------------------------------------------------------------
// Cache layout, per layer, keys and values apart: rows = n_pages * n_kv_heads * page_size, row
// (page * n_kv_heads + head) * page_size + offset, head_dim columns, type f32/f16/bf16 (or a quantized one).
// The values may be columns of the keys (a view of the same cache).
// seq_rows i32 [S x 2]: first row and number of rows of each sequence in the batch; positions i32 [T x 1],
// consecutive within a sequence; page_table i32 [S x max_pages]: page of tokens [i*page_size, ...).
// Row t at position p attends positions max(0, p - window + 1) .. p (window 0: from 0) of its sequence:
// scores = scale * q.k, soft-capped as cap * tanh(s / cap) when softcap > 0; softmax; `sinks` f32 [1 x
// n_heads] adds exp(sink) to the denominator. Query head h reads kv head h / (n_heads / n_kv_heads). Returns
// f32 [T x n_heads * v_head_dim].
struct AttentionParams {
    int32_t n_heads = 1;
    int32_t n_kv_heads = 1;
    int32_t head_dim = 0;
    int32_t v_head_dim = 0;
    int32_t page_size = 32;
    int32_t window = 0;
    float scale = 1;
    float softcap = 0;
};
struct AttentionBatch {
    Ref seq_rows, positions, page_table;
};
Ref attention(Builder& b, Ref q, Ref k_cache, Ref v_cache, const AttentionBatch& batch,
              const AttentionParams& p, Ref sinks = {});

// ---- glu: gated feed-forward activation ------------------------------------------------------------------
// x f32 [T x 2F], gate in the first F columns, up in the last, or each [T x F] by itself -> f32 [T x F] =
// act(gate) * (up + up_shift). A gate by itself may have fewer columns: with G each is that of F / G of up.
// With `limit` > 0 the gate is first cut to at most `limit` and up to [-limit, limit]. gelu_quick(x) is
// x * sigmoid(1.702 x) (arXiv:1606.08415, section 2), relu_squared(x) max(x, 0)^2 (arXiv:2109.08668, section
// 3.2), softplus(x) ln(1 + e^x).
enum class Activation : uint8_t {
    silu,
    gelu_tanh,
    gelu_erf,
    relu,
    tanh,
    none,
    gelu_quick,
    sigmoid,
    relu_squared,
    softplus,
    xielu
};
struct GluParams {
    Activation act = Activation::silu;
    float limit = 0;
    float up_shift = 0;
};
Ref glu(Builder& b, Ref gate_up, GluParams p = {});
Ref glu(Builder& b, Ref gate, Ref up, GluParams p = {});

// ---- activate: out = out_scale * act(in_scale * x), elementwise ------------------------------------------
// Feed-forwards without a gate; soft caps (tanh, in_scale 1/cap, out_scale cap); plain scaling (none).
// x f32 -> f32 like x. xIELU (arXiv:2411.13010), which glu does not have, is alpha_p x^2 + beta x above zero
// and alpha_n (e^x - 1 - x) + beta x below.
struct XieluParams {
    float alpha_p = 0;
    float alpha_n = 0;
    float beta = 1;
};
struct ActivateParams {
    Activation act = Activation::none;
    float in_scale = 1;
    float out_scale = 1;
    XieluParams xielu = {};
};
Ref activate(Builder& b, Ref x, ActivateParams p);

// ---- add: out = a + scale * b, elementwise; b may have one row, which is then used for every row ----------
struct AddParams {
    float scale = 1;
};
Ref add(Builder& b, Ref a, Ref c, AddParams p = {});

// ---- scale_by_position: out[t] = x[t] * (1 + beta * ln(1 + floor(position / period))) ---------------------
// positions i32 [T x 1], x f32 -> f32 like x. Queries that grow with the length of what they look through
// (Nakanishi 2025, arXiv:2501.19399, section 4).
struct PositionScaleParams {
    float beta = 0;
    int32_t period = 1;
};
Ref scale_by_position(Builder& b, Ref x, Ref positions, PositionScaleParams p);

// ---- take_rows: out[i] = x[rows[i]]; rows i32 [outputs x 1], x f32 ----------------------------------------
Ref take_rows(Builder& b, Ref x, Ref rows);

// ---- copy_pages: copy-on-write inside a cache ------------------------------------------------------------
// pairs i32 [sequences x 2] (from, to); cache as in attention, in place; `page_rows` cache rows per page.
// Returns nothing; order of pairs is not defined and they must not overlap.
struct CopyPagesParams {
    int32_t page_rows = 0;
};
void copy_pages(Builder& b, Ref cache, Ref pairs, CopyPagesParams p);

// ---- moe_route: which experts a row uses, and how much each counts ----------------------------------------
// logits f32 [T x E] -> routes f32 [T x 2 n_used]: first the numbers of the chosen experts (exact in f32),
// then their weights. An expert's score is the softmax of its logit over all experts, or its sigmoid. Chosen
// are the largest of score + bias (f32 [1 x E], optional), falling, the lower number first among equals.
// Weights are the scores without the bias, with `normalize` divided by their sum, times `scale`, times the
// expert's own of `scales` (f32 [1 x E], optional).
// With n_groups > 1, E / n_groups experts each, only the best n_groups_used groups have a choice: by their
// best score + bias under softmax, by the sum of their best two under sigmoid (DeepSeek-V2, arXiv:2405.04434;
// DeepSeek-V3, arXiv:2412.19437, section 2.1.2).
inline constexpr int32_t max_experts = 1 << 16;
inline constexpr int32_t max_expert_groups = 64;
enum class Gating : uint8_t { softmax, sigmoid };
struct MoeRouteParams {
    int32_t n_used = 1;
    bool normalize = true;
    Gating gating = Gating::softmax;
    int32_t n_groups = 1;
    int32_t n_groups_used = 1;
    float scale = 1;
};
Ref moe_route(Builder& b, Ref logits, MoeRouteParams p, Ref bias = {}, Ref scales = {});

// ---- moe_matmul: each row times the matrices of its experts -----------------------------------------------
// x f32 [T x K], or [T x n_used * K] with an input of its own for each chosen expert; routes from moe_route;
// W_i [E*N x K], expert after expert, of any type with a codec; bias_i f32 [1 x E*N] -> f32 [T x n_weights *
// n_used * N]: of weight i and the j-th expert, columns from (i * n_used + j) * N. Operands in order: x,
// routes, W_0.., bias_0.. Row r of the result depends on row r of x and routes alone, to the last bit. An
// expert that does not exist gives zeros. Without routes every row uses all experts in their order (n_used =
// n_experts): with inputs of their own, one matrix per head. Weights may be packed only when an expert's rows
// are whole groups: N a multiple of packed_expert_rows.
inline constexpr int64_t packed_expert_rows = 64;
struct MoeMatmulParams {
    int32_t n_experts = 1;
    int32_t n_used = 1;
    int32_t n_weights = 1;  // filled in
};
Ref moe_matmul(Builder& b, std::span<const Ref> weights, Ref x, Ref routes, MoeMatmulParams p,
               std::span<const Ref> biases = {});

// ---- moe_sum: the experts' outputs, weighted, and the shared expert's -------------------------------------
// y f32 [T x n_used * N], routes as above, shared f32 [T x N], gate f32 [T x 1], both optional -> f32 [T x N]
// = sum over j of weight_j * y_j (+ shared, times sigmoid(gate) where there is one).
Ref moe_sum(Builder& b, Ref y, Ref routes, Ref shared = {}, Ref gate = {});

// ---- splice_heads: columns of every head, of one value or of two side by side -----------------------------
// a f32 [T x n_heads * A], b f32 [T x n_heads * B] or absent -> f32 [T x n_heads * (a_count + b.cols /
// n_heads)]: of each head first columns [a_first, a_first + a_count) of a, then all of b.
struct SpliceParams {
    int32_t n_heads = 1;
    int32_t a_first = 0;
    int32_t a_count = 0;
};
Ref splice_heads(Builder& b, Ref x, SpliceParams p, Ref behind = {});

// ---- shortlist: the largest values of each row, where they are, and what all weigh ------------------------
// x f32 [rows x N], N <= max_shortlist_columns -> f32 [rows x (2 count + 3 shortlist_pieces)]: first the
// `count` largest values, falling, among equals the lower column first; then their columns (exact in f32).
// Values of -inf are not listed; where fewer are left, 0 and column -1 follow. The first value is NaN where
// there is no list: x has a NaN or +inf, or, at a backend's choice, so many equal values at the list's end
// that it would not order them.
//
// weighed i32 [rows x 3]: the bits of an f64 temperature, lower half first, and a number of columns. Then
// follow, for each of shortlist_pieces equal parts of the N columns, the exp_weight_at()
// (ggml/base/exp_weight.h) of those among the first so many columns against the row's largest value, summed:
// three floats of 22 bits, lowest first. All zeros where the temperature is 0 or x has a NaN or +inf.
inline constexpr int64_t max_shortlist_columns = 1 << 24;
inline constexpr int32_t shortlist_pieces = 32;
struct ShortlistParams {
    int32_t count = 1;
};
Ref shortlist(Builder& b, Ref x, Ref weighed, ShortlistParams p);

constexpr double shortlist_temperature(const int32_t* weighed) {
    return std::bit_cast<double>(static_cast<uint64_t>(static_cast<uint32_t>(weighed[1])) << 32 |
                                 static_cast<uint32_t>(weighed[0]));
}
constexpr std::array<int32_t, 3> weighed_row(double temperature, int32_t columns) {
    const auto bits = std::bit_cast<uint64_t>(temperature);
    return {static_cast<int32_t>(bits), static_cast<int32_t>(bits >> 32), columns};
}

// A piece's weight in three floats, and back.
constexpr void split_weight(uint64_t weight, float* to) {
    for (int i = 0; i < 3; ++i) to[i] = static_cast<float>(weight >> (22 * i) & 0x3fffff);
}
constexpr uint64_t joined_weight(const float* from) {
    uint64_t weight = 0;
    for (int i = 0; i < 3; ++i) weight |= static_cast<uint64_t>(from[i]) << (22 * i);
    return weight;
}

// ---- draw: a token for each row, from its shortlist -----------------------------------------------------
// list f32 [rows x (2 count + 3 shortlist_pieces)] and weighed i32 [rows x 3] of a shortlist, how i32
// [rows x draw_columns] (ggml/base/draw_row.h), drawn f32 [at least rows x 1], a cache. Columns from the
// number in `weighed` on cannot be drawn. drawn[r] becomes the column that a sampler chain draws from the
// whole row, or -1 where its beginning does not tell, or nothing is to be drawn.
void draw(Builder& b, Ref list, Ref weighed, Ref how, Ref drawn, ShortlistParams p);

// ---- states: what a sequence carries from token to token instead of keys and values ----------------------
// A page of a state cache (f32) is one sequence's. `page_table` of the batch, i32 [S x 3], says: page, n,
// last. Rows of a sequence are taken in order; they begin with the state in `page`, and `last` takes the one
// behind all of them. Where that is another page, `page` takes the state behind the first n rows (0: it stays
// as it was), so that a sequence can go back there. One whose first row is at position 0 begins with zeros,
// whatever its page holds. Pages of -1, or beyond the cache, are those of nobody: their rows give zeros. A
// row's result does not depend, to the last bit, on which rows ride along.
inline constexpr int32_t state_page_columns = 3;

// ---- causal_conv: each channel's last few inputs, weighed -------------------------------------------------
// x f32 [T x C], weight f32 [1 x C * n_taps], the taps of a channel together, the newest last; bias f32 [1 x
// C], optional; state [n_pages * (n_taps - 1) x C]: the latest inputs, the newest last -> f32 [T x C] =
// act(bias + sum over taps).
inline constexpr int32_t max_conv_taps = 8;
struct CausalConvParams {
    int32_t n_taps = 2;
    Activation act = Activation::none;
};
Ref causal_conv(Builder& b, Ref x, Ref weight, Ref state, const AttentionBatch& batch, CausalConvParams p,
                Ref bias = {});

// ---- delta_rule: linear attention over a matrix S that each token corrects --------------------------------
// qkv f32 [T x n_k_heads * k_dim * 2 + n_v_heads * v_dim]: queries, keys, values; gates f32 [T x 2
// n_v_heads]: of every `gate_group` value heads (0: of all) first b, then a; decay and bias f32 [1 x
// n_v_heads]; state [n_pages * n_v_heads * k_dim x v_dim]: a matrix S [k_dim x v_dim] for each value head ->
// f32 [T x n_v_heads * v_dim]. Per head and token, q and k first scaled to length 1 (q then by 1 /
// sqrt(k_dim)):
//   g = exp(decay * softplus(a + bias)),  S = g S + k (sigmoid(b) (v - k' g S)),  out = q' S
// (Gated Delta Networks, arXiv:2412.06464, section 3). With r = n_v_heads / n_k_heads value head h uses key
// head h / r, or h % n_k_heads when `tiled`.
inline constexpr int32_t max_state_dim = 256;
inline constexpr float state_norm_eps = 1e-6f;  // beside the squared length of q and k
struct DeltaRuleParams {
    int32_t n_k_heads = 1;
    int32_t n_v_heads = 1;
    int32_t k_dim = 0;
    int32_t v_dim = 0;
    bool tiled = false;
    int32_t gate_group = 0;

    // Where b of a value head is; a is so many columns further on as there are heads in a group.
    int32_t gates_in_group() const { return gate_group > 0 ? gate_group : n_v_heads; }
    int64_t gate_column(int64_t head) const { return head + head / gates_in_group() * gates_in_group(); }
};
Ref delta_rule(Builder& b, Ref qkv, Ref gates, Ref decay, Ref bias, Ref state, const AttentionBatch& batch,
               const DeltaRuleParams& p);

// ---- ssm_scan: a state space, a matrix S that fades and to which each token adds --------------------------
// x f32 [T x n_heads * v_dim + 2 * n_groups * k_dim]: values, keys, queries (x, B, C of the paper); dt f32 [T
// x n_heads]; decay, bias and skip f32 [1 x n_heads]; state [n_pages * n_heads * k_dim x v_dim]: a matrix S
// [k_dim x v_dim] for each head -> f32 [T x n_heads * v_dim]. Per head and token, with d = softplus(dt +
// bias):
//   S = exp(decay d) S + k (d v),  out = S' q + skip v
// (Mamba-2, arXiv:2405.21060, section 7). Head h uses the keys and queries of group h / (n_heads / n_groups).
struct SsmScanParams {
    int32_t n_groups = 1;
    int32_t n_heads = 1;
    int32_t k_dim = 0;
    int32_t v_dim = 0;
};
Ref ssm_scan(Builder& b, Ref x, Ref dt, Ref decay, Ref bias, Ref skip, Ref state, const AttentionBatch& batch,
             const SsmScanParams& p);

}  // namespace nibble
