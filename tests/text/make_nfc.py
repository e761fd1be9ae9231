#!/usr/bin/env python3
# Writes nfc.json: texts and their NFC by Python's unicodedata, as UTF-8 in hexadecimal.
# Every character that NFC changes, and random rows of marks, jamo, syllables and what they join to.
import json
import pathlib
import random
import unicodedata

random.seed(7)
points = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
changed = [c for c in points if unicodedata.normalize("NFC", c) != c]
marks = [c for c in points if unicodedata.combining(c)]
bases = list("aeioucnADKsz 1") + ["\u0915", "\u09c7", "\u0b47", "\u1100", "\u1112", "\uac00", "\uac01", "\ud7a3", "\u1b05"]
joins = marks + [chr(c) for c in (0x9BE, 0xB3E, 0x1161, 0x1175, 0x11A7, 0x11A8, 0x11C2, 0x1B35)]
usual = [chr(c) for c in range(0x300, 0x330)] + joins[-8:]
texts = changed[:]
for _ in range(700):
    pick = usual if random.random() < 0.7 else joins
    text = ""
    for _ in range(random.randint(1, 4)):
        base = random.choice(bases) if random.random() < 0.9 else random.choice(changed)
        text += base + "".join(random.choice(pick) for _ in range(random.randint(0, 4)))
    texts.append(text)
rows = [[t.encode().hex(), unicodedata.normalize("NFC", t).encode().hex()] for t in texts]
pathlib.Path(__file__).with_name("nfc.json").write_text(json.dumps(rows) + "\n")
