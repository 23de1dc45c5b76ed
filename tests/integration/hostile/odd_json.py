"""JSON in fields that we skip: the apiserver passes it on, Python's ``json`` would not write it."""

from __future__ import annotations

import json
import random
from typing import Any

_MARK = "\x00odd json\x00"
"""Stands for one of ``ODD_JSON`` in an object."""

ODD_JSON = [
    b"null", b'"\xff\xfe"', rb'"\ud800"', rb'"\udc00\ud800"', b"1e400", b"-1e400", b"9" * 400,
    b"[" * 2_000 + b"]" * 2_000, b'{"a":' * 3_000 + b"1" + b"}" * 3_000, b"[null,[null]]",
    b'{"":{"":null}}', b"1.0000000000000000000000000001", b'"' + b"\\u0041" * 2_000 + b'"',
]  # fmt: skip


def odd_json(rng: random.Random) -> str:
    """Return what stands for one of ``ODD_JSON``, as a value of an object."""
    return f"{_MARK}{rng.randrange(len(ODD_JSON))}{_MARK}"


def encode(obj: Any, *, ensure_ascii: bool = False) -> bytes:
    """Return the JSON of an object, each ``odd_json`` as it is."""
    text = json.dumps(obj, ensure_ascii=ensure_ascii).encode(errors="surrogatepass")
    for number, odd in enumerate(ODD_JSON):
        text = text.replace(json.dumps(f"{_MARK}{number}{_MARK}").encode(), odd)
    return text
