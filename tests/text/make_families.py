#!/usr/bin/env python3
# Writes tests/data/families/<name>.json: a small tokenizer.json in the form of a family of models, strings and
# their ids. Made with python 3.11 and tokenizers 0.23.3, the package behind Hugging Face's fast tokenizers.
#
#   python make_families.py [name ...]      (all of them without names)
#
# Normalizer, pre-tokenizer, model flags and decoder are the family's; the vocabulary is trained here on
# alice.txt and the strings themselves, so that it is small and merges across what the regexes must cut.
import json
import pathlib
import random
import sys

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers import Regex

ROOT = pathlib.Path(__file__).resolve().parent.parent / "data"
VOCAB = 640

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
          r"\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
QWEN35 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
TAIL = r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
TEKKEN = rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*|\p{{N}}|{TAIL}"
SUFFIX = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
O200K = (rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{SUFFIX}|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{SUFFIX}|"
         rf"\p{{N}}{{1,3}}|{TAIL}")
CJK = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
DEEPSEEK3 = (r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"""
             r""" ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+""")
ASIAN = ("[\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f\u2f00-\u2fdf\u0e40-\u0e7f"
         "\u0e80-\u0eff\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af\u1100-\u11ff]+")
SEED = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|"
        r"\s+(?!\S)|\s+")

STRINGS = [
    "", " ", "  ", "\t", "\n", "\r\n", "\n\n\n", " \n \n", "Hello world", "  Hello   world  ", "hello\u00a0world\u3000!",
    "I'm sure you'LL see she'd've said IT'S they'Re 'tis", "don\u2019t \u2018quote\u2019 \u201ctwice\u201d",
    "3 33 333 3333 33333 1234567 3.14159 1,000,000 2026-11-21 0x1F 1e-5 \u00bd \u2460 \u0663\u0664 \u216b",
    "def f(x: int) -> str:\n    if x != 0 and x >= 10:\n\t\treturn f'{x:>8}'\n    return \"\"  # done\n",
    "for (int i = 0; i < n; ++i) { a[i] += b[i] * 2; }\n//--- end ---\n\n\n#include <vector>\n",
    "SELECT * FROM t WHERE name='O''Brien';\r\n\r\n-- a comment\r\n", "https://example.org/a_b?c=d&e=%20f#g",
    "camelCase PascalCase snake_case SCREAMING_CASE kebab-case HTTPServer iPhone12ProMax",
    "{\"key\": [1, 2.5, null, true], \"nested\": {\"a\\n\": \"\\u00e9\"}}",
    "$E = mc^2$, \\frac{a}{b} \u2264 \u2211 x\u1d62\u00b2", "<div class=\"x\">&nbsp;</div>", "a/b/c\\d\\e ~/.bashrc /usr//lib/",
    "\u6211\u60f3\u5728apple\u5de5\u4f5c1314151\u5929\uff5e", "\u4eca\u65e5\u306f\u3001\u4e16\u754c\uff01\u30ab\u30bf\u30ab\u30ca\u3068\u3072\u3089\u304c\u306a\u3002",
    "\uc548\ub155\ud558\uc138\uc694 \uc138\uacc4 123\uac1c", "\u043d\u0435\u0449\u043e \u043d\u0430 \u0411\u044a\u043b\u0433\u0430\u0440\u0441\u043a\u0438 \u0401\u043b\u043a\u0430",
    "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645 \u0661\u0662\u0663", "\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e",
    "\u1780\u17b6\u1793\u17cb\u178f\u17c2\u1796\u17b7\u179f\u17c1\u179f", "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35\u0e0a\u0e32\u0e27\u0e42\u0e25\u0e01", "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd",
    "C\u01b0\u0309a Vi\u1ec7t and Cu\u031b\u0309a Vie\u0302\u0323t", "e\u0301 \u00e9 n\u0303 \u00f1 A\u030a \u00c5 \u212b o\u0308\u0304 q\u0323\u0307 q\u0307\u0323",
    "\u1112\u1161\u11ab\u1100\u1173\u11af \ud55c\uae00 \uff76\uff9e \u30ac \ufb01 \ufb03", "z\u0335\u0321a\u0336\u0322l\u0337g\u0338o\u0337",
    "\U0001f680 (normal) \U0001f636\u200d\U0001f32b\ufe0f (joined) \u2705 \U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 \U0001f1e9\U0001f1ea \U0001f44d\U0001f3fd",
    "\u200bzero\u200bwidth\ufeff bom\u00adsoft", "!!!!!! ?????? ...... ------ ====== ``````` \u2026\u2026 \u2014\u2014",
    "a" * 40, " " * 50 + "x", "x" + "\t" * 17 + "\n" * 9 + "y", "line one   \n   line two\t\n\tline three    ",
    "\u3000\u3000\u5168\u89d2\u3000\u7a7a\u683c", "Mixed\u4e2d\u6587and\u65e5\u672c\u8a9ewith\ud55c\uad6d\uc5b4", "M\u00dcLLER stra\u00dfe \u01c5 \u01c6 \u0130\u0131 \u02b0\u02c7",
    "<|im_start|>user\nHi there<|im_end|>\n<|im_start|>assistant\n", "no<|im_end|>space<|im_end|><|im_end|> end",
    "<think>\nlet me see</think>\n\nfour", " <|im_start|> padded <|im_end|> ", "<|im_start|", "im_end|> <|im_ end|>", "e<|im_end|>\u0301",
    " Alice was beginning to get very tired of sitting by her sister on the bank, and of having nothing to do:",
]
ADDED = ["<|im_start|>", "<|im_end|>"]


def random_strings(n):
    """Characters of every kind in an order that nobody would write."""
    rng = random.Random(7)
    pools = ["abcXYZ", "0123456789", "   \t\n\r", "'\".,!?/-_<>|=", "\u00e9\u00df\u0416\u05d0", "\u4e2d\u6587\u3042\u30a2\uac00", "\u0301\u0308\u0323",
             "\U0001f600\u2764\ufe0f\u200d", "\u00a0\u3000\u2028", "\u00bd\u0663\u2167", "'s't'LL"]
    return ["".join(rng.choice(rng.choice(pools)) for _ in range(rng.randint(5, 40))) for _ in range(n)]


def split(regex, behavior="isolated", invert=False):
    return pre_tokenizers.Split(Regex(regex), behavior, invert)


def level(**options):
    return pre_tokenizers.ByteLevel(add_prefix_space=False, **{"use_regex": False, **options})


def byte_level(passes, nfc=False, ignore_merges=False):
    t = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    if nfc:
        t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre_tokenizers.Sequence(passes) if len(passes) > 1 else passes[0]
    t.decoder = decoders.ByteLevel()
    return t, trainers.BpeTrainer(vocab_size=VOCAB, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                  show_progress=False)


def spaced(normalizer, decoder):
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    t.normalizer, t.decoder = normalizer, decoder
    first = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    return t, trainers.BpeTrainer(vocab_size=VOCAB + 259, special_tokens=first, limit_alphabet=90, show_progress=False)


def all_merges(document):
    """Every pair that makes a token, by the token's rank, as converters of SentencePiece models write them."""
    vocab = document["model"]["vocab"]
    merges = []
    for token in sorted(vocab, key=vocab.get):
        pairs = [(token[:i], token[i:]) for i in range(1, len(token)) if token[:i] in vocab and token[i:] in vocab]
        merges += sorted(pairs, key=lambda p: (vocab[p[0]], vocab[p[1]])) if not token.startswith("<0x") else []
    document["model"]["merges"] = merges
    document["model"]["byte_fallback"] = True
    document["added_tokens"] = document["added_tokens"][:3]


def families():
    space = normalizers.Replace(" ", "\u2581")
    fallback = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    yield "gpt2", *byte_level([level(use_regex=True)])
    yield "qwen2", *byte_level([split(QWEN2), level()], nfc=True)
    yield "qwen35", *byte_level([split(QWEN35), level()], nfc=True)
    yield "llama3", *byte_level([split(LLAMA3), level()], ignore_merges=True)
    yield "tekken", *byte_level([split(TEKKEN), level()], ignore_merges=True)
    yield "o200k", *byte_level([split(O200K, "removed", True), level()])
    yield "smollm", *byte_level([pre_tokenizers.Digits(individual_digits=True), level(use_regex=True)])
    yield "deepseek_coder", *byte_level([split(r"[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"), split(CJK),
                                         pre_tokenizers.Digits(individual_digits=True), level()])
    yield "deepseek_v3", *byte_level([split(r"\p{N}{1,3}"), split("[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"),
                                      split(DEEPSEEK3), level()])
    yield "seed", *byte_level([split(SEED), level()])
    yield "laguna", *byte_level([split(r"[^\n]+|[\n]+"), split(QWEN2), level()])
    yield "tiny_aya", *byte_level([split(r"\d{1,3}(?=(?:\d{3})*\b)"), split(O200K), level()])
    yield "afmoe", *byte_level([split(r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))"), split(ASIAN), split(DEEPSEEK3), level()])
    yield "llama2", *spaced(normalizers.Sequence([normalizers.Prepend("\u2581"), space]),
                            decoders.Sequence([*fallback, decoders.Strip(" ", 1, 0)]))
    yield "gemma", *spaced(space, decoders.Sequence(fallback))


def make(name, tokenizer, trainer, text):
    tokenizer.train_from_iterator(text, trainer)
    document = json.loads(tokenizer.to_str())
    if document["model"]["unk_token"]:
        all_merges(document)
    n = max(document["model"]["vocab"].values()) + 1
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    for i, token in enumerate(ADDED + ["<think>", "</think>"]):
        document["added_tokens"].append({"id": n + i, "content": token, **flags, "special": token in ADDED})
    tokenizer = Tokenizer.from_str(json.dumps(document))
    cases = [{"text": s, "ids": tokenizer.encode(s, add_special_tokens=False).ids} for s in STRINGS + random_strings(60)]
    lines = ["  " + json.dumps(c, ensure_ascii=True) for c in cases]
    path = ROOT / "families" / f"{name}.json"
    path.write_text('{"tokenizer": ' + json.dumps(document, ensure_ascii=True, separators=(",", ":")) +
                    ',\n"cases": [\n' + ",\n".join(lines) + "\n]}\n")
    print(name, path.stat().st_size // 1024, "KiB", n, "tokens")


if __name__ == "__main__":
    # Not on strings with added tokens: one that the model itself learns would keep that id.
    lines = (ROOT / "alice.txt").read_text().splitlines(keepends=True)[:400]
    lines += 3 * [s for s in STRINGS if "<|" not in s and "think>" not in s]
    for family in families():
        if not sys.argv[1:] or family[0] in sys.argv[1:]:
            make(*family, lines)
