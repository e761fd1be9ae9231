// The table of shapes, from the config.json of the models.
// Sizes only: how they are computed is the business of the architecture a row names.
#include "src/eval/shape.h"

#include "ggml/base/cat.h"

namespace nibble {
namespace {

// With linear attention in three layers of four, as Qwen 3.5 has it.
constexpr ModelShape linear(ModelShape s, int32_t value_heads, bool gates_together = false) {
    s.attends = "...a";
    s.n_taps = 4;
    s.delta_k_heads = 16;
    s.delta_v_heads = value_heads;
    s.delta_dim = 128;
    s.rope_share = 0.25f;
    s.ffn_norm = "post_attention_norm";
    s.gates_together = gates_together;
    s.predicts = !gates_together;
    return s;
}

// With an expert as wide as the others that every token passes.
constexpr ModelShape sharing(ModelShape s) {
    s.n_ff_shared = s.n_ff_expert;
    return s;
}

// With biases, sinks and experts in MXFP4, as gpt-oss has them.
constexpr ModelShape biased(ModelShape s) {
    s.window = 128;
    s.full_every = 2;
    s.ffn_norm = "post_attention_norm";
    s.all_biased = true;
    return s;
}

// With latent attention, as DeepSeek and GLM 4.7 Flash have it.
constexpr ModelShape latent(ModelShape s, int32_t q_latent, int32_t kv_latent, int32_t rope_dim,
                            int32_t v_head_dim) {
    s.q_latent = q_latent;
    s.kv_latent = kv_latent;
    s.rope_dim = rope_dim;
    s.v_head_dim = v_head_dim;
    return s;
}

// With short convolutions, as LFM2 has them.
constexpr ModelShape convolving(ModelShape s, std::string_view attends) {
    s.attends = attends;
    s.n_taps = 3;
    s.output_norm = "token_embd_norm";
    return s;
}

// The same with layers that slide, as LFM3 has them.
constexpr ModelShape sliding_convolving(ModelShape s, std::string_view attends) {
    s = convolving(s, attends);
    s.n_taps = 7;
    s.window = 256;
    s.rope_share = 0.5f;
    return s;
}

// With state spaces and experts without gates, a layer each, as Nemotron 3 has them.
constexpr ModelShape of_one_block(ModelShape s, std::string_view layers, int32_t n_ff_shared) {
    s.attends = layers;
    s.n_taps = 4;
    s.delta_k_heads = 8;
    s.delta_v_heads = s.delta_dim = 64;
    s.state_dim = 128;
    s.n_ff_shared = n_ff_shared;
    return s;
}

// With gates and a window in most layers, as Muse Glimmer has them.
constexpr ModelShape gated(ModelShape s, int32_t full_every, int32_t window) {
    s.full_every = full_every;
    s.window = window;
    s.gated_columns = true;
    return s;
}

// With a window in most layers and an embedding per layer, as the small ones of Gemma 4 have them.
constexpr ModelShape sliding(ModelShape s, int32_t full_every, int32_t n_sharing, int32_t n_ff_sharing) {
    s.window = 512;
    s.full_every = full_every;
    s.full_head_dim = 512;
    s.rope_share = 0.25f;
    s.n_sharing = n_sharing;
    s.n_ff_sharing = n_ff_sharing;
    s.n_per_layer = 256;
    return s;
}

}  // namespace

std::span<const ModelShape> all_shapes() {
    // name, arch, layers, embd, ff, heads, kv heads, head_dim, vocab, ctx, rope_theta, tied, bias, qk norm,
    // experts, used, ff of an expert
    static constexpr ModelShape shapes[] = {
        {"llama-3.2-1b", "llama", 16, 2048, 8192, 32, 8, 64, 128256, 131072, 500000, true, false, false},
        {"llama-3.2-3b", "llama", 28, 3072, 8192, 24, 8, 128, 128256, 131072, 500000, true, false, false},
        {"llama-3.1-8b", "llama", 32, 4096, 14336, 32, 8, 128, 128256, 131072, 500000, false, false, false},
        {"llama-2-7b", "llama", 32, 4096, 11008, 32, 32, 128, 32000, 4096, 10000, false, false, false},
        {"smollm2-135m", "llama", 30, 576, 1536, 9, 3, 64, 49152, 8192, 100000, true, false, false},
        {"mistral-7b", "llama", 32, 4096, 14336, 32, 8, 128, 32768, 32768, 1000000, false, false, false},
        {"qwen2.5-0.5b", "qwen2", 24, 896, 4864, 14, 2, 64, 151936, 32768, 1000000, true, true, false},
        {"qwen2.5-7b", "qwen2", 28, 3584, 18944, 28, 4, 128, 152064, 32768, 1000000, false, true, false},
        {"qwen3-0.6b", "qwen3", 28, 1024, 3072, 16, 8, 128, 151936, 40960, 1000000, true, false, true},
        {"qwen3-4b", "qwen3", 36, 2560, 9728, 32, 8, 128, 151936, 40960, 1000000, true, false, true},
        {"mixtral-8x7b", "llama", 32, 4096, 14336, 32, 8, 128, 32000, 32768, 1000000, false, false, false, 8,
         2, 14336},
        {"qwen3-30b-a3b", "qwen3moe", 48, 2048, 6144, 32, 4, 128, 151936, 40960, 1000000, false, false, true,
         128, 8, 768},
        linear({"qwen3.5-0.8b", "qwen35", 24, 1024, 3584, 8, 2, 256, 248320, 262144, 1e7f, true, false, true},
               16),
        linear({"qwen3.5-2b", "qwen35", 24, 2048, 6144, 8, 2, 256, 248320, 262144, 1e7f, true, false, true},
               16),
        linear({"qwen3.5-4b", "qwen35", 32, 2560, 9216, 16, 4, 256, 248320, 262144, 1e7f, true, false, true},
               32),
        sharing(linear({"qwen3.5-35b-a3b", "qwen35moe", 40, 2048, 512, 16, 2, 256, 248320, 262144, 1e7f,
                        false, false, true, 256, 8, 512},
                       32)),
        latent(sharing({"glm-4.7-flash", "deepseek2", 47, 2048, 10240, 20, 20, 256, 154880, 202752, 1e6f,
                        false, false, false, 64, 4, 1536}),
               768, 512, 64, 256),
        biased({"gpt-oss-20b", "gpt-oss", 24, 2880, 2880, 64, 8, 64, 201088, 131072, 150000, false, true,
                false, 32, 4, 2880}),
        convolving({"lfm2-1.2b", "lfm2", 16, 2048, 8192, 32, 8, 64, 65536, 128000, 1e6f, true, false, true},
                   "..a..a..a.a.a.a."),
        sliding_convolving(
            {"lfm3-1.7b", "lfm3", 24, 2048, 7680, 16, 4, 128, 128000, 128000, 1e6f, true, false, true},
            "..a.s.a.s.a.s.a.s.a.s.a."),
        of_one_block({"nemotron-3-nano-30b-a3b", "nemotron_h_moe", 52, 2688, 1856, 32, 2, 128, 131072, 262144,
                      10000, false, false, false, 128, 6, 1856},
                     ".e.e.ae.e.e.ae.e.e.ae.e.e.ae.e.e.ae.e.e.e.ae.e.e.e.e", 3712),
        sharing(linear({"qwen3-next-80b-a3b", "qwen3next", 48, 2048, 5120, 16, 2, 256, 151936, 262144, 1e7f,
                        false, false, true, 512, 10, 512},
                       32, true)),
        sliding({"gemma-4-e2b", "gemma4", 35, 1536, 6144, 8, 1, 256, 262144, 131072, 1e6f, true, false, true},
                5, 20, 12288),
        sliding(
            {"gemma-4-e4b", "gemma4", 42, 2560, 10240, 8, 2, 256, 262144, 131072, 1e6f, true, false, true}, 6,
            18, 10240),
        gated({"muse-glimmer-30b", "muse-glimmer", 52, 6656, 19968, 32, 2, 128, 202048, 131072, 500000, false,
               false, true},
              4, 2048),
    };
    return shapes;
}

Result<ModelShape> find_shape(std::string_view name) {
    std::string known;
    for (const ModelShape& s : all_shapes()) {
        if (s.name == name) return s;
        known += cat(known.empty() ? "" : ", ", s.name);
    }
    return Error{ErrorCode::invalid_argument, cat("--shape ", name), "is not a known shape",
                 cat("use ", known)};
}

}  // namespace nibble
