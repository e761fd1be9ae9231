# Writes tests/data/types/golden.txt: what other implementations make of pseudo-random blocks and values.
# Needs: pip install gguf==0.19.0 numpy==2.4.6 bitsandbytes==0.50.2 torch torch==2.15.0 (CPU is enough)
#
# The inputs come from splitmix64, so that tests/types/golden_test.cpp makes the same ones. Lines:
#   decode NAME F16_HIGH_BYTES HASH  512 blocks of random bytes; in each block the bytes at the listed offsets
#                                    have bit 6 cleared, so that the f16 they belong to is finite
#   encode NAME HASH                 the bytes made of 512 * 256 values
#   codes nf4 HASH                   one code per element of the same values, blocks of 64
#   codes nf4-edges HASH             the same for a block per midpoint: 1, the midpoint, its two neighbours, 0...
# HASH is 64-bit FNV-1a: over the 32-bit patterns of floats (negative zero as zero) or over bytes.
import sys

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType as T
from gguf.quants import dequantize, quantize

SEED = 2024
BLOCKS = 512
# offsets of the high bytes of f16 fields
F16 = {
    "Q4_0": [1], "Q4_1": [1, 3], "Q5_0": [1], "Q5_1": [1, 3], "Q8_0": [1], "Q2_K": [81, 83], "Q3_K": [109],
    "Q4_K": [1, 3], "Q5_K": [1, 3], "Q6_K": [209], "IQ4_NL": [1], "IQ4_XS": [1], "MXFP4": [], "NVFP4": [],
    "TQ1_0": [53], "TQ2_0": [65], "IQ2_XXS": [1], "IQ2_XS": [1], "IQ2_S": [1], "IQ3_XXS": [1], "IQ3_S": [1],
    "IQ1_S": [1], "IQ1_M": [55],
}
ENCODERS = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "TQ1_0", "TQ2_0", "MXFP4"]


def splitmix(seed, n):
    with np.errstate(over="ignore"):
        z = np.uint64(seed) + np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def fnv(words):
    h = 0xCBF29CE484222325
    for w in words.tolist():
        h = ((h ^ w) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return f"{h:016x}"


def random_blocks(size, f16):
    n = BLOCKS * size
    raw = splitmix(SEED, (n + 7) // 8).view(np.uint8)[:n].reshape(BLOCKS, size).copy()
    for at in f16:
        raw[:, at] &= 0xBF
    return raw


def values():
    """Roughly normal, exactly representable, with another power of two as the scale of every 256."""
    parts = splitmix(SEED + 1, BLOCKS * 256).view(np.uint16).reshape(-1, 4).astype(np.int64)
    x = (parts.sum(axis=1) - 131070).astype(np.float32) / np.float32(32768)
    x = x.reshape(BLOCKS, 256) * np.exp2(-(np.arange(BLOCKS) % 8)).astype(np.float32)[:, None]
    x[0] = 0
    return x


def nf4_codes(x):
    import bitsandbytes.functional as bnb
    import torch

    packed, _ = bnb.quantize_4bit(torch.from_numpy(x.copy()), blocksize=64, quant_type="nf4")
    packed = packed.numpy().reshape(-1)
    return np.stack([packed >> 4, packed & 15], axis=1).reshape(-1)


def nf4_edges():
    import bitsandbytes.functional as bnb

    levels = bnb.get_4bit_type("nf4", device="cpu").numpy()[:16].astype(np.float64)
    x = np.zeros((15, 64), np.float32)
    for k in range(15):
        mid = np.float32((levels[k] + levels[k + 1]) / 2)
        x[k, :4] = [1, mid, np.nextafter(mid, np.float32(-2)), np.nextafter(mid, np.float32(2))]
    return x


def main():
    out = open(sys.argv[1], "w")
    for name, f16 in F16.items():
        kind = getattr(T, name)
        y = dequantize(random_blocks(GGML_QUANT_SIZES[kind][1], f16), kind).reshape(-1)
        assert not np.isnan(y).any(), name
        bits = np.where(y == 0, np.float32(0), y).astype(np.float32).view(np.uint32)
        print("decode", name.lower(), ",".join(map(str, f16)) or "-", fnv(bits), file=out)
    x = values()
    for name in ENCODERS:
        print("encode", name.lower(), fnv(quantize(x, getattr(T, name)).reshape(-1)), file=out)
    print("codes nf4", fnv(nf4_codes(x)), file=out)
    print("codes nf4-edges", fnv(nf4_codes(nf4_edges())), file=out)


main()
