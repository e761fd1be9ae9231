// The forward description shared by all architectures, and the weights as the blocks ask for them.
// x [tokens x n_embd] is the residual stream, always f32.
#include "src/model/forward.h"

#include <algorithm>

#include "ggml/base/cat.h"
#include "ggml/base/draw_row.h"

namespace nibble {

std::string io::slots(int32_t group) { return cat("slots.", group); }
std::string io::source(size_t i) { return cat("source.", i); }
std::string io::page_table(int32_t group) { return cat("page_table.", group); }

Forward::Forward(Builder& b, const ModelSpec& spec, WeightStore& weights, const KvTensors& kv)
    : b_(b), spec_(spec), weights_(weights), kv_(kv) {}

std::string Forward::full_name(std::string_view name) const {
    return layer_spec_ ? cat("blk.", layer(), ".", name) : std::string(name);
}

void Forward::label(std::string_view what) { b_.label(full_name(what)); }

bool Forward::has(std::string_view name) {
    const auto t = weights_.get(full_name(name), WeightUse::matmul);
    return !t || bool(*t);  // an unusable one is there: asking for it again reports why
}

int64_t Forward::rows(std::string_view name) {
    const auto t = weights_.get(full_name(name), WeightUse::matmul);
    return t ? t->rows : 0;
}

// `first_rows`: so many alone, where they are whole groups of packed ones.
Ref Forward::weight(std::string_view name, int64_t rows, int64_t cols, WeightUse use, bool required,
                    int64_t first_rows) {
    const std::string full = full_name(name);
    auto t = weights_.get(full, use, rows * cols);
    if (!t) {
        if (error_.what.empty()) error_ = t.error();
        return {};
    }
    if (!*t) {
        b_.require(!required, cat("tensor '", full, "' is missing"));
        return {};
    }
    if (!b_.require(t->rows == rows && t->cols == cols,
                    cat("tensor '", full, "' is ", t->rows, " x ", t->cols, " but the hyperparameters say ",
                        rows, " x ", cols)))
        return {};
    if (first_rows > 0) t->rows = first_rows;
    return b_.weight(*t, full);
}

Ref Forward::norm(Ref x, std::string_view name, Ref residual, float eps) {
    label(name);
    const int64_t width = b_.value(x).cols;
    const NormParams p{eps > 0 ? eps : spec_.norm_eps, 0, spec_.layer_norm};
    return nibble::norm(b_, x, vector(cat(name, ".weight"), width), p,
                        optional_vector(cat(name, ".bias"), width), residual);
}

Ref Forward::block_input(Ref x, std::string_view name) { return layer_spec().pre_norm ? norm(x, name) : x; }

Ref Forward::join(Ref residual, Ref y, std::string_view post_norm) {
    if (layer_spec().post_norm) y = norm(y, post_norm, {}, spec_.post_norm_eps);
    return add(b_, residual, y, {spec_.residual_scale});
}

Ref Forward::project(Ref input, std::string_view name, Ref residual, std::string_view post_norm) {
    label(name);
    const bool fused = !layer_spec().post_norm && spec_.residual_scale == 1;
    const Ref bias[] = {optional_vector(cat(name, ".bias"), spec_.n_embd)};
    const Ref weight = matrix(cat(name, ".weight"), spec_.n_embd, b_.value(input).cols);
    const Ref y = matmul(b_, weight, input, {fused ? residual : Ref{}, bias});
    return fused ? y : join(residual, y, post_norm);
}

AttentionBatch Forward::batch(int32_t group) const {
    return {rows_.of_sequences, rows_.positions, page_tables_[static_cast<size_t>(group)]};
}

Ref Forward::k_cache(int32_t layer) {
    return b_.cache(kv_.k[static_cast<size_t>(layer)], cat("k_cache.", layer));
}

Ref Forward::v_cache(int32_t layer) {
    return b_.cache(kv_.v[static_cast<size_t>(layer)], cat("v_cache.", layer));
}

Ref Forward::keep_output_rows(Ref x) {
    return cuts_ && b_.value(x).dim == RowDim::tokens ? take_rows(b_, x, out_rows_) : x;
}

void Forward::row_inputs() {
    tokens_ = b_.input(std::string(io::tokens), Type::i32, RowDim::tokens, 1);
    rows_.positions = b_.input(std::string(io::positions), Type::i32, RowDim::tokens, 1);
    rows_.of_sequences = b_.input(std::string(io::seq_rows), Type::i32, RowDim::sequences, 2);
    out_rows_ = b_.input(std::string(io::out_rows), Type::i32, RowDim::outputs, 1);
    slots_.resize(spec_.kv_groups.size());
    page_tables_.resize(spec_.kv_groups.size());
}

Forward::Rows Forward::output_rows() {
    const Ref positions = b_.input(std::string(io::out_positions), Type::i32, RowDim::outputs, 1);
    return {positions, b_.input(std::string(io::out_seq_rows), Type::i32, RowDim::sequences, 2),
            rope_tables(positions)};
}

void Forward::cache_inputs(int32_t group, bool stores) {
    const auto g = static_cast<size_t>(group);
    if (page_tables_[g]) return;
    const bool states = spec_.kv_groups[g].states;
    if (stores && !states) slots_[g] = b_.input(io::slots(group), Type::i32, RowDim::tokens, 1);
    page_tables_[g] = b_.input(io::page_table(group), Type::i32, RowDim::sequences,
                               states ? state_page_columns : kv_.max_pages);
}

// Where the embedding is: what is constant lies there, too.
std::vector<Ref> Forward::rope_tables(Ref positions) {
    std::vector<Ref> tables;
    for (const RopeSpec& r : spec_.ropes) {
        const std::string name = cat("inv_freq.", tables.size());
        const Ref inv_freq = b_.weight(weights_.constant(name, r.inv_freq), name);
        tables.push_back(rope_table(b_, positions, inv_freq, {r.magnitude}));
    }
    return tables;
}

Ref Forward::through_layer(const LayerSpec& layer, Ref x, Ref for_layers) {
    layer_spec_ = &layer;
    const Ref mixed =
        std::visit([&](const auto& mixer) { return mixer_block(*this, mixer, x); }, layer.mixer);
    const Ref input = layer.parallel ? keep_output_rows(x) : mixed;
    x = std::visit([&](const auto& ffn) { return ffn_block(*this, ffn, input, mixed); }, layer.ffn);
    if (for_layers) x = per_layer_block(*this, for_layers, x);
    if (layer.out_scale != 1) x = activate(b_, x, {Activation::none, 1, layer.out_scale});
    optional_vector("layer_output_scale.weight", 1);  // whose value is out_scale
    layer_spec_ = nullptr;
    return x;
}

// Of the first n_tokens; all of them, or a whole number of packed groups.
Ref Forward::logits_of(Ref x, int64_t n_tokens) {
    label("output");
    const bool tied = !has("output.weight"), all = n_tokens == spec_.n_vocab;
    const Ref bias[] = {tied ? Ref{} : optional_vector("output.bias", spec_.n_vocab)};
    b_.require(all || !bias[0], "the first logits alone of an output with biases");
    const Ref table = weight(tied ? "token_embd.weight" : "output.weight", spec_.n_vocab, spec_.n_embd,
                             WeightUse::matmul, true, all ? 0 : n_tokens);
    const Ref logits = matmul(b_, table, x, {{}, bias});
    const float cap = spec_.logit_softcap;
    if (cap > 0) return activate(b_, logits, {Activation::tanh, spec_.logit_scale / cap, cap});
    if (spec_.logit_scale != 1) return activate(b_, logits, {Activation::none, spec_.logit_scale, 1});
    return logits;
}

namespace {

// Behind it nothing is left for later steps: of these layers only what output rows need is computed, which
// makes prompts much cheaper where many layers share the keys and values of others (Gemma 4).
int32_t last_layer_with_memory(const ModelSpec& spec) {
    const auto adds_none = [&](int32_t i) {
        const LayerSpec& l = spec.layers[static_cast<size_t>(i)];
        return shared_kv_layer(l) || std::holds_alternative<NoBlock>(l.mixer);
    };
    auto i = static_cast<int32_t>(spec.layers.size()) - 1;
    while (i > 0 && adds_none(i)) --i;
    return i;
}

}  // namespace

Ref Forward::record() {
    const auto n_layers = static_cast<int32_t>(spec_.layers.size());
    b_.at(-1, "embed");
    row_inputs();
    if (kv_.drawn.rows > 0) drawn_ = b_.cache(kv_.drawn, "drawn");
    for (int32_t g = 0; g < static_cast<int32_t>(spec_.kv_groups.size()); ++g) cache_inputs(g, true);
    rows_.ropes = rope_tables(rows_.positions);
    int32_t last = last_layer_with_memory(spec_);
    for (const uint32_t source : spec_.sources) last = std::max(last, static_cast<int32_t>(source) + 1);
    const auto behind = std::span(spec_.layers).subspan(std::min(spec_.layers.size(), size_t(last) + 1));
    const bool attends_behind =
        std::ranges::any_of(behind, [](const LayerSpec& l) { return shared_kv_layer(l).has_value(); });
    Rows output = attends_behind && !spec_.predictor ? output_rows() : Rows{};
    Ref x = embed(b_, tokens_, table("token_embd.weight", spec_.n_vocab, spec_.n_embd), {spec_.embed_scale},
                  drawn_);
    if (spec_.embed_norm) x = nibble::norm(b_, x, {}, {spec_.norm_eps});
    if (spec_.n_positions > 0)
        x = add(
            b_, x,
            embed(b_, rows_.positions, table("position_embd.weight", spec_.n_positions, spec_.n_embd), {}));
    const Ref for_layers = spec_.n_per_layer > 0 ? per_layer_inputs(*this, tokens_, x) : Ref{};
    for (int32_t i = 0; i < n_layers; ++i) {
        b_.at(i);
        cuts_ = i >= last && !spec_.predictor;
        if (cuts_ && attends_behind && i == last + 1) rows_ = std::move(output);
        x = through_layer(spec_.layers[static_cast<size_t>(i)], x, for_layers);
        for (size_t k = 0; k < spec_.sources.size(); ++k)
            if (spec_.sources[k] == static_cast<uint32_t>(i)) b_.mark_output(x, io::source(k));
    }
    b_.at(n_layers);
    x = norm(x, spec_.output_norm);
    if (spec_.predictor || kv_.output_hidden) b_.mark_output(x, std::string(io::hidden));
    if (b_.value(x).dim == RowDim::tokens) x = take_rows(b_, x, out_rows_);
    const Ref logits = logits_of(x, spec_.n_vocab);
    b_.mark_output(logits, std::string(io::logits));
    return logits;
}

int32_t kv_group_of(const LayerSpec& layer) {
    return std::visit([](const auto& mixer) { return mixer.kv_group; }, layer.mixer);
}

Result<Program> record_forward(const ModelSpec& spec, WeightStore& weights, const KvTensors& kv,
                               const BatchShape& limits, const Placement& placement,
                               std::span<Backend* const> backends) {
    Builder b(limits);
    Forward f(b, spec, weights, kv);
    const Ref logits = f.record();
    if (!f.error().what.empty()) return f.error();
    if (!backends[static_cast<size_t>(placement.last)]->device().host_memory) {
        const Ref weighed = b.input(std::string(io::weighed), Type::i32, RowDim::outputs, 3);
        const Ref list = shortlist(b, logits, weighed, {shortlist_tokens});
        if (f.drawn())
            draw(b, list, weighed, b.input(std::string(io::draws), Type::i32, RowDim::outputs, draw_columns),
                 f.drawn(), {shortlist_tokens});
        b.mark_output(list, std::string(io::shortlist));
    }
    return compile(std::move(b), placement, backends);
}

}  // namespace nibble
