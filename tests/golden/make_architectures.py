#!/usr/bin/env python3
# Writes tests/golden/models/<name>: tiny random checkpoints with logits from Hugging Face transformers.
# Made with python 3.11, torch 2.15.0, transformers 5.23.0, safetensors 0.8.0, numpy 2.4.6; float32 on the CPU.
#
#   python make_architectures.py [name ...]      (all of them without names)
#
# Each function of ARCHITECTURES returns a transformers config and, where the defaults do not do, the cases: a
# new architecture is one function here and the folder that it makes. Weights are random but far from
# neutral: norm weights around 1, biases not zero, projections large enough that attention has a shape.
# They are rounded to bfloat16 before the reference runs, so that both sides compute with the same numbers.
import copy
import json
import pathlib
import sys

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers.modeling_layers import MtpLayer

ROOT = pathlib.Path(__file__).resolve().parent / "models"
VOCAB = 200
ARCHITECTURES = {}


def architecture(make):
    ARCHITECTURES[make.__name__] = make
    return make


def case(length=70, ctx=128, rows=(0, 5, 17, 33, 50, 69)):
    """Logits of these rows of a sequence of random ids, and eight greedy tokens after it."""
    return {"length": length, "ctx": ctx, "rows": [r for r in rows if r < length]}


def base(**changes):
    """Odd sizes that most configs share: a head is not hidden_size / heads, kv heads are grouped."""
    fields = dict(vocab_size=VOCAB, hidden_size=64, intermediate_size=96, num_hidden_layers=3,
                  num_attention_heads=4, num_key_value_heads=2, head_dim=24, max_position_embeddings=128,
                  rms_norm_eps=1e-5, bos_token_id=1, eos_token_id=2, pad_token_id=None,
                  tie_word_embeddings=False)
    fields.update(changes)
    return {k: v for k, v in fields.items() if v is not None or k in ("pad_token_id", "q_lora_rank")}


def rope(theta, **more):
    return {"rope_type": "default", "rope_theta": theta, **more}


# ---- architectures -----------------------------------------------------------------------------------------

@architecture
def llama():
    rope = dict(rope_type="llama3", rope_theta=10000.0, factor=4.0, low_freq_factor=1.0,
                high_freq_factor=4.0, original_max_position_embeddings=32)
    return transformers.LlamaConfig(**base(attention_bias=True, mlp_bias=True, rope_parameters=rope)), {}


@architecture
def llama_tied():
    return transformers.LlamaConfig(**base(tie_word_embeddings=True, num_key_value_heads=1)), {"v4": True}


@architecture
def mistral():
    return transformers.MistralConfig(**base(sliding_window=19, rope_parameters=rope(5000.0))), {}


@architecture
def qwen2():
    # A window from the second layer on.
    return transformers.Qwen2Config(**base(head_dim=None, use_sliding_window=True, sliding_window=21, num_hidden_layers=2,
                                           max_window_layers=1, tie_word_embeddings=True)), {"v4": True}


@architecture
def qwen3():
    yarn = rope(10000.0, rope_type="yarn", factor=4.0, original_max_position_embeddings=32)
    return transformers.Qwen3Config(**base(num_key_value_heads=1, rope_parameters=yarn)), {"v4": True}


@architecture
def qwen3_tales():
    """This one and its assistant have learned something, letter by letter."""
    config = transformers.Qwen3Config(**base(vocab_size=100, num_attention_heads=2, head_dim=32, intermediate_size=128,
                                             tie_word_embeddings=True))
    helper = blocks(dict(num_attention_heads=2, head_dim=32, block_size=6, mask_token_id=1, target_layer_ids=[0, 1],
                         layer_types=["full_attention"] * 2), published=True)
    return config, {"assistant": helper, "lessons": 2000}


@architecture
def smollm3():
    return transformers.SmolLM3Config(**base(num_hidden_layers=4, intermediate_size=64, head_dim=None, tie_word_embeddings=True,
                                             rope_parameters=rope(5000.0))), {}


def longrope(pairs):
    return dict(rope_type="longrope", rope_theta=10000.0, original_max_position_embeddings=32,
                short_factor=[1.0 + 0.05 * i for i in range(pairs)],
                long_factor=[1.0 + 1.3 * i for i in range(pairs)])


@architecture
def phi3():
    # Two programs: within the original context the short factors hold, beyond it the long ones.
    config = transformers.Phi3Config(**base(num_hidden_layers=2, head_dim=None, hidden_size=96, sliding_window=47,
                                            original_max_position_embeddings=32,
                                            rope_parameters=longrope(12)))
    return config, {"cases": [case(length=24, ctx=32, rows=(0, 11, 23)), case()], "v4": True}


@architecture
def phi4_mini():
    config = transformers.Phi3Config(**base(num_hidden_layers=2, head_dim=None, hidden_size=96, tie_word_embeddings=True,
                                            original_max_position_embeddings=32, num_key_value_heads=1,
                                            partial_rotary_factor=0.75, rope_parameters={**longrope(9), "partial_rotary_factor": 0.75}))
    return config, {"cases": [case(length=24, ctx=32, rows=(0, 11, 23)), case()]}


@architecture
def granite():
    config = transformers.GraniteConfig(**base(head_dim=None, embedding_multiplier=3.0, residual_multiplier=0.7,
                                               attention_multiplier=0.2, logits_scaling=0.5,
                                               tie_word_embeddings=True, attention_bias=True, mlp_bias=True))
    return config, {"v4": True}


@architecture
def granite_swa():
    # The first layer sees all; the third does not rotate.
    config = transformers.GraniteSWAConfig(**base(head_dim=None, num_hidden_layers=4, embedding_multiplier=3.0, residual_multiplier=0.7,
                                                  attention_multiplier=0.2, logits_scaling=0.5, sliding_window=19,
                                                  layer_rope_theta=[5000.0, 5000.0, 0, 5000.0], tie_word_embeddings=True,
                                                  rope_parameters=rope(5000.0)))
    return config, {}


@architecture
def arcee():
    return transformers.ArceeConfig(**base(num_hidden_layers=2, attention_bias=True, mlp_bias=True)), {}


@architecture
def apertus():
    scaling = rope(10000.0, rope_type="llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32)
    return transformers.ApertusConfig(**base(head_dim=None, rope_parameters=scaling)), \
        {"v4": True, "weights": curves, "changes": {"qk_norm": True, "post_norm": False}}


def curves(model, generator):
    """Of xIELU, in bfloat16 as checkpoints have them; alphas that are learned are far from where they began."""
    for name, p in model.named_parameters():
        if name.endswith(("act_fn.alpha_p", "act_fn.alpha_n")):
            p.data = (1 + 2 * torch.randn(p.shape, generator=generator)).to(torch.bfloat16).float()
    return {}


@architecture
def olmo2():
    return transformers.Olmo2Config(**base(head_dim=None)), {"v4": True}


@architecture
def olmo3():
    yarn = rope(10000.0, rope_type="yarn", factor=4.0, original_max_position_embeddings=32)
    return transformers.Olmo3Config(**base(num_hidden_layers=4, head_dim=None, intermediate_size=64, sliding_window=17,
                                           rope_parameters={"full_attention": yarn, "sliding_attention": rope(10000.0)})), {}


@architecture
def gemma():
    return transformers.GemmaConfig(**base(num_hidden_layers=2, tie_word_embeddings=True)), {"offset_norms": True, "v4": True}


@architecture
def gemma2():
    config = transformers.Gemma2Config(**base(num_hidden_layers=4, intermediate_size=64, sliding_window=18, query_pre_attn_scalar=20,
                                              attn_logit_softcapping=3.0, final_logit_softcapping=5.0,
                                              tie_word_embeddings=True))
    return config, {"offset_norms": True, "v4": True}


@architecture
def gemma3():
    parameters = {"full_attention": rope(100000.0, rope_type="linear", factor=4.0), "sliding_attention": rope(1000.0)}
    config = transformers.Gemma3TextConfig(**base(num_hidden_layers=7, intermediate_size=64, num_attention_heads=2,
                                                  num_key_value_heads=1, head_dim=20, sliding_window=18,
                                                  query_pre_attn_scalar=30, rope_parameters=parameters,
                                                  tie_word_embeddings=True))
    return config, {"offset_norms": True}


@architecture
def gemma3_vision():
    # As published: the text model inside one for images, its config in text_config, in the old spelling.
    parameters = {"full_attention": rope(100000.0, rope_type="linear", factor=4.0), "sliding_attention": rope(1000.0)}
    config = transformers.Gemma3TextConfig(**base(num_hidden_layers=2, intermediate_size=64, sliding_window=18,
                                                  layer_types=["full_attention", "sliding_attention"],
                                                  query_pre_attn_scalar=30, rope_parameters=parameters,
                                                  tie_word_embeddings=True))
    return config, {"offset_norms": True, "wrap": wrap}


@architecture
def gpt2():
    return transformers.GPT2Config(vocab_size=VOCAB, n_embd=64, n_layer=2, n_head=4, n_positions=128,
                                   bos_token_id=1, eos_token_id=2), {}


@architecture
def gptneox():
    fields = base(head_dim=None, num_key_value_heads=None, num_hidden_layers=2, layer_norm_eps=1e-5, rope_parameters=rope(10000.0, partial_rotary_factor=0.25))
    return transformers.GPTNeoXConfig(**fields), {}


@architecture
def gptneox_serial():
    fields = base(head_dim=None, num_key_value_heads=None, num_hidden_layers=2, layer_norm_eps=1e-5, use_parallel_residual=False)
    return transformers.GPTNeoXConfig(**fields), {}


@architecture
def starcoder2():
    return transformers.Starcoder2Config(**base(head_dim=None, num_hidden_layers=2, norm_epsilon=1e-5, sliding_window=20,
                                                tie_word_embeddings=True)), {"v4": True}


@architecture
def stablelm():
    return transformers.StableLmConfig(**base(head_dim=None, layer_norm_eps=1e-5, use_qkv_bias=True,
                                              rope_parameters=rope(10000.0, partial_rotary_factor=0.25))), {}


@architecture
def cohere():
    return transformers.CohereConfig(**base(head_dim=None, layer_norm_eps=1e-5, logit_scale=0.7, tie_word_embeddings=True)), {"v4": True}


@architecture
def glm4():
    return transformers.Glm4Config(**base(attention_bias=True, num_hidden_layers=2,
                                          rope_parameters=rope(10000.0, partial_rotary_factor=0.5))), {}


@architecture
def mixtral():
    return transformers.MixtralConfig(**base(sliding_window=19, num_local_experts=5, num_experts_per_tok=2)), {"v4": True}


@architecture
def minimax_m2():
    config = transformers.MiniMaxM2Config(**base(intermediate_size=32, num_local_experts=8, num_experts_per_tok=3,
                                                 rope_parameters=rope(50000.0, partial_rotary_factor=0.5)))
    return config, {"v4": True, "weights": choice_bias, "wrap": rotating_columns,
                    "changes": {"use_qk_norm": True, "qk_norm_type": "per_layer", "scoring_func": "sigmoid",
                                "attn_type_list": [1, 1, 1], "shared_intermediate_size": 0}}


def rotating_columns(folder, stated):
    """As published: how many columns of a head rotate, not which share of them."""
    stated["rotary_dim"] = round(stated["head_dim"] * stated.pop("partial_rotary_factor"))
    return stated


@architecture
def qwen2_moe():
    # The first layer is dense.
    return transformers.Qwen2MoeConfig(**base(head_dim=None, num_experts=6, num_experts_per_tok=3, moe_intermediate_size=32,
                                              shared_expert_intermediate_size=64, mlp_only_layers=[0])), {"v4": True}


@architecture
def qwen3_moe():
    return transformers.Qwen3MoeConfig(**base(num_experts=8, num_experts_per_tok=3, moe_intermediate_size=64,
                                              norm_topk_prob=True)), {"v4": True}


@architecture
def olmoe():
    return transformers.OlmoeConfig(**base(head_dim=None, intermediate_size=32, num_experts=7, num_experts_per_tok=3)), {}


@architecture
def granitemoe():
    return transformers.GraniteMoeConfig(**base(head_dim=None, intermediate_size=32, embedding_multiplier=3.0, residual_multiplier=0.7,
                                                attention_multiplier=0.2, logits_scaling=0.5, num_local_experts=6,
                                                num_experts_per_tok=3, tie_word_embeddings=True)), {"v4": True}


def latent(**changes):
    """Latent attention: a head has 20 columns that do not rotate and 8 that do, the first layer is dense."""
    return base(head_dim=None, num_key_value_heads=4, kv_lora_rank=96, qk_nope_head_dim=20, qk_rope_head_dim=8,
                v_head_dim=12, first_k_dense_replace=1, moe_intermediate_size=32, **changes)


def choice_bias(model, generator):
    """What corrects the choice of experts: a buffer, not a parameter."""
    for name, b in model.named_buffers():
        if name.endswith("e_score_correction_bias"):
            b.data = (torch.randn(b.shape, generator=generator) * 0.2).to(torch.bfloat16).to(torch.float32)
    return {}


@architecture
def deepseek_v2_lite():
    yarn = rope(10000.0, rope_type="yarn", factor=4.0, original_max_position_embeddings=32, mscale=0.707,
                mscale_all_dim=0.707)
    return transformers.DeepseekV2Config(**latent(q_lora_rank=None, n_routed_experts=6, num_experts_per_tok=3,
                                                  n_shared_experts=2, n_group=1, topk_group=1, rope_parameters=yarn)), \
        {"v4": True, "changes": {"q_lora_rank": None, "scoring_func": "softmax", "moe_layer_freq": 1}}


@architecture
def deepseek_v2():
    return transformers.DeepseekV2Config(**latent(q_lora_rank=40, n_routed_experts=9, num_experts_per_tok=3,
                                                  n_shared_experts=1, topk_method="group_limited_greedy", n_group=3,
                                                  topk_group=2, routed_scaling_factor=3.0, attention_bias=True)), {}


@architecture
def deepseek_v3():
    yarn = rope(10000.0, rope_type="yarn", factor=4.0, original_max_position_embeddings=32, mscale=1.0,
                mscale_all_dim=1.0)
    return transformers.DeepseekV3Config(**latent(q_lora_rank=40, n_routed_experts=8, num_experts_per_tok=3,
                                                  n_shared_experts=1, n_group=4, topk_group=2, norm_topk_prob=True,
                                                  routed_scaling_factor=2.5, rope_parameters=yarn)), \
        {"v4": True, "weights": choice_bias, "changes": {"topk_method": "noaux_tc", "scoring_func": "sigmoid"},
         "predictor": glm_predictor}


@architecture
def glm4_moe_lite():
    shape = latent(q_lora_rank=40, n_routed_experts=6, num_experts_per_tok=3, n_shared_experts=1, norm_topk_prob=True,
                   routed_scaling_factor=1.8, rope_parameters=rope(1000000.0))
    del shape["first_k_dense_replace"]
    kinds = ["dense", "sparse", "sparse"]
    return transformers.Glm4MoeLiteConfig(**shape, mlp_layer_types=kinds), \
        {"weights": choice_bias, "predictor": glm_predictor}


@architecture
def mistral4():
    yarn = rope(10000.0, rope_type="yarn", factor=4.0, original_max_position_embeddings=16, beta_fast=32.0, beta_slow=1.0,
                mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.3, partial_rotary_factor=8 / 28)
    return transformers.Mistral4Config(**latent(q_lora_rank=40, n_routed_experts=8, num_experts_per_tok=3,
                                                n_shared_experts=1, n_group=1, topk_group=1, norm_topk_prob=True,
                                                rope_parameters=yarn)), \
        {"wrap": images, "model": transformers.Mistral4ForCausalLM}


@architecture
def glm4_moe():
    return transformers.Glm4MoeConfig(**base(num_key_value_heads=2, n_routed_experts=8, num_experts_per_tok=3, n_group=2,
                                             topk_group=1, moe_intermediate_size=32, n_shared_experts=1,
                                             first_k_dense_replace=1, routed_scaling_factor=1.5, use_qk_norm=True,
                                             attention_bias=True,
                                             rope_parameters=rope(10000.0, partial_rotary_factor=0.5))), \
        {"weights": choice_bias, "predictor": glm_predictor}


@architecture
def ministral3():
    yarn = rope(10000.0, rope_type="yarn", factor=4.0, original_max_position_embeddings=16, beta_fast=32.0, beta_slow=1.0,
                mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.3)
    return transformers.Ministral3Config(**base(num_hidden_layers=2, rope_parameters=yarn)), {"wrap": images}


@architecture
def exaone4():
    llama3 = dict(rope_type="llama3", rope_theta=10000.0, factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
                  original_max_position_embeddings=32)
    return transformers.Exaone4Config(**base(num_hidden_layers=4, intermediate_size=64, sliding_window=19,
                                             sliding_window_pattern=4, rope_parameters=llama3)), {}


@architecture
def cohere2():
    return transformers.Cohere2Config(**base(head_dim=None, num_hidden_layers=4, intermediate_size=64, layer_norm_eps=1e-5,
                                             sliding_window=19, logit_scale=0.7, tie_word_embeddings=True)), {}


@architecture
def ernie4_5():
    return transformers.Ernie4_5Config(**base(num_hidden_layers=2, use_bias=True, tie_word_embeddings=True,
                                              rope_parameters=rope(5000.0))), {}


@architecture
def ernie4_5_moe():
    return transformers.Ernie4_5_MoeConfig(**base(num_hidden_layers=3, moe_num_experts=8, moe_k=3, moe_intermediate_size=32,
                                                  moe_num_shared_experts=2, moe_layer_start_index=1,
                                                  rope_parameters=rope(5000.0))), {"weights": bias_parameters}


@architecture
def hunyuan_v1_dense():
    alpha = rope(10000.0, rope_type="dynamic", alpha=50.0, factor=1.0)
    return transformers.HunYuanDenseV1Config(**base(attention_bias=True, tie_word_embeddings=True, rope_parameters=alpha)), \
        {"v4": True, "changes": {"use_qk_norm": True, "use_cla": False}}


@architecture
def hunyuan_v1_moe():
    # Numbers of experts listed per layer, as published.
    alpha = rope(10000.0, rope_type="dynamic", alpha=1000.0, factor=1.0)
    config = transformers.HunYuanMoEV1Config(**base(intermediate_size=32, num_experts=6, moe_topk=3, rope_parameters=alpha))
    lists = {"moe_topk": [3] * 3, "moe_intermediate_size": [32] * 3, "num_shared_expert": [1] * 3}
    return config, {"v4": True, "changes": {"use_qk_norm": True, "use_cla": False, "use_mixed_mlp_moe": True, **lists}}


@architecture
def dots1():
    return transformers.Dots1Config(**base(moe_intermediate_size=32, n_routed_experts=8, num_experts_per_tok=3,
                                           n_shared_experts=2, first_k_dense_replace=1, norm_topk_prob=True,
                                           routed_scaling_factor=2.5, sliding_window=None)), \
        {"v4": True, "weights": choice_bias, "changes": {"scoring_func": "noaux_tc"}}


@architecture
def glm():
    return transformers.GlmConfig(**base(attention_bias=True, num_hidden_layers=2,
                                         rope_parameters=rope(10000.0, partial_rotary_factor=0.5))), {"v4": True}


@architecture
def internlm3():
    dynamic = rope(10000.0, rope_type="dynamic", factor=6.0)
    return transformers.InternLM3Config(**base(num_hidden_layers=2, rope_parameters=dynamic)), {"v4": True}


@architecture
def seed_oss():
    return transformers.SeedOssConfig(**base(num_hidden_layers=2, attention_bias=True, attention_out_bias=True)), {"v4": True}


def mxfp4(shape, generator):
    """Random blocks and scales of [experts, rows, columns], and what they mean: OCP Microscaling 1.0."""
    experts, rows, cols = shape
    values = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
    codes = torch.randint(0, 16, (experts, rows, cols // 32, 32), generator=generator)
    exponents = torch.randint(-4, -2, (experts, rows, cols // 32), generator=generator)
    meaning = values[codes] * 2.0 ** exponents[..., None]
    blocks = codes[..., 0::2] + 16 * codes[..., 1::2]
    return blocks.to(torch.uint8), (exponents + 127).to(torch.uint8), meaning.reshape(shape)


def mxfp4_experts(model, generator):
    """Experts as published: the file holds blocks and scales, the reference computes with what they mean."""
    stored = {}
    for name, p in model.named_parameters():
        if not name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            continue
        blocks, scales, meaning = mxfp4((p.shape[0], p.shape[2], p.shape[1]), generator)
        p.data = meaning.transpose(1, 2).contiguous()
        stored |= {name: None, name + "_blocks": blocks, name + "_scales": scales}
    return stored


@architecture
def gpt_oss():
    yarn = rope(10000.0, rope_type="yarn", factor=4.0, beta_fast=8.0, beta_slow=1.0, truncate=False,
                original_max_position_embeddings=32)
    return transformers.GptOssConfig(**base(intermediate_size=64, sliding_window=19, num_local_experts=5,
                                            num_experts_per_tok=3, rope_parameters=yarn)), \
        {"v4": True, "weights": mxfp4_experts,
         "changes": {"quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}}}


def linear(**changes):
    """Two of three layers linear, value heads that share key heads, heads of odd sizes."""
    return base(**{**dict(num_hidden_layers=4, full_attention_interval=3, linear_num_key_heads=2,
                          linear_num_value_heads=6, linear_key_head_dim=12, linear_value_head_dim=10,
                          linear_conv_kernel_dim=4, attention_bias=False,
                          rope_parameters=rope(10000.0, partial_rotary_factor=0.5, mrope_interleaved=True,
                                               mrope_section=[2, 2, 2])), **changes})


@architecture
def qwen3_5():
    config = transformers.Qwen3_5TextConfig(**linear(tie_word_embeddings=True))
    return config, {"offset_norms": True, "wrap": pictures, "predictor": qwen_predictor}


@architecture
def qwen3_5_tales():
    """This one has learned something, letter by letter."""
    config = transformers.Qwen3_5TextConfig(**linear(tie_word_embeddings=True, num_hidden_layers=3, vocab_size=100))
    return config, {"offset_norms": True, "predictor": qwen_predictor, "lessons": 1500}


@architecture
def qwen3_5_moe():
    config = transformers.Qwen3_5MoeTextConfig(**linear(intermediate_size=None, num_hidden_layers=3,
                                                        linear_num_value_heads=4, moe_intermediate_size=24,
                                                        shared_expert_intermediate_size=40, num_experts=6,
                                                        num_experts_per_tok=2))
    return config, {"offset_norms": True, "predictor": qwen_predictor}


@architecture
def qwen3_next():
    # The second layer is dense, and attends.
    config = transformers.Qwen3NextConfig(**linear(linear_key_head_dim=16, linear_value_head_dim=12, num_hidden_layers=3,
                                                   full_attention_interval=2, moe_intermediate_size=24,
                                                   shared_expert_intermediate_size=40, num_experts=6, mlp_only_layers=[1],
                                                   num_experts_per_tok=2, rope_parameters=rope(10000.0, partial_rotary_factor=0.5)))
    return config, {"offset_norms": True, "v4": True, "predictor": qwen_predictor}


@architecture
def lfm2():
    config = transformers.Lfm2Config(**base(rms_norm_eps=None, norm_eps=1e-5, head_dim=None, conv_bias=True,
                                            conv_L_cache=3, layer_types=["conv", "full_attention", "conv"],
                                            intermediate_size=150, block_multiple_of=32, block_ffn_dim_multiplier=1.2,
                                            rope_parameters=rope(5000.0), tie_word_embeddings=True))
    return config, {"v4": True}


def seeing(kind, text, vision):
    """The whole of a model of text and images, of which the text is asked."""
    config = getattr(transformers, kind + "Config")(text_config=text, vision_config=dict(depth=1, hidden_size=32, num_heads=2, intermediate_size=32,
                                                                                       out_hidden_size=64, **vision))
    config.vocab_size = VOCAB
    return config, {"model": getattr(transformers, kind + "ForConditionalGeneration")}


def by_sections(theta):
    return rope(theta, mrope_interleaved=True, mrope_section=[6, 3, 3])


@architecture
def qwen3_vl():
    text = base(num_hidden_layers=2, rope_parameters=by_sections(50000.0))
    return seeing("Qwen3VL", text, dict(deepstack_visual_indexes=[0], num_position_embeddings=16))


@architecture
def qwen3_vl_moe():
    text = base(num_hidden_layers=2, rope_parameters=by_sections(50000.0), num_experts=6, num_experts_per_tok=2,
                moe_intermediate_size=40)
    config, options = seeing("Qwen3VLMoe", text, dict(deepstack_visual_indexes=[0], num_position_embeddings=16))
    return config, options | {"wrap": turned}


def turned(folder, stated):
    """As published: experts the other way around."""
    path = folder / "model.safetensors"
    tensors = {name: t.transpose(1, 2).contiguous() if ".experts." in name else t for name, t in load_file(path).items()}
    save_file(tensors, path, metadata={"format": "pt"})
    return stated


@architecture
def qwen2_5_vl():
    text = base(num_hidden_layers=2, head_dim=None, rope_parameters=rope(50000.0, mrope_section=[4, 2, 2]))
    config, options = seeing("Qwen2_5_VL", text, dict(fullatt_block_indexes=[0]))
    return config, options | {"wrap": flat}


def flat(folder, stated):
    """As published: the fields of the text outside, in the spelling of transformers 4."""
    text = stated.pop("text_config")
    scaling = text.pop("rope_parameters")
    return stated | text | {"rope_theta": scaling.pop("rope_theta"), "rope_scaling": {"type": "mrope", "mrope_section": scaling["mrope_section"]},
                            "model_type": "qwen2_5_vl"}


@architecture
def mellum():
    # The first layer is dense; which ones slide is no regular pattern.
    yarn = rope(10000.0, rope_type="yarn", factor=4.0, original_max_position_embeddings=32)
    config = transformers.MellumConfig(**base(num_experts=6, num_experts_per_tok=2, moe_intermediate_size=32, sliding_window=19,
                                              layer_types=["sliding_attention", "full_attention", "sliding_attention"],
                                              mlp_layer_types=["dense", "sparse", "sparse"],
                                              rope_parameters={"full_attention": yarn, "sliding_attention": rope(1000.0)}))
    return config, {}


@architecture
def lfm3():
    kinds = ["conv", "sliding_attention", "full_attention", "conv"]
    parameters = {"sliding_attention": rope(1000.0),
                  "full_attention": dict(rope_type="proportional", rope_theta=50000.0, partial_rotary_factor=0.5)}
    config = transformers.Lfm3Config(**base(rms_norm_eps=None, norm_eps=1e-5, num_hidden_layers=4, layer_types=kinds, conv_L_cache=7,
                                            sliding_window=19, rope_parameters=parameters, tie_word_embeddings=True))
    return config, {}


@architecture
def muse_glimmer():
    # The pattern is counted from the last layer: the first of these sees all.
    text = base(num_hidden_layers=5, num_key_value_heads=2, num_attention_heads=4, sliding_window=19, qk_scale_factor=2.5,
                output_multiplier=0.8, final_logit_softcapping=5.0, rope_parameters=rope(5000.0))
    config, options = seeing("MuseGlimmer", text, dict(num_hidden_layers=1, num_attention_heads=2, patch_size=2,
                                                       pos_emb_height=2, pos_emb_width=2))
    config.out_hidden_size = config.projector_hidden_size = 16
    helper = blocks(dict(num_attention_heads=6, num_key_value_heads=3, block_size=4, mask_token_id=199, target_layer_ids=[0, 2, 3],
                         sliding_window=128, layer_types=["sliding_attention", "full_attention"]))
    return config, options | {"offset_norms": True, "weights": plain_norm, "assistant": helper}


def plain_norm(model, generator):
    """Of all norms the last one alone is not stored less one."""
    weight = model.model.language_model.norm.weight
    weight.data = (1 + 0.3 * torch.randn(weight.shape, generator=generator)).to(torch.bfloat16).float()
    return {}


@architecture
def afmoe():
    config = transformers.AfmoeConfig(**base(num_hidden_layers=4, sliding_window=19, moe_intermediate_size=32, num_experts=8,
                                             num_experts_per_tok=3, num_shared_experts=2, num_dense_layers=1, route_scale=1.7,
                                             mup_enabled=True, rope_parameters=rope(5000.0)))
    return config, {"weights": bias_parameters, "changes": {"route_norm": True, "score_func": "sigmoid", "n_group": 1}}


def bias_parameters(model, generator):
    for name, p in model.named_parameters():
        if name.endswith("expert_bias") or name.endswith("e_score_correction_bias"):
            p.data = (0.2 * torch.randn(p.shape, generator=generator)).to(torch.bfloat16).float()
        if name.endswith("embed_tokens.weight") and model.config.model_type == "afmoe":
            p.data /= 8  # what it says is multiplied by the root of its columns
    return {}


@architecture
def laguna():
    # Layers with four heads and with two, dense before sparse.
    yarn = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=32, partial_rotary_factor=0.5)
    config = transformers.LagunaConfig(**base(
        num_hidden_layers=4, sliding_window=19, moe_intermediate_size=32, shared_expert_intermediate_size=40, num_experts=8,
        num_experts_per_tok=3, num_attention_heads_per_layer=[4, 2, 2, 4], moe_routed_scaling_factor=1.7,
        layer_types=["full_attention", "sliding_attention", "sliding_attention", "sliding_attention"],
        rope_parameters={"full_attention": yarn, "sliding_attention": rope(1000.0, partial_rotary_factor=1.0)}))
    return config, {"weights": bias_parameters}


@architecture
def laguna_columns():
    # A gate on each column; what slides and what is dense is no regular pattern.
    config = transformers.LagunaConfig(**base(
        num_hidden_layers=3, sliding_window=19, moe_intermediate_size=32, shared_expert_intermediate_size=32, num_experts=6,
        num_experts_per_tok=2, gating="per-element", mlp_layer_types=["dense", "dense", "sparse"],
        layer_types=["sliding_attention", "full_attention", "full_attention"],
        rope_parameters={"full_attention": rope(10000.0, partial_rotary_factor=1.0),
                         "sliding_attention": rope(1000.0, partial_rotary_factor=1.0)}))
    return config, {"weights": bias_parameters}


@architecture
def cohere2_moe():
    # RMS norms, and a dense layer that sees all and rotates.
    config = transformers.Cohere2MoeConfig(**base(
        num_hidden_layers=4, intermediate_size=32, prefix_dense_intermediate_size=96, sliding_window=19, logit_scale=0.7,
        num_experts=8, num_experts_per_tok=3, num_shared_experts=2, expert_selection_fn="sigmoid", first_k_dense_replace=1,
        sliding_window_pattern=3, tie_word_embeddings=True))
    return config, {}


@architecture
def cohere2_moe_softmax():
    # LayerNorm, no dense layers, no shared experts.
    config = transformers.Cohere2MoeConfig(**base(
        rms_norm_eps=None, layer_norm_eps=1e-5, num_hidden_layers=2, intermediate_size=32, sliding_window=19,
        sliding_window_pattern=2, logit_scale=0.7, num_experts=6, num_experts_per_tok=2, tie_word_embeddings=True))
    return config, {}


def granite_hybrid(**changes):
    # Attention without positions between state spaces.
    return transformers.GraniteMoeHybridConfig(**base(
        num_hidden_layers=4, head_dim=None, layer_types=["linear_attention", "linear_attention", "full_attention", "linear_attention"],
        mamba_n_heads=8, mamba_d_head=16, mamba_d_state=24, mamba_d_conv=4, mamba_n_groups=1, mamba_expand=2,
        embedding_multiplier=3.0, attention_multiplier=0.2, residual_multiplier=0.6, logits_scaling=2.0, **changes))


@architecture
def granitemoehybrid():
    config = granite_hybrid(num_local_experts=6, num_experts_per_tok=2, intermediate_size=32, shared_intermediate_size=48)
    return config, {"weights": decays}


@architecture
def granitehybrid_dense():
    config = granite_hybrid(num_local_experts=0, intermediate_size=96, shared_intermediate_size=96, tie_word_embeddings=True)
    return config, {"weights": decays, "wrap": published_layers}


@architecture
def granitehybrid_rope():
    # Attention alone, with positions: Granite 4 that is no hybrid has the same model_type.
    config = granite_hybrid(num_local_experts=0, intermediate_size=64, shared_intermediate_size=64, position_embedding_type="rope")
    config.layer_types = ["full_attention"] * config.num_hidden_layers
    return config, {}


def nemotron(**changes):
    """State spaces of two groups of heads, attention without positions, feed-forwards: a layer each."""
    return transformers.NemotronHConfig(**base(**{**dict(
        num_hidden_layers=None, rms_norm_eps=None, layer_norm_epsilon=1e-5, mamba_num_heads=6, mamba_head_dim=16,
        ssm_state_size=24, n_groups=2, conv_kernel=4, mlp_hidden_act="relu2", n_routed_experts=6, num_experts_per_tok=2,
        moe_intermediate_size=32, moe_shared_expert_intermediate_size=40, routed_scaling_factor=2.5,
        time_step_min=1e-12), **changes}))  # which limits time steps in transformers, and nowhere else


@architecture
def nemotron_h():
    config = nemotron(layers_block_type=["linear_attention", "mlp", "linear_attention", "full_attention", "mlp"])
    return config, {"weights": decays, "changes": {"num_hidden_layers": 5}}


@architecture
def nemotron_h_moe():
    # As published, with a pattern of letters.
    config = nemotron(layers_block_type=["linear_attention", "moe", "full_attention", "linear_attention", "moe"],
                      num_experts_per_tok=3)
    return config, {"weights": chosen_decays, "wrap": lettered}


@architecture
def nemotron_h_latent():
    config = nemotron(layers_block_type=["full_attention", "moe", "linear_attention", "mlp", "moe"], moe_latent_size=48)
    return config, {"weights": chosen_decays}


def chosen_decays(model, generator):
    choice_bias(model, generator)
    return decays(model, generator)


def lettered(folder, stated):
    """Layers by letters, and a number that JSON does not have."""
    letters = {"linear_attention": "M", "full_attention": "*", "moe": "E", "mlp": "-"}
    stated["hybrid_override_pattern"] = "".join(letters[t] for t in stated.pop("layers_block_type"))
    stated["num_hidden_layers"] = len(stated["hybrid_override_pattern"])
    stated["time_step_limit"] = [0.0, float("inf")]
    return stated


def decays(model, generator):
    for name, p in model.named_parameters():
        if name.endswith("A_log"):
            p.data = (0.8 * torch.randn(p.shape, generator=generator)).to(torch.bfloat16).float()
        if name.endswith("mamba.D"):
            p.data = (1 + 0.3 * torch.randn(p.shape, generator=generator)).to(torch.bfloat16).float()
    return {}


def published_layers(folder, stated):
    """Layers by the names that checkpoints have."""
    stated["layer_types"] = ["attention" if t == "full_attention" else "mamba" for t in stated["layer_types"]]
    stated["position_embedding_type"] = "nope"
    return stated


@architecture
def lfm2_moe():
    config = transformers.Lfm2MoeConfig(**base(rms_norm_eps=None, norm_eps=1e-5, head_dim=None, conv_L_cache=4,
                                               layer_types=["conv", "full_attention", "conv", "conv"],
                                               num_hidden_layers=4, intermediate_size=96, moe_intermediate_size=32,
                                               num_dense_layers=1, num_experts=6, num_experts_per_tok=2,
                                               rope_parameters=rope(5000.0), tie_word_embeddings=True))
    return config, {"weights": expert_bias}


@architecture
def gemma4():
    # Layers of both kinds before and behind the first that has no keys of its own.
    kinds = ["sliding_attention", "full_attention", "sliding_attention", "full_attention", "sliding_attention", "full_attention"]
    config = transformers.Gemma4TextConfig(**base(num_hidden_layers=6, intermediate_size=48, head_dim=16, global_head_dim=24,
                                                  sliding_window=18, layer_types=kinds, num_kv_shared_layers=3,
                                                  use_double_wide_mlp=True, hidden_size_per_layer_input=8,
                                                  vocab_size_per_layer_input=VOCAB, final_logit_softcapping=5.0,
                                                  tie_word_embeddings=True))
    small = dict(num_hidden_layers=3, hidden_size=32, intermediate_size=40, head_dim=16, global_head_dim=24, sliding_window=18,
                 layer_types=["sliding_attention", "sliding_attention", "full_attention"])
    return config, {"weights": layer_scalars, "assistant": assistant(small, use_ordered_embeddings=True, num_centroids=4)}


@architecture
def gemma4_dense():
    # Full layers without values, with fewer keys; no embedding per layer.
    config = transformers.Gemma4TextConfig(**base(num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
                                                  head_dim=16, global_head_dim=32, num_global_key_value_heads=1,
                                                  attention_k_eq_v=True, sliding_window=18, hidden_size_per_layer_input=0,
                                                  layer_types=["sliding_attention", "sliding_attention", "full_attention"],
                                                  tie_word_embeddings=True))
    small = dict(num_hidden_layers=2, hidden_size=40, intermediate_size=32, num_attention_heads=6, num_key_value_heads=2,
                 head_dim=16, global_head_dim=32, num_global_key_value_heads=1, attention_k_eq_v=True, sliding_window=18,
                 layer_types=["sliding_attention", "full_attention"])
    return config, {"weights": layer_scalars, "wrap": sights, "assistant": assistant(small)}


@architecture
def gemma4_tales():
    """This one and its assistant have learned something, letter by letter."""
    few = dict(vocab_size=100, num_attention_heads=4, num_key_value_heads=2, head_dim=16, global_head_dim=24, sliding_window=24,
               layer_types=["sliding_attention", "full_attention"])
    config = transformers.Gemma4TextConfig(**base(num_hidden_layers=2, hidden_size=64, intermediate_size=128, hidden_size_per_layer_input=0,
                                                  tie_word_embeddings=True, **few))
    small = assistant(dict(num_hidden_layers=2, hidden_size=48, intermediate_size=96, **few))
    return config, {"assistant": small, "lessons": 1500}


@architecture
def gemma4_moe():
    # Experts beside the feed-forward, of as many rows as packed layouts keep apart; full layers without values.
    config = transformers.Gemma4TextConfig(**base(num_hidden_layers=3, head_dim=16, global_head_dim=32, num_global_key_value_heads=1,
                                                  attention_k_eq_v=True, sliding_window=18, hidden_size_per_layer_input=0,
                                                  layer_types=["sliding_attention", "sliding_attention", "full_attention"],
                                                  enable_moe_block=True, num_experts=6, top_k_experts=2,
                                                  moe_intermediate_size=64, tie_word_embeddings=True))
    return config, {"weights": router_scales}


def router_scales(model, generator):
    for name, p in model.named_parameters():
        if name.endswith("router.scale") or name.endswith("per_expert_scale"):
            p.data = (1 + 0.3 * torch.randn(p.shape, generator=generator)).to(torch.bfloat16).float()
        if name.endswith("router.proj.weight"):
            p.data *= 8  # what it says is divided by the root of its columns
    return layer_scalars(model, generator)


def layer_scalars(model, generator):
    for name, b in model.named_buffers():
        if name.endswith("layer_scalar"):
            b.copy_((1 + 0.3 * torch.randn(b.shape, generator=generator)).to(torch.bfloat16).float())
    return {}


def sights(folder, stated):
    """The outside of a Gemma 4 checkpoint with towers."""
    path = folder / "model.safetensors"
    tensors = {name.replace("model.", "model.language_model.", 1): t for name, t in load_file(path).items()}
    for tower in ("vision_tower.patch", "audio_tower.conv", "embed_vision.proj", "embed_audio.proj"):
        tensors[f"model.{tower}.weight"] = torch.ones(2, 3, dtype=torch.bfloat16)
    save_file(tensors, path, metadata={"format": "pt"})
    full = stated.pop("per_layer_config")["2"]  # as published
    stated["global_head_dim"], stated["num_global_key_value_heads"] = full["head_dim"], full["num_key_value_heads"]
    return {"architectures": ["Gemma4ForConditionalGeneration"], "model_type": "gemma4", "text_config": stated}


def expert_bias(model, generator):
    for name, b in model.named_buffers():
        if name.endswith("expert_bias"):
            b.copy_((torch.randn(b.shape, generator=generator) * 0.1).to(torch.bfloat16).float())
    return {}


def pictures(folder, stated):
    """The outside of a Qwen checkpoint with a vision tower."""
    path = folder / "model.safetensors"
    tensors = {name.replace("model.", "model.language_model.", 1) if name.startswith("model.") else name: t
               for name, t in load_file(path).items()}
    tensors["model.visual.patch_embed.proj.weight"] = torch.ones(2, 3, dtype=torch.bfloat16)
    save_file(tensors, path, metadata={"format": "pt"})
    return {"architectures": ["Qwen3_5ForConditionalGeneration"], "model_type": "qwen3_5", "text_config": stated}


# ---- what guesses further ahead ----------------------------------------------------------------------------

def learn(model, guesser, lessons, seed):
    """Both of them, from fairy tales: then one says what the other predicts."""
    tales = (ROOT.parents[1] / "data/calibration.txt").read_text(encoding="utf-8")
    ids = torch.tensor([97 if c.isspace() else ord(c) - 30 for c in tales if c.isspace() or 33 <= ord(c) < 127])
    generator = torch.Generator().manual_seed(seed + 4)
    weights = list(model.parameters()) + list(guesser.parameters())
    optimizer = torch.optim.AdamW(weights, lr=4e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, lessons)
    loss = torch.nn.CrossEntropyLoss()
    for lesson in range(lessons):
        at = torch.randint(0, len(ids) - 98, (16, 1), generator=generator)
        text = ids[at + torch.arange(98)]
        said, guessed, wanted = guesser.lesson(text)
        both = [loss(said.flatten(0, 1), text[:, 1:said.shape[1] + 1].flatten()), loss(guessed.flatten(0, 1), wanted.flatten())]
        optimizer.zero_grad()
        sum(both).backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        schedule.step()
        if lesson % 100 == 99:
            print(f"  lesson {lesson + 1}: {both[0].item():.3f} and {both[1].item():.3f} nats a letter", flush=True)
    for p in weights:
        p.data = p.data.to(torch.bfloat16).to(torch.float32)


class Predictor:
    """The layer of transformers' MtpModel over a model's embedding, rotation and head: what follows position
    p + 1, from the hidden state at p and the token at p + 1."""

    def __init__(self, model, config, seed, offset_norms):
        config = copy.deepcopy(config)
        if getattr(config, "layer_types", None):
            config.layer_types = ["full_attention"]
        base = model.model
        kinds = getattr(config, "mlp_layer_types", ["sparse"])
        place = getattr(config, "first_k_dense_replace", kinds.index("sparse"))  # behind dense layers, if any
        self.layer = MtpLayer(config, type(base.layers[-1]), type(base.norm), place).float().eval()
        randomize(self.layer, seed + 3, offset_norms)
        self.model = model

    def hidden(self, tokens, states):
        """Of every row, [1 x T x width], given as many states."""
        length = tokens.shape[1]
        embedded = self.model.model.embed_tokens(tokens)
        positions = torch.arange(length)[None]
        rotation = self.model.model.rotary_emb(embedded, positions)
        mask = torch.full((length, length), float("-inf")).triu(1)[None, None]
        return self.layer(embedded, states, rotation, mask, positions, None)

    def lesson(self, text):
        """Logits of what follows each token, and of what follows the next, with what really does."""
        states = self.model.model(text[:, :-2], use_cache=False).last_hidden_state
        return self.model.lm_head(states), self.model.lm_head(self.hidden(text[:, 1:-1], states)), text[:, 2:]

    def parameters(self):
        return self.layer.parameters()

    @torch.no_grad()
    def expected(self, result):
        """Logits of the wanted rows, of what follows the text's greedy token, and of one token further on."""
        ids = torch.tensor([result["ids"]])
        states = self.model.model(ids, use_cache=False).last_hidden_state
        tokens = torch.cat([ids[:, 1:], torch.tensor([[result["greedy"][0]]])], 1)
        guessed = self.hidden(tokens, states)
        logits = self.model.lm_head(guessed)[0]
        rows = [logits[r] for r in result["rows"]]
        token = rows[-1].argmax().view(1, 1)
        further = self.hidden(torch.cat([tokens, token], 1), torch.cat([states, guessed[:, -1:]], 1))
        rows.append(self.model.lm_head(further)[0, -1])
        return [[float(f"{x:.8g}") for x in row.tolist()] for row in rows]


def assistant(text, **more):
    """A model without keys and values of its own that guesses for a Gemma 4."""
    def config_for(main):
        shape = base(hidden_size_per_layer_input=0, vocab_size_per_layer_input=0, tie_word_embeddings=True) | text
        shape["vocab_size"] = main.vocab_size
        shape["num_kv_shared_layers"] = shape["num_hidden_layers"]
        return transformers.Gemma4AssistantConfig(text_config=transformers.Gemma4TextConfig(**shape),
                                                  backbone_hidden_size=main.hidden_size, **more)
    return config_for


def sharing_modes(config, of_model=transformers.Gemma4TextConfig.kv_sharing_modes):
    """transformers 5.23 refuses a model whose layers all share, as an assistant's do, and keeps nothing for one
    of a model of which none does."""
    n, kinds = config.num_hidden_layers, config.layer_types
    if config.num_kv_shared_layers == n:
        return ["reuse"] * n
    modes = of_model.fget(config)
    for kind in set(kinds) if config.num_kv_shared_layers == 0 else ():
        modes[n - 1 - kinds[::-1].index(kind)] = "store"
    return modes


transformers.Gemma4TextConfig.kv_sharing_modes = property(sharing_modes)


class Assistant:
    """Guesses what follows position p + 1 from the hidden state at p, the token at p + 1, and the keys and values
    up to p."""

    def __init__(self, model, config, seed):
        config._attn_implementation = config.text_config._attn_implementation = "eager"
        self.model, self.window = model, model.config.sliding_window
        self.helper = transformers.Gemma4AssistantForCausalLM(config).float().eval()
        randomize(self.helper, seed + 5, False)
        layer_scalars(self.helper, torch.Generator().manual_seed(seed + 6))
        masked = self.helper.masked_embedding
        if masked is not None:
            vocab = config.text_config.vocab_size
            masked.token_ordering.copy_(torch.randperm(vocab, generator=torch.Generator().manual_seed(seed + 7)))
            # What is left when it looks at all of them, as we do.
            masked.centroid_intermediate_top_k = masked.num_centroids
        self.helper.tie_weights()

    def begin(self, ids):
        """Hidden states, and the keys and values by kind."""
        result = self.model.model(ids, use_cache=False, return_shared_kv_states=True)
        return result.last_hidden_state, result.shared_kv_states

    def lesson(self, text):
        """Logits of what follows each token, and of what follows the next, with what really does."""
        states, pairs = self.begin(text[:, :-2])
        length = states.shape[1]
        embedded = self.model.model.embed_tokens(text[:, 1:-1])
        ahead = torch.full((length, length), float("-inf")).triu(1)
        behind = torch.full((length, length), float("-inf")).tril(-self.window)
        masks = {"full_attention": ahead[None, None], "sliding_attention": (ahead + behind)[None, None]}
        found = self.helper.model(inputs_embeds=self.helper.pre_projection(torch.cat([embedded, states], -1)),
                                  attention_mask=masks, position_ids=torch.arange(1, length + 1)[None],
                                  shared_kv_states=pairs, use_cache=False,
                                  output_hidden_states=True).last_hidden_state  # or it drops all but one row
        return self.model.lm_head(states), self.helper.lm_head(found), text[:, 2:]

    def parameters(self):
        return self.helper.parameters()

    @torch.no_grad()
    def expected(self, result):
        """Logits of the wanted rows, of what follows the text's greedy token, and of one token further on."""
        ids = torch.tensor([result["ids"]])
        tokens = result["ids"][1:] + [result["greedy"][0]]
        rows = []
        for r in result["rows"]:
            states, pairs = self.begin(ids[:, :r + 1])
            # Of layers with a window, what the cache of a model that generates has at this point.
            k, v = pairs["sliding_attention"]
            pairs = dict(pairs) | {"sliding_attention": (k[:, :, -self.window:], v[:, :, -self.window:])}
            guess = self.guess(torch.tensor([[tokens[r]]]), states[:, -1:], r + 1, pairs)
            rows.append(guess.logits[0, -1])
        further = self.guess(rows[-1].argmax().view(1, 1), guess.last_hidden_state, result["rows"][-1] + 1, pairs)
        rows.append(further.logits[0, -1])
        return [[float(f"{x:.8g}") for x in row.tolist()] for row in rows]

    def guess(self, token, state, position, pairs):
        embedded = self.model.model.embed_tokens(token)
        return self.helper(inputs_embeds=torch.cat([embedded, state], -1), position_ids=torch.tensor([[position]]),
                           shared_kv_states=pairs, use_cache=False)

    def save(self, folder):
        self.helper.to(torch.bfloat16).save_pretrained(folder)


def blocks(text, published=False):
    """A model that guesses a block at once. `published`: as those for Qwen 3 are, whose output is tied."""
    def config_for(main):
        main = getattr(main, "text_config", main)
        shape = base(hidden_size=main.hidden_size, num_hidden_layers=2, rope_parameters=rope(5000.0)) | text
        del shape["tie_word_embeddings"], shape["vocab_size"]
        config = transformers.MuseGlimmerAssistantConfig(**shape)
        config.published = published
        return config
    return config_for


class BlockAssistant:
    """Guesses from what some layers say of each token, and the token behind the last."""

    def __init__(self, model, config, seed):
        self.published = config.published
        del config.published
        config._attn_implementation = "eager"
        self.model, self.config = model, config
        self.text = getattr(model.model, "language_model", model.model)
        self.helper = transformers.AutoModel.from_config(config).float().eval()
        randomize(self.helper, seed + 5, False)

    def begin(self, ids):
        result = self.text(ids, use_cache=False, output_hidden_states=True)
        sources = [result.hidden_states[i + 1] for i in self.config.target_layer_ids]
        return result.last_hidden_state, torch.cat(sources, -1)

    def guess(self, sources, token):
        """Hidden states of the masks."""
        masks = torch.full((len(token), self.config.block_size - 1), self.config.mask_token_id)
        weight = self.model.get_input_embeddings().weight
        embedded = torch.nn.functional.embedding(torch.cat([token, masks], 1), weight)
        length = sources.shape[1]
        cache = transformers.cache_utils.DFlashCache(config=self.config)
        cache.set_previous_accepted_tokens(length)
        positions = torch.arange(length + self.config.block_size)[None]
        return self.helper(noise_embeds=embedded, context_hidden_states=sources, position_ids=positions,
                           past_key_values=cache, use_cache=True).last_hidden_state[:, 1:]

    def lesson(self, text):
        """Logits of what follows each token, and of what masks stand for, with what really does."""
        states, sources = self.begin(text[:, :-2])
        size, guessed, wanted = self.config.block_size, [], []
        for at in torch.randint(4, text.shape[1] - size - 1, (4,)).tolist():
            guessed.append(self.model.lm_head(self.guess(sources[:, :at + 1].detach(), text[:, at + 1:at + 2])))
            wanted.append(text[:, at + 2:at + 1 + size])
        return self.model.lm_head(states), torch.cat(guessed, 1), torch.cat(wanted, 1)

    def parameters(self):
        return self.helper.parameters()

    @torch.no_grad()
    def expected(self, result):
        """Logits of the masks behind the wanted rows."""
        ids = torch.tensor([result["ids"] + result["greedy"][:1]])
        rows = []
        for r in result["rows"]:
            sources = self.begin(ids[:, :r + 1])[1]
            logits = self.model.lm_head(self.guess(sources, ids[:, r + 1:r + 2]))[0]
            said = getattr(self.model.config, "text_config", None)
            if hasattr(said, "output_multiplier"):
                cap = said.final_logit_softcapping
                logits = torch.tanh(logits * said.output_multiplier / cap) * cap
            rows += list(logits)
        return [[float(f"{x:.8g}") for x in row.tolist()] for row in rows]

    def save(self, folder):
        self.helper.to(torch.bfloat16).save_pretrained(folder)
        if not self.published:
            return
        path = folder / "model.safetensors"
        names = {"encoder.fc.": "fc.", "encoder.output_norm_enc.": "hidden_norm."}
        tensors = {next((to + n[len(start):] for start, to in names.items() if n.startswith(start)), n): t
                   for n, t in load_file(path).items()}
        for name in ("embed_tokens.weight", "lm_head.weight"):  # some bring copies
            tensors[name] = self.model.get_input_embeddings().weight.detach().to(torch.bfloat16).clone()
        save_file(tensors, path, metadata={"format": "pt"})
        path = folder / "config.json"
        stated = json.loads(path.read_text())
        stated["dflash_config"] = {k: stated.pop(k) for k in ("mask_token_id", "target_layer_ids")}
        stated |= {"architectures": ["DFlashDraftModel"], "model_type": "qwen3", "vocab_size": self.model.config.vocab_size,
                   "use_sliding_window": False, "sliding_window": None, "max_window_layers": 2}
        path.write_text(json.dumps(stated, indent=1, sort_keys=True) + "\n")


def qwen_predictor(layer, config):
    """As Qwen 3.5 names it."""
    names = {"eh_proj.": "mtp.fc.", "enorm.": "mtp.pre_fc_norm_embedding.", "hnorm.": "mtp.pre_fc_norm_hidden.",
             "post_norm.": "mtp.norm.", "mtp_block.": "mtp.layers.0."}
    return renamed(layer, names), {"mtp_num_hidden_layers": 1}


def glm_predictor(layer, config):
    """As GLM 4.5 does, after DeepSeek."""
    place = f"model.layers.{config.num_hidden_layers}."
    names = {"eh_proj.": place + "eh_proj.", "enorm.": place + "enorm.", "hnorm.": place + "hnorm.",
             "post_norm.": place + "shared_head.norm.", "mtp_block.": place}
    return renamed(layer, names), {"num_nextn_predict_layers": 1}


def renamed(layer, names):
    tensors = {}
    for name, t in layer.state_dict().items():
        start = next(s for s in names if name.startswith(s))
        tensors[names[start] + name[len(start):]] = t.to(torch.bfloat16).contiguous()
    return tensors


# ---- the rest is the same for all --------------------------------------------------------------------------

def randomize(model, seed, offset_norms):
    """Random weights by the part they play, rounded to bfloat16."""
    generator = torch.Generator().manual_seed(seed)
    for name, p in model.named_parameters():
        normal = torch.randn(p.shape, generator=generator)
        if "norm" in name or ".ln_" in name or name.startswith("ln_") or "layernorm" in name:
            offset = offset_norms and "linear_attn" not in name
            value = normal * 0.3 + (0.0 if name.endswith("bias") or offset else 1.0)
        elif p.dim() == 1:
            value = normal * 0.3
        elif "embed" in name or ".wte." in name or ".wpe." in name:
            value = normal * 0.15
        else:
            gain = 1.6 if any(part in name for part in ("q_proj", "k_proj", "qkv", "query_key", "c_attn")) else 1.0
            fan_in = p.shape[0] if type(model).__name__.startswith("GPT2") else p.shape[-1]
            value = normal * gain / fan_in**0.5
        p.data = value.to(torch.bfloat16).to(torch.float32)


@torch.no_grad()
def run(model, c, seed):
    generator = torch.Generator().manual_seed(seed + 1)
    ids = torch.randint(0, model.config.vocab_size, (c["length"],), generator=generator).tolist()
    logits = model(torch.tensor([ids]), use_cache=False).logits[0]
    greedy, margin, all_ids = [], [], list(ids)
    for _ in range(8):
        last = model(torch.tensor([all_ids]), use_cache=False).logits[0, -1]
        top = torch.topk(last, 2).values
        margin.append((top[0] - top[1]).item())
        greedy.append(int(last.argmax()))
        all_ids.append(greedy[-1])
    assert len(all_ids) <= c["ctx"]
    rows = [[float(f"{x:.8g}") for x in logits[r].tolist()] for r in c["rows"]]
    return {"ctx": c["ctx"], "ids": ids, "rows": c["rows"], "logits": rows, "greedy": greedy}, min(margin)


def old_style(config):
    """The spelling of transformers 4, which most published checkpoints have."""
    rope = config.pop("rope_parameters", None)
    if rope:
        config["rope_theta"] = rope.pop("rope_theta")
        if "partial_rotary_factor" in rope:
            config["partial_rotary_factor"] = rope.pop("partial_rotary_factor")
        config["rope_scaling"] = None if rope["rope_type"] == "default" else rope
    config["torch_dtype"] = config.pop("dtype", "bfloat16")


def wrap(folder, stated):
    """Turns a Gemma 3 text checkpoint into the outside of one with a vision tower."""
    path = folder / "model.safetensors"
    tensors = {"language_model." + name: t for name, t in load_file(path).items()}
    tensors["vision_tower.patch.weight"] = torch.ones(2, 3, dtype=torch.bfloat16)
    tensors["multi_modal_projector.weight"] = torch.ones(2, 3, dtype=torch.bfloat16)
    save_file(tensors, path, metadata={"format": "pt"})
    parameters = stated.pop("rope_parameters")
    whole, sliding = parameters["full_attention"], parameters["sliding_attention"]
    stated["rope_theta"], stated["rope_local_base_freq"] = whole["rope_theta"], sliding["rope_theta"]
    stated["rope_scaling"] = {"rope_type": whole["rope_type"], "factor": whole["factor"]}
    return {"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "text_config": stated}


def images(folder, stated):
    """The same for Mistral 3, whose own type says nothing about the text model."""
    path = folder / "model.safetensors"
    tensors = {"language_model." + name: t for name, t in load_file(path).items()}
    tensors["vision_tower.patch_conv.weight"] = torch.ones(2, 3, dtype=torch.bfloat16)
    tensors["multi_modal_projector.norm.weight"] = torch.ones(3, dtype=torch.bfloat16)
    save_file(tensors, path, metadata={"format": "pt"})
    return {"architectures": ["Mistral3ForConditionalGeneration"], "model_type": "mistral3", "text_config": stated}


def tokenizer():
    """The smallest that serves: single characters, fewer than the model has rows."""
    tokens = ["<unk>", "<s>", "</s>"] + [chr(c) for c in range(33, 127)] + ["\u0120"]
    special = [{"id": i, "content": t, "single_word": False, "lstrip": False, "rstrip": False,
                "normalized": False, "special": True} for i, t in enumerate(tokens[:3])]
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": special,
            "normalizer": None,
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                              "use_regex": True},
            "post_processor": None, "decoder": {"type": "ByteLevel"},
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                      "vocab": {t: i for i, t in enumerate(tokens)}, "merges": []}}


def make(name):
    config, options = ARCHITECTURES[name]()
    config._attn_implementation = options.get("attention", "eager")
    folder = ROOT / name
    folder.mkdir(parents=True, exist_ok=True)
    for seed in range(1, 100):
        model = options.get("model", transformers.AutoModelForCausalLM.from_config)(config).float().eval()
        randomize(model, seed, options.get("offset_norms", False))
        guesser = None
        if "predictor" in options:
            guesser = Predictor(model, config, seed, options.get("offset_norms", False))
        if "assistant" in options:
            wanted = options["assistant"](config)
            kind = BlockAssistant if hasattr(wanted, "block_size") else Assistant
            guesser = kind(model, wanted, seed)
        if "lessons" in options:
            learn(model, guesser, options["lessons"], seed)
        generator = torch.Generator().manual_seed(seed + 2)
        stored = options.get("weights", lambda *_: {})(model, generator)
        model.tie_weights()
        results = [run(model, c, seed) for c in options.get("cases", [case()])]
        if min(margin for _, margin in results) > 2e-3:
            break
    changes = dict(options.get("changes", {}))
    if guesser is not None:
        for result, _ in results:
            result["predicted"] = guesser.expected(result)
    if "assistant" in options:
        guesser.save(folder / "assistant")
    if "predictor" in options:
        tensors, said = options["predictor"](guesser.layer, config)
        stored, changes = stored | tensors, changes | said
    if "prepare" in options:
        options["prepare"](model)
    model.to(torch.bfloat16).save_pretrained(folder)
    if stored:
        path = folder / "model.safetensors"
        tensors = load_file(path) | stored
        save_file({n: t for n, t in tensors.items() if t is not None}, path, metadata={"format": "pt"})
    path = folder / "config.json"
    stated = json.loads(path.read_text()) | changes
    if options.get("v4"):
        old_style(stated)
    if options.get("wrap"):
        stated = options["wrap"](folder, stated)
    path.write_text(json.dumps(stated, indent=1, sort_keys=True) + "\n")
    for part in [folder] + [folder / "assistant"] * ("assistant" in options):
        (part / "tokenizer.json").write_text(json.dumps(tokenizer(), ensure_ascii=False) + "\n")
    expected = {"made_with": f"torch {torch.__version__}, transformers {transformers.__version__}",
                "seed": seed, "cases": [r for r, _ in results]}
    (folder / "expected.json").write_text(json.dumps(expected) + "\n")
    size = sum(f.stat().st_size for f in folder.rglob("*"))
    spread = max(abs(x) for c in expected["cases"] for row in c["logits"] for x in row)
    print(f"{name}: {size / 1024:.0f} KiB, largest logit {spread:.2f}, seed {seed}, files",
          sorted(f.name for f in folder.iterdir()))


if __name__ == "__main__":
    torch.set_num_threads(1)
    for wanted in sys.argv[1:] or ARCHITECTURES:
        make(wanted)
