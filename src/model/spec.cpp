// What a ModelSpec says about its cache, and the choices that wait for the length of the context.
// Plain arithmetic; the tensors are made by the engine.
#include "src/model/spec.h"

#include <algorithm>

#include "ggml/base/cat.h"

namespace nibble {

Result<void> use_context(ModelSpec& spec, int32_t ctx) {
    if (spec.n_positions > 0 && ctx > spec.n_positions)
        return Error{ErrorCode::invalid_argument, "context",
                     cat(ctx, " tokens are more than the ", spec.n_positions, " positions this model knows"),
                     cat("give at most --ctx ", spec.n_positions)};
    for (RopeSpec& r : spec.ropes)
        if (!r.long_inv_freq.empty() && ctx > r.original_context) r.inv_freq = r.long_inv_freq;
    return {};
}

namespace {

KvLayer kv_layer(const AttentionSpec& a) {
    if (a.kv_layer >= 0) return {0, 0, 0, a.kv_group};
    return {a.n_kv_heads, a.head_dim, a.v_head_dim, a.kv_group};
}
KvLayer kv_layer(const LatentAttentionSpec& a) { return {1, a.cached_dim(), 0, a.kv_group, a.rope_dim}; }
// The convolution's inputs, and a matrix for each value head.
KvLayer kv_layer(const DeltaNetSpec& d) {
    return {1, d.conv_cols(), d.v_dim, d.kv_group, 0, d.n_taps - 1, d.n_v_heads * d.k_dim};
}
KvLayer kv_layer(const Mamba2Spec& m) {
    return {1, m.conv_cols(), m.v_dim, m.kv_group, 0, m.n_taps - 1, m.n_heads * m.k_dim};
}

}  // namespace

std::optional<size_t> shared_kv_layer(const LayerSpec& layer) {
    const auto* const a = std::get_if<AttentionSpec>(&layer.mixer);
    return a && a->kv_layer >= 0 ? std::optional(static_cast<size_t>(a->kv_layer)) : std::nullopt;
}

namespace {

Error unfit(const ModelSpec& assistant, std::string what) {
    return {ErrorCode::invalid_argument, assistant.arch, std::move(what), "it was made for another model"};
}

// Its layers share pages with those of the model that have their window, or have pages of their own.
Result<void> become_guest(ModelSpec& guest, ModelSpec& main) {
    const BlockGuessSpec& block = *guest.block_guess;
    const size_t n_layers = main.layers.size();
    for (const uint32_t layer : block.sources) {
        if (layer >= n_layers)
            return unfit(guest, cat("reads what a layer ", layer, " says, this model has ", n_layers));
        if (std::ranges::count(block.sources, layer) > 1)
            return unfit(guest, cat("reads a layer twice, ", layer));
    }
    if (block.mask >= main.n_vocab)
        return unfit(guest,
                     cat("has token ", block.mask, " for a mask, the model ", main.n_vocab, " tokens"));
    for (LayerSpec& l : guest.layers) {
        auto& a = std::get<AttentionSpec>(l.mixer);
        size_t g = 0;
        while (g < main.kv_groups.size() &&
               (main.kv_groups[g].states || main.kv_groups[g].window != a.window))
            ++g;
        if (g == main.kv_groups.size()) main.kv_groups.push_back({a.window});
        a.kv_group = static_cast<int32_t>(g);
    }
    main.guests = guest.layers;
    main.sources = block.sources;
    guest.kv_groups = main.kv_groups;
    return {};
}

}  // namespace

Result<void> attach(ModelSpec& assistant, ModelSpec& main) {
    const auto unfit = [&](std::string what) { return nibble::unfit(assistant, std::move(what)); };
    if (assistant.n_backbone == 0)
        return Error{ErrorCode::invalid_argument, assistant.arch, "is a model by itself",
                     "give one that guesses from what another has computed"};
    if (assistant.n_backbone != main.n_embd)
        return unfit(
            cat("guesses for a model of width ", assistant.n_backbone, ", this one has ", main.n_embd));
    if (assistant.block_guess) return become_guest(assistant, main);
    if (assistant.n_vocab != main.n_vocab)
        return unfit(cat("has ", assistant.n_vocab, " tokens, the model ", main.n_vocab));
    for (size_t i = 0; i < assistant.layers.size(); ++i) {
        auto* const a = std::get_if<AttentionSpec>(&assistant.layers[i].mixer);
        if (!a) return unfit(cat("layer ", i, " does not attend"));
        // Layers of a kind rotate alike: sliding ones have a base of their own.
        for (size_t m = 0; m < main.layers.size(); ++m) {
            const auto* const other = std::get_if<AttentionSpec>(&main.layers[m].mixer);
            if (!other || other->kv_layer >= 0 || other->rope != a->rope) continue;
            a->kv_layer = static_cast<int32_t>(m);
        }
        if (a->kv_layer < 0) return unfit(cat("layer ", i, " has no keys to attend to"));
        const auto& other = std::get<AttentionSpec>(main.layers[static_cast<size_t>(a->kv_layer)].mixer);
        if (other.n_kv_heads != a->n_kv_heads || other.head_dim != a->head_dim ||
            other.v_head_dim != a->v_head_dim)
            return unfit(
                cat("layer ", i, " cannot attend to the keys of layer ", a->kv_layer, ": other heads"));
        a->kv_group = other.kv_group;
        a->window = other.window;
    }
    assistant.kv_groups = main.kv_groups;
    return {};
}

std::vector<KvLayer> kv_layers(const ModelSpec& spec) {
    std::vector<KvLayer> layers;
    const auto add = [&](const LayerSpec& l) {
        if (const auto* conv = std::get_if<ShortConvSpec>(&l.mixer))
            layers.push_back({1, spec.n_embd, 0, conv->kv_group, 0, conv->n_taps - 1, 0});
        else if (const auto* delta = std::get_if<DeltaNetSpec>(&l.mixer))
            layers.push_back(kv_layer(*delta));
        else if (const auto* mamba = std::get_if<Mamba2Spec>(&l.mixer))
            layers.push_back(kv_layer(*mamba));
        else if (std::holds_alternative<NoBlock>(l.mixer))
            layers.push_back({0, 0, 0, 0});
        else if (const auto* latent = std::get_if<LatentAttentionSpec>(&l.mixer))
            layers.push_back(kv_layer(*latent));
        else
            layers.push_back(kv_layer(std::get<AttentionSpec>(l.mixer)));
    };
    for (const LayerSpec& l : spec.layers) add(l);
    if (spec.predictor) add(*spec.predictor);
    for (const LayerSpec& l : spec.guests) add(l);
    return layers;
}

bool has_states(const ModelSpec& spec) {
    return std::ranges::any_of(spec.kv_groups, [](const KvGroupSpec& g) { return g.states; });
}

size_t state_bytes(const ModelSpec& spec) {
    size_t bytes = 0;
    for (const KvLayer& l : kv_layers(spec))
        bytes += sizeof(float) * (static_cast<size_t>(l.k_rows) * static_cast<size_t>(l.k_dim) +
                                  static_cast<size_t>(l.v_rows) * static_cast<size_t>(l.v_dim));
    return bytes;
}

namespace {

// Of one token in one layer.
std::optional<size_t> kv_bytes(const KvLayer& l, Type k_type, Type v_type) {
    if (l.is_state() || l.n_kv_heads == 0) return size_t{0};
    const auto k = row_bytes(k_type, l.k_dim), v = row_bytes(v_type, l.v_dim);
    if (!k || !v || !row_bytes(k_type, l.v_first)) return {};
    return static_cast<size_t>(l.n_kv_heads) * (*k + *v);
}

}  // namespace

std::optional<size_t> kv_bytes_per_token(const ModelSpec& spec, Type k_type, Type v_type) {
    size_t bytes = 0;
    for (const KvLayer& l : kv_layers(spec)) {
        const auto one = kv_bytes(l, k_type, v_type);
        if (!one) return {};
        bytes += *one;
    }
    return bytes;
}

std::optional<size_t> kv_bytes_read_per_token(const ModelSpec& spec, Type k_type, Type v_type) {
    const auto layers = kv_layers(spec);
    size_t bytes = 0;
    for (size_t i = 0; i < spec.layers.size(); ++i) {
        const size_t of = shared_kv_layer(spec.layers[i]).value_or(i);
        const auto one = kv_bytes(layers[of], k_type, v_type);
        if (!one) return {};
        bytes += *one;
    }
    return bytes;
}

}  // namespace nibble
