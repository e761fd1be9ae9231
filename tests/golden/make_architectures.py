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
import json
import pathlib
import sys

import torch
import transformers

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
    return fields


# ---- architectures -----------------------------------------------------------------------------------------

@architecture
def llama():
    rope = dict(rope_type="llama3", rope_theta=10000.0, factor=4.0, low_freq_factor=1.0,
                high_freq_factor=4.0, original_max_position_embeddings=32)
    return transformers.LlamaConfig(**base(attention_bias=True, mlp_bias=True, rope_parameters=rope)), {}


@architecture
def llama_tied():
    return transformers.LlamaConfig(**base(tie_word_embeddings=True, num_key_value_heads=1)), {"v4": True}


# ---- the rest is the same for all --------------------------------------------------------------------------

def randomize(model, seed, offset_norms):
    """Random weights by the part they play, rounded to bfloat16."""
    generator = torch.Generator().manual_seed(seed)
    for name, p in model.named_parameters():
        normal = torch.randn(p.shape, generator=generator)
        if "norm" in name or ".ln_" in name or name.startswith("ln_") or "layernorm" in name:
            value = normal * 0.3 + (0.0 if name.endswith("bias") or offset_norms else 1.0)
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
    ids = torch.randint(0, VOCAB, (c["length"],), generator=generator).tolist()
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
        model.tie_weights()
        results = [run(model, c, seed) for c in options.get("cases", [case()])]
        if min(margin for _, margin in results) > 2e-3:
            break
    if "prepare" in options:
        options["prepare"](model)
    model.to(torch.bfloat16).save_pretrained(folder)
    path = folder / "config.json"
    stated = json.loads(path.read_text())
    if options.get("v4"):
        old_style(stated)
    path.write_text(json.dumps(stated, indent=1, sort_keys=True) + "\n")
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer(), ensure_ascii=False) + "\n")
    expected = {"made_with": f"torch {torch.__version__}, transformers {transformers.__version__}",
                "seed": seed, "cases": [r for r, _ in results]}
    (folder / "expected.json").write_text(json.dumps(expected) + "\n")
    size = sum(f.stat().st_size for f in folder.iterdir())
    spread = max(abs(x) for c in expected["cases"] for row in c["logits"] for x in row)
    print(f"{name}: {size / 1024:.0f} KiB, largest logit {spread:.2f}, seed {seed}, files",
          sorted(f.name for f in folder.iterdir()))


if __name__ == "__main__":
    torch.set_num_threads(1)
    for wanted in sys.argv[1:] or ARCHITECTURES:
        make(wanted)
