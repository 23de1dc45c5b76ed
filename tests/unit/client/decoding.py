"""Decodes lines and lists that are small enough to be decoded at once."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

from proreus.client.watching.watch import Batch, EventDecoder, ListDecoder, Page

T = TypeVar("T", bound=Any)


def decode(decoder: EventDecoder[T], lines: list[bytes]) -> Batch[T]:
    """Return the only batch of lines; nothing is awaited for it."""
    try:
        decoder.batches(lines).__anext__().send(None)
    except StopIteration as end:
        batch: Batch[T] = end.value
        return batch
    raise AssertionError("a line is long")


def decode_page(decoder: ListDecoder[T], body: bytes) -> Page[T]:
    """Return a page of a list."""
    return asyncio.run(decoder.page(body))
