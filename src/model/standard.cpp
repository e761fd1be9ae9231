// What the decoder-only families share: names, hyperparameters and the spec that follows from them.
// Key names are those of the GGUF convention; paths are those of transformers 4 and 5.
#include <algorithm>
#include <cmath>

#include "ggml/base/cat.h"
#include "src/model/architecture.h"
#include "src/model/rope.h"

namespace nibble {

std::span<const NamePair> standard_names() {
    static constexpr NamePair names[] = {
        {"model.embed_tokens", "token_embd"},
        {"model.norm", "output_norm"},
        {"lm_head", "output"},
        {"model.layers.{}.input_layernorm", "blk.{}.attn_norm"},
        {"model.layers.{}.self_attn.q_proj", "blk.{}.attn_q"},
        {"model.layers.{}.self_attn.k_proj", "blk.{}.attn_k"},
        {"model.layers.{}.self_attn.v_proj", "blk.{}.attn_v"},
        {"model.layers.{}.self_attn.o_proj", "blk.{}.attn_output"},
        {"model.layers.{}.post_attention_layernorm", "blk.{}.ffn_norm"},
        {"model.layers.{}.self_attn.q_norm", "blk.{}.attn_q_norm"},
        {"model.layers.{}.self_attn.k_norm", "blk.{}.attn_k_norm"},
        {"model.layers.{}.mlp.gate_proj", "blk.{}.ffn_gate"},
        {"model.layers.{}.mlp.up_proj", "blk.{}.ffn_up"},
        {"model.layers.{}.mlp.down_proj", "blk.{}.ffn_down"},
        // Experts of DeepSeek's kind
        {"model.layers.{}.mlp.gate", "blk.{}.ffn_gate_inp"},
        {"model.layers.{}.mlp.gate.e_score_correction_bias", "blk.{}.exp_probs_b.bias"},
        {"model.layers.{}.mlp.experts.{}.gate_proj", "blk.{}.ffn_gate_exps", Storage::expert},
        {"model.layers.{}.mlp.experts.{}.up_proj", "blk.{}.ffn_up_exps", Storage::expert},
        {"model.layers.{}.mlp.experts.{}.down_proj", "blk.{}.ffn_down_exps", Storage::expert},
        {"model.layers.{}.mlp.experts.gate_up_proj", "blk.{}.ffn_gate_exps", Storage::gate_up},
        {"model.layers.{}.mlp.experts.down_proj", "blk.{}.ffn_down_exps"},
        {"model.layers.{}.mlp.shared_experts.gate_proj", "blk.{}.ffn_gate_shexp"},
        {"model.layers.{}.mlp.shared_experts.up_proj", "blk.{}.ffn_up_shexp"},
        {"model.layers.{}.mlp.shared_experts.down_proj", "blk.{}.ffn_down_shexp"},
        // Of layers that guess tokens further ahead (Hyper::n_next_layers)
        {"model.layers.{}.eh_proj", "blk.{}.nextn.eh_proj"},
        {"model.layers.{}.enorm", "blk.{}.nextn.enorm"},
        {"model.layers.{}.hnorm", "blk.{}.nextn.hnorm"},
        {"model.layers.{}.embed_tokens", "blk.{}.nextn.embed_tokens"},
        {"model.layers.{}.shared_head.norm", "blk.{}.nextn.shared_head_norm"},
        {"model.layers.{}.shared_head.head", "blk.{}.nextn.shared_head_head"},
    };
    return names;
}

namespace {

// One number for all layers, or in GGUF one for each.
void number_or_list(Fields& f, std::string_view gguf, std::string_view hf, uint32_t& all,
                    std::vector<uint32_t>& each, bool required) {
    const bool listed = f.is_writing() ? !each.empty() : f.states(gguf, "") && !f.is_number(gguf);
    if (!listed) return required ? f.required(gguf, hf, all) : f.optional(gguf, hf, all);
    f.counts(gguf, "", each);
    for (const uint32_t n : each) all = std::max(all, n);
}

}  // namespace

void next_layer_fields(Fields& f, Hyper& h) {
    if (f.is_writing() && h.n_next_layers == 0) return;
    f.optional("nextn_predict_layers", "mtp_num_hidden_layers|num_nextn_predict_layers", h.n_next_layers);
}

void size_fields(Fields& f, Hyper& h) {
    const uint32_t counted = f.from_hf() ? 0 : h.n_next_layers;  // GGUF has them among the others
    uint32_t blocks = h.n_layers + counted;
    f.required("block_count", "num_hidden_layers|n_layer", blocks);
    h.n_layers = blocks - std::min(blocks, counted);
    f.required("context_length", "max_position_embeddings|n_positions", h.n_ctx);
    f.required("embedding_length", "hidden_size|n_embd", h.n_embd);
    number_or_list(f, "feed_forward_length", "intermediate_size|n_inner|block_ff_dim", h.n_ff, h.ff_lengths,
                   h.n_ff == 0);
    number_or_list(f, "attention.head_count", "num_attention_heads|n_head", h.n_heads, h.heads, true);
    number_or_list(f, "attention.head_count_kv", "num_key_value_heads", h.n_kv_heads, h.kv_heads, false);
    // Layers without attention have none.
    if (!f.is_writing() && std::ranges::find(h.kv_heads, 0u) != h.kv_heads.end())
        for (const uint32_t n : h.kv_heads) h.attends.push_back(n > 0);
    f.optional("attention.key_length", "head_dim", h.head_dim);
    f.optional("attention.value_length", "", h.v_head_dim);
    f.optional("vocab_size", "vocab_size", h.n_vocab);
    if (h.layer_norm)
        f.required("attention.layer_norm_epsilon", "layer_norm_eps|layer_norm_epsilon|norm_epsilon",
                   h.norm_eps);
    else
        f.required("attention.layer_norm_rms_epsilon", "rms_norm_eps|norm_eps|layer_norm_epsilon",
                   h.norm_eps);
}

namespace {

// Where config.json can state a parameter of the rotation. Gemma states those of the layers without a window
// apart; the others' are plain.
std::string rope_path(std::string_view key) {
    return cat("rope_scaling.", key, "|rope_parameters.", key, "|rope_parameters.full_attention.", key);
}

// Phi-3's scaling goes by several names, but it alone has lists of factors. The attention factor is what a
// GGUF file states: sqrt(1 + ln s / ln original), s how often the context holds the original one.
void longrope_fields(Fields& f, const Hyper& h, RopeScaling& s) {
    f.numbers("", rope_path("short_factor"), s.short_factors);
    f.numbers("", rope_path("long_factor"), s.long_factors);
    if (s.type == "su" || !s.long_factors.empty()) s.type = "longrope";
    if (s.type != "longrope" || s.attention_factor > 0 || s.original_context < 2) return;
    const double ratio = static_cast<double>(h.n_ctx) / s.original_context;
    s.attention_factor =
        ratio > 1 ? static_cast<float>(std::sqrt(1 + std::log(ratio) / std::log(s.original_context))) : 1.0f;
}

// DeepSeek's two factors of the logarithm: the quotient scales what rotates.
void yarn_fields(Fields& f, RopeScaling& s) {
    f.optional("", rope_path("mscale"), s.mscale);
    f.optional("", rope_path("mscale_all_dim"), s.mscale_all_dim);
    if (s.attention_factor == 0 && s.mscale > 0 && s.mscale_all_dim > 0)
        s.attention_factor = yarn_magnitude(s.factor, s.mscale) / yarn_magnitude(s.factor, s.mscale_all_dim);
    f.optional("", rope_path("truncate"), s.truncate);
}

// Of YaRN a GGUF file states what its own factor is multiplied by; config.json, and both of longrope, the
// whole.
void magnitude_fields(Fields& f, RopeScaling& s) {
    constexpr std::string_view key = "rope.scaling.attn_factor";
    if (f.is_writing() && s.attention_factor == 0) return;
    if (s.type != "yarn" || f.from_hf())
        return f.optional(key, rope_path("attention_factor"), s.attention_factor);
    const float own = yarn_magnitude(s.factor, 1);
    float beside = s.attention_factor / own;
    if (f.is_writing() && (s.mscale_all_dim != 0 || std::fabs(beside - 1) < 1e-6f)) return;
    f.optional(key, "", beside);
    s.attention_factor = beside * own;
}

void scaling_fields(Fields& f, const Hyper& h, RopeScaling& s) {
    f.optional("", cat(rope_path("rope_type"), "|rope_scaling.type"), s.type);
    if (s.type == "default") s.type = "none";
    // Scaling is stated only where there is some. Factors travel as tensors, and then nothing else may scale.
    if (f.is_writing() && (s.type == "none" || s.type == "llama3")) return;
    const bool writes_longrope = f.is_writing() && s.type == "longrope";
    if (!writes_longrope) {
        f.optional("rope.scaling.type", "", s.type);
        f.optional("rope.scaling.factor", rope_path("factor"), s.factor);
        // GGUF files of 2023: another name, and no type.
        const bool typed = f.states("rope.scaling.type", "");
        if (!f.from_hf() && !f.is_writing() && !typed) {
            f.optional("rope.scale_linear", "", s.factor);
            if (s.factor != 1 && s.factor != 0) s.type = "linear";
        }
    }
    f.optional("rope.scaling.original_context_length",
               cat(rope_path("original_max_position_embeddings"),
                   "|original_max_position_embeddings|max_position_embeddings"),
               s.original_context);
    f.optional("", rope_path("low_freq_factor"), s.low_freq_factor);
    f.optional("", rope_path("high_freq_factor"), s.high_freq_factor);
    magnitude_fields(f, s);
    if (s.type == "yarn") yarn_fields(f, s);
    if (f.from_hf()) longrope_fields(f, h, s);
    if (writes_longrope) return;
    f.optional("rope.scaling.yarn_beta_fast", rope_path("beta_fast"), s.beta_fast);
    f.optional("rope.scaling.yarn_beta_slow", rope_path("beta_slow"), s.beta_slow);
}

}  // namespace

void rope_fields(Fields& f, Hyper& h) {
    f.optional("rope.freq_base", cat("rope_theta|", rope_path("rope_theta"), "|rotary_emb_base"),
               h.rope_theta);
    f.optional("rope.dimension_count", "", h.rope_dim);
    f.optional("", cat("partial_rotary_factor|", rope_path("partial_rotary_factor"), "|rotary_pct"),
               h.rope_share);
    scaling_fields(f, h, h.rope_scaling);
}

void section_fields(Fields& f, Hyper& h) {
    if (h.rope_scaling.type == "mrope") h.rope_scaling.type = "none";
    if (f.is_writing() && h.rope_sections.empty()) h.rope_sections = {h.rope_dim / 2};
    if (f.is_writing()) h.rope_sections.resize(4);
    f.counts("rope.dimension_sections", "rope_parameters.mrope_section|rope_scaling.mrope_section",
             h.rope_sections);
}

void standard_fields(Fields& f, Hyper& h) {
    size_fields(f, h);
    rope_fields(f, h);
}

void sliding_fields(Fields& f, Hyper& h, uint32_t period, bool full_first) {
    constexpr std::string_view pattern = "attention.sliding_window_pattern";
    const auto usual = [&](uint32_t i) { return period == 0 || i % period != (full_first ? 0 : period - 1); };
    if (f.is_writing()) {
        if (h.window == 0) return;
        f.optional("attention.sliding_window", "", h.window);
        // A pattern is stated only where it is not the one that every reader takes.
        bool differs = false;
        for (uint32_t i = 0; i < h.sliding.size(); ++i) differs |= h.sliding[i] != usual(i);
        if (differs) f.flags(pattern, "", "", "", h.sliding);
        return;
    }
    bool used = true;
    uint32_t first = 0;
    f.optional("", "use_sliding_window", used);
    if (!used) return;
    f.optional("attention.sliding_window", "sliding_window", h.window);
    f.optional("", "max_window_layers", first);  // Qwen: those before it have none
    f.flags("", "layer_types", "sliding_attention", "full_attention", h.sliding);
    if (f.states(pattern, "") && !f.is_number(pattern)) f.flags(pattern, "", "", "", h.sliding);
    if (!h.sliding.empty() || h.n_layers > max_layers) return;
    if (f.states("", "sliding_window_pattern") || f.is_number(pattern))
        f.optional(pattern, "sliding_window_pattern", period);
    for (uint32_t i = 0; i < h.n_layers; ++i) h.sliding.push_back(i >= first && usual(i));
}

void rotation_fields(Fields& f, Hyper& h) {
    std::vector<float> bases;
    f.numbers("", "layer_rope_theta", bases);
    if (bases.empty()) return;
    h.rotated.clear();
    float base = 0;
    for (const float b : bases) {
        if (b > 0 && base > 0 && b != base)
            f.fail({ErrorCode::unsupported, "layer_rope_theta", "has several bases", ""});
        base = std::max(base, b);
        h.rotated.push_back(b > 0);
    }
    if (base > 0) h.rope_theta = base;
}

void stated_sliding_fields(Fields& f, Hyper& h, uint32_t period, bool full_first) {
    sliding_fields(f, h, period, full_first);
    if (f.is_writing() && h.window > 0) f.flags("attention.sliding_window_pattern", "", "", "", h.sliding);
}

namespace {

// The contents of a vector of factors, empty when the model has none, or no contents yet.
Result<std::vector<float>> factors(const TensorMap& tensors, const std::string& name) {
    std::vector<float> values;
    const auto it = tensors.find(name);
    if (it == tensors.end() || it->second->data.empty()) return values;
    const TensorInfo& t = *it->second;
    if (t.type != Type::f32 || t.foreign() || t.rows() != 1)
        return Error{ErrorCode::corrupt, t.name, "must be one row of f32", ""};
    values.resize(static_cast<size_t>(t.cols()));
    info(t.type).decode(t.data.data(), values.data(), values.size());
    return values;
}

// One table for all layers, or a second for sliding layers that have a base of their own (never scaled).
Result<std::vector<RopeSpec>> standard_ropes(Hyper h, RopeStyle style, const TensorMap& tensors) {
    const auto short_factors = NIBBLE_TRY(factors(tensors, "rope_factors_short.weight"));
    if (!short_factors.empty()) {
        h.rope_scaling.type = "longrope";
        h.rope_scaling.short_factors = short_factors;
        h.rope_scaling.long_factors = NIBBLE_TRY(factors(tensors, "rope_factors_long.weight"));
    }
    if (!h.rotated.empty() && std::ranges::find(h.rotated, true) == h.rotated.end())
        return std::vector<RopeSpec>{};
    const auto stored = NIBBLE_TRY(factors(tensors, "rope_freqs.weight"));
    const auto dim = static_cast<int32_t>(h.rope_dim);
    std::vector<RopeSpec> ropes{NIBBLE_TRY(make_rope(h, dim, style, stored))};
    if (h.rope_theta_local > 0) {
        Hyper local;
        local.rope_theta = h.rope_theta_local;
        const auto local_dim = static_cast<int32_t>(h.head_dim_local > 0 ? h.head_dim_local : h.rope_dim);
        ropes.push_back(NIBBLE_TRY(make_rope(local, local_dim, style, {})));
    }
    return ropes;
}

}  // namespace

Result<ModelSpec> standard_spec(const Hyper& h, RopeStyle style, const TensorMap& tensors) {
    ModelSpec s;
    s.n_vocab = static_cast<int32_t>(h.n_vocab);
    s.n_embd = static_cast<int32_t>(h.n_embd);
    s.n_ctx_train = static_cast<int32_t>(h.n_ctx);
    s.norm_eps = h.norm_eps;
    s.layer_norm = h.layer_norm;
    s.logit_softcap = h.logit_softcap;
    s.ropes = NIBBLE_TRY(standard_ropes(h, style, tensors));

    AttentionSpec a;
    a.n_heads = static_cast<int32_t>(h.n_heads);
    a.n_kv_heads = static_cast<int32_t>(h.n_kv_heads);
    a.head_dim = static_cast<int32_t>(h.head_dim);
    a.v_head_dim = static_cast<int32_t>(h.v_head_dim);
    a.scale = h.attn_scale > 0 ? h.attn_scale : 1 / std::sqrt(static_cast<float>(h.head_dim));
    a.softcap = h.attn_softcap;
    const DenseFfnSpec ffn{static_cast<int32_t>(h.n_ff), Activation::silu, true};

    // A window that no context exceeds is none.
    const bool windowed = h.window > 0 && h.window < h.n_ctx;
    const auto is_local = [&](uint32_t i) { return h.window > 0 && (h.sliding.empty() || h.sliding[i]); };
    const auto slides = [&](uint32_t i) { return windowed && is_local(i); };
    const auto group_of = [&](int32_t window) {
        for (size_t g = 0; g < s.kv_groups.size(); ++g)
            if (s.kv_groups[g].window == window) return static_cast<int32_t>(g);
        s.kv_groups.push_back({window});
        return static_cast<int32_t>(s.kv_groups.size()) - 1;
    };
    for (uint32_t i = 0; i < h.n_layers; ++i) {
        AttentionSpec layer = a;
        if (is_local(i) && h.head_dim_local > 0) {
            layer.head_dim = layer.v_head_dim = static_cast<int32_t>(h.head_dim_local);
            if (h.attn_scale == 0) layer.scale = 1 / std::sqrt(static_cast<float>(h.head_dim_local));
        }
        if (!h.heads.empty()) layer.n_heads = static_cast<int32_t>(h.heads[i]);
        if (!h.kv_heads.empty()) layer.n_kv_heads = static_cast<int32_t>(h.kv_heads[i]);
        layer.window = slides(i) ? static_cast<int32_t>(h.window) : 0;
        layer.kv_group = group_of(layer.window);
        layer.rope = !h.rotated.empty() && !h.rotated[i] ? -1 : is_local(i) && s.ropes.size() > 1 ? 1 : 0;
        s.layers.push_back({layer, ffn});
        if (!h.ff_lengths.empty())
            std::get<DenseFfnSpec>(s.layers.back().ffn).n_ff = static_cast<int32_t>(h.ff_lengths[i]);
        s.layers.back().parallel = h.parallel;
    }
    return s;
}

Result<float> one_number(const TensorMap& tensors, const std::string& name, float otherwise) {
    const auto it = tensors.find(name);
    if (it == tensors.end() || it->second->data.empty()) return otherwise;
    const TensorInfo& t = *it->second;
    if (t.foreign() || info(t.type).block_len != 1 || !info(t.type).decode || t.elements() != 1)
        return Error{ErrorCode::corrupt, t.name, "is not one number", ""};
    float number = otherwise;
    info(t.type).decode(t.data.data(), &number, 1);
    return number;
}

Result<PositionScaleParams> query_growth(const Hyper& h) {
    const uint32_t period = h.rope_scaling.original_context;
    if (h.query_growth == 0) return PositionScaleParams{};
    if (period == 0 || period > (1u << 30))
        return Error{ErrorCode::corrupt, "llama_4_scaling_beta", "needs the original context length", ""};
    return PositionScaleParams{h.query_growth, static_cast<int32_t>(period)};
}

void set_qk_norm(ModelSpec& s, QkNorm qk_norm) {
    for (LayerSpec& l : s.layers)
        if (auto* a = std::get_if<AttentionSpec>(&l.mixer)) a->qk_norm = qk_norm;
}

void state_fields(Fields& f, Hyper& h, const StateNames& names) {
    f.required("ssm.conv_kernel", names.taps, h.n_taps);
    f.required("ssm.group_count", names.k_heads, h.delta_k_heads);
    f.required("ssm.time_step_rank", names.v_heads, h.delta_v_heads);
    f.required("ssm.state_size", names.k_dim, h.delta_k_dim);
    uint32_t inner = h.delta_v_heads * h.delta_v_dim;
    f.required("ssm.inner_size", "", inner);
    f.required("", names.v_dim, h.delta_v_dim);
    if (!f.from_hf() && !f.is_writing() && h.delta_v_heads > 0) h.delta_v_dim = inner / h.delta_v_heads;
}

void attending_fields(Fields& f, Hyper& h, uint32_t period) {
    constexpr std::string_view key = "full_attention_interval";
    const auto usual = [&] {
        std::vector<bool> attends;
        for (uint32_t i = 0; i < std::min(h.n_layers, max_layers); ++i)
            attends.push_back(period > 0 && (i + 1) % period == 0);
        return attends;
    };
    if (f.is_writing()) {
        const auto first = std::ranges::find(h.attends, true);
        period =
            first == h.attends.end() ? h.n_layers + 1 : static_cast<uint32_t>(first - h.attends.begin()) + 1;
        if (h.attends != usual())
            f.fail({ErrorCode::unsupported, "layer_types", "is no regular pattern, which GGUF cannot state",
                    ""});
    }
    f.optional(key, key, period);
    if (f.is_writing()) return;
    h.attends = usual();
    f.flags("", "layer_types", "full_attention", "linear_attention", h.attends);
}

void list_kv_heads(Hyper& h) {
    if (!h.kv_heads.empty()) return;
    const uint32_t n_kv_heads = h.n_kv_heads > 0 ? h.n_kv_heads : h.n_heads;
    for (const bool attends : h.attends) h.kv_heads.push_back(attends ? n_kv_heads : 0);
}

Result<void> set_states(ModelSpec& s, const Hyper& h,
                        std::variant<DeltaNetSpec, Mamba2Spec, ShortConvSpec> mixer) {
    const auto* d = std::get_if<DeltaNetSpec>(&mixer);
    const auto* m = std::get_if<Mamba2Spec>(&mixer);
    const bool whole = std::visit([](const auto& m) { return m.n_taps > 1; }, mixer) &&
                       (!d || (d->n_k_heads > 0 && d->n_v_heads > 0 && d->k_dim > 0 && d->v_dim > 0)) &&
                       (!m || (m->n_groups > 0 && m->n_heads > 0 && m->k_dim > 0 && m->v_dim > 0));
    if (!whole)
        return Error{ErrorCode::corrupt, "state", "of no size: heads, their columns or taps are missing", ""};
    const auto group = static_cast<int32_t>(s.kv_groups.size());
    for (size_t i = 0; i < s.layers.size(); ++i) {
        if (h.attends.empty() || h.attends[i]) continue;
        if (static_cast<size_t>(group) == s.kv_groups.size()) s.kv_groups.push_back({0, true});
        std::visit([&](auto& m) { m.kv_group = group, s.layers[i].mixer = m; }, mixer);
    }
    return {};
}

void set_dense_ffn(ModelSpec& s, Activation act, bool gated) {
    for (LayerSpec& l : s.layers) {
        auto& ffn = std::get<DenseFfnSpec>(l.ffn);
        ffn.act = act;
        ffn.gated = gated;
    }
}

void expert_fields(Fields& f, Hyper& h) {
    if (f.is_writing() && h.n_experts == 0) return;
    f.optional("expert_count", "num_local_experts|num_experts|n_routed_experts|moe_num_experts", h.n_experts);
    f.optional("expert_used_count", "num_experts_per_tok|moe_k", h.n_experts_used);
}

void gating_fields(Fields& f, Hyper& h) {
    uint32_t function = h.gating == Gating::sigmoid ? 2 : 1;
    f.optional("expert_gating_func", "", function);
    if (function != 1 && function != 2)
        f.fail({ErrorCode::unsupported, "expert_gating_func", cat("asks for ", function),
                "implemented are 1 (softmax) and 2 (sigmoid)"});
    h.gating = function == 2 ? Gating::sigmoid : Gating::softmax;
}

void dense_fields(Fields& f, Hyper& h, std::string_view hf) {
    std::vector<bool> dense;
    f.flags("", "mlp_layer_types", "dense", "sparse", dense);
    if (!dense.empty())
        h.n_dense_layers = static_cast<uint32_t>(std::ranges::find(dense, false) - dense.begin());
    f.optional("leading_dense_block_count", hf, h.n_dense_layers);
}

void set_experts(ModelSpec& s, const Hyper& h, const TensorMap& tensors, bool beside) {
    if (h.n_experts == 0) return;
    MoeFfnSpec moe;
    moe.n_experts = static_cast<int32_t>(h.n_experts);
    moe.n_used = static_cast<int32_t>(h.n_experts_used);
    moe.n_ff = static_cast<int32_t>(h.n_ff_expert > 0 ? h.n_ff_expert : h.n_ff);
    moe.normalize = h.expert_norm;
    moe.n_ff_shared = static_cast<int32_t>(
        h.n_ff_shared > 0 ? h.n_ff_shared : h.n_experts_shared * static_cast<uint32_t>(moe.n_ff));
    moe.gating = h.gating;
    moe.n_groups = static_cast<int32_t>(h.n_expert_groups);
    moe.n_groups_used = static_cast<int32_t>(h.n_expert_groups_used);
    moe.scale = h.expert_scale;
    moe.latent_dim = static_cast<int32_t>(h.expert_latent_dim);
    for (size_t i = 0; i < s.layers.size(); ++i) {
        if (!tensors.contains(cat("blk.", i, ".ffn_gate_inp.weight"))) continue;
        auto& ffn = s.layers[i].ffn;
        if (const auto* dense = std::get_if<DenseFfnSpec>(&ffn); dense && beside) {
            moe.act = dense->act;
            ffn = TwinFfnSpec{*dense, moe};
        } else {
            ffn = moe;
        }
    }
}

}  // namespace nibble
