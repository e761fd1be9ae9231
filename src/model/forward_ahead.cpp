// The programs of what guesses further ahead: of a model's own layer for it, of an assistant and of a guest.
// They run over the model's cache and end in its output matrix, or in one of their own.
#include <algorithm>

#include "ggml/base/cat.h"
#include "src/model/forward.h"

namespace nibble {

void Forward::record_predictor() {
    const LayerSpec& layer = *spec_.predictor;
    const auto n_layers = static_cast<int32_t>(spec_.layers.size());
    const int64_t width = spec_.n_embd;
    b_.at(-1, "embed");
    row_inputs();
    cache_inputs(kv_group_of(layer), true);
    rows_.ropes = rope_tables(rows_.positions);
    const Ref hidden = b_.input(std::string(io::hidden), Type::f32, RowDim::tokens, width);
    b_.at(n_layers);
    layer_spec_ = &layer;
    const Ref own = weight("nextn.embed_tokens.weight", spec_.n_vocab, width, WeightUse::lookup, false);
    layer_spec_ = nullptr;
    b_.at(own ? n_layers : -1, "embed");
    Ref x =
        embed(b_, tokens_, own ? own : table("token_embd.weight", spec_.n_vocab, width), {spec_.embed_scale});
    b_.at(n_layers);
    layer_spec_ = &layer;
    const Ref token = norm(x, "nextn.enorm");
    const Ref both =
        splice_heads(b_, token, {1, 0, static_cast<int32_t>(width)}, norm(hidden, "nextn.hnorm"));
    label("nextn.eh_proj");
    x = matmul(b_, matrix("nextn.eh_proj.weight", width, 2 * width), both);
    cuts_ = true;
    x = through_layer(layer, x);
    layer_spec_ = &layer;
    x = norm(x, "nextn.shared_head_norm");
    b_.mark_output(x, std::string(io::hidden));
}

void Forward::record_assistant(const ModelSpec& main, const Tensor& embedding) {
    const int64_t width = main.n_embd;
    b_.at(-1, "embed");
    row_inputs();
    for (const LayerSpec& layer : spec_.layers) cache_inputs(kv_group_of(layer), false);
    const Ref query_positions = b_.input(std::string(io::query_positions), Type::i32, RowDim::tokens, 1);
    const Ref hidden = b_.input(std::string(io::hidden), Type::f32, RowDim::tokens, width);
    const Ref token = embed(b_, tokens_, b_.weight(embedding, "token_embd.weight"), {main.embed_scale});
    rows_.ropes = rope_tables(query_positions);
    b_.at(0);
    const Ref both = splice_heads(b_, token, {1, 0, static_cast<int32_t>(width)}, hidden);
    label("nextn.pre_projection");
    Ref x = matmul(b_, matrix("nextn.pre_projection.weight", spec_.n_embd, 2 * width), both);
    for (const LayerSpec& layer : spec_.layers) {
        b_.at(static_cast<int32_t>(&layer - spec_.layers.data()));
        x = through_layer(layer, x);
    }
    b_.at(static_cast<int32_t>(spec_.layers.size()));
    x = take_rows(b_, norm(x, spec_.output_norm), out_rows_);
    b_.mark_output(x, std::string(io::state));
    label("nextn.post_projection");
    b_.mark_output(matmul(b_, matrix("nextn.post_projection.weight", width, spec_.n_embd), x),
                   std::string(io::hidden));
}

void Forward::guest_inputs(const ModelSpec& main) {
    b_.at(-1, "embed");
    row_inputs();
    for (const LayerSpec& layer : spec_.layers) cache_inputs(kv_group_of(layer), true);
    first_cache_layer_ = first_guest(main);
}

void Forward::record_guest_reading(const ModelSpec& main) {
    guest_inputs(main);
    const auto n_sources = static_cast<int64_t>(main.sources.size());
    const Ref hidden = b_.input(std::string(io::hidden), Type::f32, RowDim::tokens, n_sources * main.n_embd);
    rows_.ropes = rope_tables(rows_.positions);
    b_.at(0);
    label("fc");
    const Ref read = matmul(b_, matrix("fc.weight", spec_.n_embd, n_sources * main.n_embd), hidden);
    const Ref h = norm(read, "enc.output_norm");
    for (const LayerSpec& layer : spec_.layers) {
        b_.at(static_cast<int32_t>(&layer - spec_.layers.data()));
        layer_spec_ = &layer;
        read_block(*this, std::get<AttentionSpec>(layer.mixer), h);
        layer_spec_ = nullptr;
    }
}

void Forward::record_guest_block(const ModelSpec& main, const Tensor& embedding) {
    guest_inputs(main);
    const Ref query_positions = b_.input(std::string(io::query_positions), Type::i32, RowDim::tokens, 1);
    Ref x = embed(b_, tokens_, b_.weight(embedding, "token_embd.weight"), {main.embed_scale});
    rows_.ropes = rope_tables(query_positions);
    for (const LayerSpec& layer : spec_.layers) {
        b_.at(static_cast<int32_t>(&layer - spec_.layers.data()));
        x = through_layer(layer, x);
    }
    b_.at(static_cast<int32_t>(spec_.layers.size()));
    b_.mark_output(take_rows(b_, norm(x, spec_.output_norm), out_rows_), std::string(io::hidden));
}

void Forward::record_predictor_head(int32_t n_tokens) {
    const auto n_layers = static_cast<int32_t>(spec_.layers.size());
    b_.at(n_layers);
    const Ref hidden = b_.input(std::string(io::hidden), Type::f32, RowDim::outputs, spec_.n_embd);
    Ref own;
    if (spec_.predictor) {
        layer_spec_ = &*spec_.predictor;
        own = weight("nextn.shared_head_head.weight", spec_.n_vocab, spec_.n_embd, WeightUse::matmul, false,
                     n_tokens == spec_.n_vocab ? 0 : n_tokens);
        label("nextn.shared_head_head");
        layer_spec_ = nullptr;
    }
    b_.mark_output(own ? matmul(b_, own, hidden) : logits_of(hidden, n_tokens), std::string(io::logits));
}

int32_t first_tokens(int32_t n_vocab) {
    constexpr int32_t few = 1 << 15, group = packed_expert_rows;
    if (n_vocab <= 2 * few) return n_vocab;
    return std::max(few, n_vocab / 4 / group * group);
}

namespace {

// A program of what record(forward) says, compiled.
template <class Record>
Result<Program> recorded(const ModelSpec& spec, WeightStore& weights, const KvTensors& kv,
                         const BatchShape& limits, const Placement& placement,
                         std::span<Backend* const> backends, const Record& record) {
    Builder b(limits);
    Forward f(b, spec, weights, kv);
    record(f);
    if (!f.error().what.empty()) return f.error();
    return compile(std::move(b), placement, backends);
}

// The programs around one that record(forward) records for the layers. The head takes a row of each sequence.
template <class Record>
Result<PredictorPrograms> record_programs(const ModelSpec& spec, WeightStore& weights, const KvTensors& kv,
                                          const BatchShape& limits, const Placement& placement,
                                          std::span<Backend* const> backends, const Record& record) {
    const auto made = [&](const auto& what) {
        return recorded(spec, weights, kv, {limits.tokens, limits.sequences, limits.sequences}, placement,
                        backends, what);
    };
    PredictorPrograms p;
    p.layer = NIBBLE_TRY(made(record));
    p.head = NIBBLE_TRY(made([&](Forward& f) { f.record_predictor_head(spec.n_vocab); }));
    p.short_head = NIBBLE_TRY(made([&](Forward& f) { f.record_predictor_head(first_tokens(spec.n_vocab)); }));
    return p;
}

}  // namespace

Result<PredictorPrograms> record_predictor(const ModelSpec& spec, WeightStore& weights, const KvTensors& kv,
                                           const BatchShape& limits, const Placement& placement,
                                           std::span<Backend* const> backends) {
    return record_programs(spec, weights, kv, limits, placement, backends,
                           [](Forward& f) { f.record_predictor(); });
}

Result<PredictorPrograms> record_guest(const ModelSpec& spec, WeightStore& weights, const ModelSpec& main,
                                       WeightStore& main_weights, const KvTensors& kv,
                                       const BatchShape& limits, const Placement& placement,
                                       const Placement& main_placement, std::span<Backend* const> backends) {
    const int64_t size = spec.block_guess->size, rows = limits.sequences * size,
                  wanted = limits.sequences * (size - 1);
    // It may bring copies of the main model's.
    Tensor embedding = NIBBLE_TRY(weights.get("token_embd.weight", WeightUse::lookup));
    const bool own_head = bool(NIBBLE_TRY(weights.get("output.weight", WeightUse::matmul)));
    if ((embedding || own_head) && spec.n_vocab != main.n_vocab)
        return Error{ErrorCode::invalid_argument, spec.arch,
                     cat("has ", spec.n_vocab, " tokens, the model ", main.n_vocab),
                     "it was made for another model"};
    if (!embedding) embedding = NIBBLE_TRY(main_weights.get("token_embd.weight", WeightUse::lookup));
    const auto head = [&](int32_t n_tokens) {
        return recorded(own_head ? spec : main, own_head ? weights : main_weights, kv,
                        {wanted, wanted, wanted}, own_head ? placement : main_placement, backends,
                        [&](Forward& f) { f.record_predictor_head(n_tokens); });
    };
    const auto of_guest = [&](const BatchShape& shape, const auto& what) {
        return recorded(spec, weights, kv, shape, placement, backends, what);
    };
    PredictorPrograms p;
    p.layer = NIBBLE_TRY(of_guest({limits.tokens, limits.sequences, limits.sequences},
                                  [&](Forward& f) { f.record_guest_reading(main); }));
    p.head = NIBBLE_TRY(head(main.n_vocab));
    p.short_head = NIBBLE_TRY(head(first_tokens(main.n_vocab)));
    p.block = NIBBLE_TRY(
        of_guest({rows, wanted, rows}, [&](Forward& f) { f.record_guest_block(main, embedding); }));
    return p;
}

Result<Placement> assistant_placement(const ModelSpec& spec, const Placement& main) {
    Placement p{{}, main.first, main.last};
    if (spec.block_guess) {  // where its keys and values are
        p.layers.assign(spec.layers.size(), main.last);
        return p;
    }
    for (const LayerSpec& l : spec.layers) {
        const int32_t device = main.device(std::get<AttentionSpec>(l.mixer).kv_layer);
        if (!p.layers.empty() && device != p.layers.back())
            return Error{ErrorCode::invalid_argument, "--gpu-layers",
                         "the draft model attends to the cache of layers on two devices",
                         "give 0, or enough for all layers"};
        p.layers.push_back(device);
        p.last = device;
    }
    return p;
}

Result<PredictorPrograms> record_assistant(const ModelSpec& spec, WeightStore& weights, const ModelSpec& main,
                                           const Tensor& embedding, const KvTensors& kv,
                                           const BatchShape& limits, const Placement& placement,
                                           std::span<Backend* const> backends) {
    const BatchShape rows{limits.sequences, limits.sequences, limits.sequences};  // one of each sequence
    return record_programs(spec, weights, kv, rows, placement, backends,
                           [&](Forward& f) { f.record_assistant(main, embedding); });
}

}  // namespace nibble
