// Finding the architecture of a file, reading its hyperparameters and naming its tensors.
// Whatever is not understood is refused with its name.
#include "src/model/architecture.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "ggml/base/cat.h"

namespace nibble {
namespace {

// More than any real model, and small enough that a damaged file cannot make us allocate by it.
constexpr uint32_t max_layers = 1024, max_width = 1u << 20, max_vocab = 1u << 24;

std::string known_architectures(bool hf) {
    std::string s = "known are";
    for (const Architecture* a : all_architectures())
        for (const std::string_view n : hf ? a->hf : std::vector{a->gguf})
            s += cat(s.ends_with("are") ? " " : ", ", n);
    return s;
}

Result<const Architecture*> find_architecture(const TensorFile& file) {
    const bool hf = file.kind() == TensorFile::Kind::hf;
    std::string name;
    if (hf) {
        const auto it = file.config().find("model_type");
        if (it != file.config().end() && it->is_string()) name = it->get<std::string>();
    } else {
        name = NIBBLE_TRY(file.metadata().require_str("general.architecture"));
    }
    for (const Architecture* a : all_architectures())
        if (hf ? std::ranges::find(a->hf, name) != a->hf.end() : a->gguf == name) return a;
    return Error{ErrorCode::unsupported, file.path().string(),
                 cat("architecture '", name, "' is not implemented"), known_architectures(hf)};
}

Result<TensorMap> name_tensors(const TensorFile& file, const Architecture& arch) {
    TensorMap map;
    for (const TensorInfo& t : file.tensors()) {
        std::string name = t.name;
        if (file.kind() == TensorFile::Kind::hf) {
            if (name.ends_with("rotary_emb.inv_freq"))
                continue;  // old checkpoints store what config.json says
            auto canonical = canonical_name(name, arch.names);
            if (!canonical)
                return Error{ErrorCode::unsupported, file.path().string(),
                             cat("tensor '", name, "' has no place in architecture '", arch.gguf, "'"),
                             "the model may be a variant that is not implemented"};
            name = std::move(*canonical);
        }
        map.emplace(std::move(name), &t);
    }
    return map;
}

Result<void> check_ranges(const Hyper& h, const std::string& where) {
    const auto bad = [&](std::string_view field, uint32_t value) {
        return Error{ErrorCode::corrupt, where, cat("field '", field, "' has the impossible value ", value),
                     ""};
    };
    if (h.n_layers == 0 || h.n_layers > max_layers) return bad("number of layers", h.n_layers);
    if (h.n_embd == 0 || h.n_embd > max_width) return bad("embedding length", h.n_embd);
    if (h.n_heads == 0 || h.n_heads > h.n_embd) return bad("number of attention heads", h.n_heads);
    if (h.n_kv_heads == 0 || h.n_heads % h.n_kv_heads) return bad("number of kv heads", h.n_kv_heads);
    if (h.head_dim == 0 || h.head_dim > max_width) return bad("head dimension", h.head_dim);
    if (h.v_head_dim == 0 || h.v_head_dim > max_width) return bad("value head dimension", h.v_head_dim);
    if (h.n_ff == 0 || h.n_ff > max_width * 8) return bad("feed-forward length", h.n_ff);
    if (h.n_vocab == 0 || h.n_vocab > max_vocab) return bad("vocabulary size", h.n_vocab);
    if (h.rope_dim > h.head_dim) return bad("rope dimension", h.rope_dim);
    if (h.n_ctx == 0 || h.n_ctx > (1u << 30)) return bad("context length", h.n_ctx);
    return {};
}

// Fields that files may leave out, and the vocabulary, which the embedding knows best.
void fill_defaults(Hyper& h, const TensorMap& tensors) {
    if (!h.n_kv_heads) h.n_kv_heads = h.n_heads;
    if (!h.head_dim && h.n_heads) h.head_dim = h.n_embd / h.n_heads;
    if (!h.v_head_dim) h.v_head_dim = h.head_dim;
    if (!h.rope_dim) h.rope_dim = h.head_dim;
    const auto embedding = tensors.find("token_embd.weight");
    if (embedding != tensors.end())
        h.n_vocab = static_cast<uint32_t>(std::min<int64_t>(embedding->second->rows(), max_vocab + 1));
}

}  // namespace

std::optional<std::string> canonical_name(std::string_view hf, std::span<const NamePair> names) {
    std::string_view stem = hf, suffix;
    for (const std::string_view s : {".weight", ".bias"})
        if (hf.ends_with(s)) stem = hf.substr(0, hf.size() - s.size()), suffix = s;
    for (const NamePair& p : names) {
        const size_t hole = p.hf.find("{}");
        if (hole == std::string_view::npos) {
            if (stem == p.hf) return cat(p.canonical, suffix);
            continue;
        }
        const std::string_view before = p.hf.substr(0, hole), after = p.hf.substr(hole + 2);
        if (stem.size() <= before.size() + after.size() || !stem.starts_with(before) ||
            !stem.ends_with(after))
            continue;
        const std::string_view number =
            stem.substr(before.size(), stem.size() - before.size() - after.size());
        if (number.find_first_not_of("0123456789") != std::string_view::npos) continue;
        const size_t at = p.canonical.find("{}");
        return cat(p.canonical.substr(0, at), number, p.canonical.substr(at + 2), suffix);
    }
    return {};
}

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
        {"model.layers.{}.mlp.gate_proj", "blk.{}.ffn_gate"},
        {"model.layers.{}.mlp.up_proj", "blk.{}.ffn_up"},
        {"model.layers.{}.mlp.down_proj", "blk.{}.ffn_down"},
    };
    return names;
}

void standard_fields(Fields& f, Hyper& h) {
    f.required("block_count", "num_hidden_layers", h.n_layers);
    f.required("context_length", "max_position_embeddings", h.n_ctx);
    f.required("embedding_length", "hidden_size", h.n_embd);
    f.required("feed_forward_length", "intermediate_size", h.n_ff);
    f.required("attention.head_count", "num_attention_heads", h.n_heads);
    f.optional("attention.head_count_kv", "num_key_value_heads", h.n_kv_heads);
    f.optional("attention.key_length", "head_dim", h.head_dim);
    f.optional("attention.value_length", "", h.v_head_dim);
    f.optional("vocab_size", "vocab_size", h.n_vocab);
    f.required("attention.layer_norm_rms_epsilon", "rms_norm_eps", h.norm_eps);
    f.optional("rope.freq_base", "rope_theta|rope_parameters.rope_theta", h.rope_theta);
    f.optional("rope.dimension_count", "", h.rope_dim);

    RopeScaling& s = h.rope_scaling;
    f.optional("", "rope_scaling.rope_type|rope_scaling.type|rope_parameters.rope_type", s.type);
    if (s.type == "default") s.type = "none";
    // Scaling is stated only where there is some; Llama 3's travels as a tensor of factors.
    if (f.is_writing() && (s.type == "none" || s.type == "llama3")) return;
    f.optional("rope.scaling.type", "", s.type);
    f.optional("rope.scaling.factor", "rope_scaling.factor|rope_parameters.factor", s.factor);
    f.optional(
        "rope.scaling.original_context_length",
        "rope_scaling.original_max_position_embeddings|rope_parameters.original_max_position_embeddings|"
        "original_max_position_embeddings|max_position_embeddings",
        s.original_context);
    f.optional("", "rope_scaling.low_freq_factor|rope_parameters.low_freq_factor", s.low_freq_factor);
    f.optional("", "rope_scaling.high_freq_factor|rope_parameters.high_freq_factor", s.high_freq_factor);
    f.optional("rope.scaling.yarn_beta_fast", "rope_scaling.beta_fast|rope_parameters.beta_fast",
               s.beta_fast);
    f.optional("rope.scaling.yarn_beta_slow", "rope_scaling.beta_slow|rope_parameters.beta_slow",
               s.beta_slow);
    f.optional("rope.scaling.attn_factor", "rope_scaling.attention_factor|rope_parameters.attention_factor",
               s.attention_factor);
}

Result<std::unique_ptr<OpenedModel>> open_model(TensorFile file) {
    auto opened = std::unique_ptr<OpenedModel>(new OpenedModel{std::move(file)});
    OpenedModel& m = *opened;
    m.arch = NIBBLE_TRY(find_architecture(m.file));
    if (m.file.tensors().empty())
        return Error{ErrorCode::corrupt, m.file.path().string(), "holds a vocabulary but no tensors",
                     "use it with `nibble tokenize`, or give a file with weights"};
    m.tensors = NIBBLE_TRY(name_tensors(m.file, *m.arch));
    Fields f = Fields::reading(m.file, std::string(m.arch->gguf));
    m.arch->fields(f, m.hyper);
    NIBBLE_TRY(f.result());
    fill_defaults(m.hyper, m.tensors);
    NIBBLE_TRY(check_ranges(m.hyper, m.file.path().string()));
    m.spec = NIBBLE_TRY(m.arch->build(m.hyper, f.from_hf(), m.tensors));
    m.spec.arch = m.arch->gguf;
    return opened;
}

}  // namespace nibble
