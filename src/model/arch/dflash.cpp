// dflash: models that guess a block of tokens at once for another model, of which they read what some layers
// say (DFlash for Qwen 3 and others, Muse Glimmer's assistant). Embedding and output are the other model's.
#include <nlohmann/json.hpp>

#include "src/model/architecture.h"

namespace nibble {
namespace {

constexpr NamePair names[] = {
    {"fc", "fc"},
    {"hidden_norm", "enc.output_norm"},
    // Muse Glimmer's
    {"encoder.fc", "fc"},
    {"encoder.output_norm_enc", "enc.output_norm"},
};

// GGUF counts the layers whose input is read, config.json those whose output is.
void source_fields(Fields& f, Hyper& h) {
    std::vector<uint32_t> stated = h.sources;
    const uint32_t shift = f.from_hf() ? 0 : 1;
    for (uint32_t& layer : stated) layer += shift;
    f.counts("target_layers", "dflash_config.target_layer_ids|target_layer_ids", stated);
    if (f.is_writing()) return;
    for (const uint32_t layer : stated) {
        if (layer < shift) f.fail({ErrorCode::unsupported, "target_layers", "asks for the embedding", ""});
        h.sources.push_back(layer - shift);
    }
    if (stated.empty()) f.fail({ErrorCode::corrupt, "target_layers", "are missing", ""});
}

void fields(Fields& f, Hyper& h) {
    if (f.from_hf()) h.rope_theta = 500000;
    standard_fields(f, h);
    stated_sliding_fields(f, h, 0);
    f.required("block_size", "block_size|dflash_config.block_size", h.block_size);
    f.required("tokenizer.ggml.mask_token_id", "dflash_config.mask_token_id|mask_token_id", h.mask_token);
    source_fields(f, h);
    if (!f.is_writing() && h.n_vocab == 0) h.n_vocab = h.mask_token + 1;  // it has no tokens of its own
    f.expect("hidden_act", {"silu"});
    f.expect("quantization_config", {});
}

Result<ModelSpec> build(const Hyper& h, bool, const TensorMap& tensors) {
    ModelSpec s = NIBBLE_TRY(standard_spec(h, RopeStyle::half, tensors));
    set_qk_norm(s, QkNorm::head);
    s.n_backbone = s.n_embd;
    s.block_guess =
        BlockGuessSpec{static_cast<int32_t>(h.block_size), static_cast<int32_t>(h.mask_token), h.sources};
    return s;
}

// One for Qwen 3 calls itself that.
bool guesses(const nlohmann::json& config) {
    return config.contains("dflash_config") || config.contains("target_layer_ids");
}

}  // namespace

extern const Architecture dflash_arch;
const Architecture dflash_arch{
    "dflash", {"qwen3", "muse_glimmer_assistant"}, fields, build, standard_names(), false, names, false,
    guesses};

}  // namespace nibble
