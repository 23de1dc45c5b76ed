"""Bytes to objects.

The fast path decodes typed Structs straight from JSON. Go takes an explicit null for an absent
field, msgspec does not: objects that contain one are decoded again without their nulls.
"""

from typing import Any, Generic, TypeVar

import msgspec

T = TypeVar("T")


class Decoder(Generic[T]):
    """Decodes JSON, or plain data, to one type; raises ``msgspec.ValidationError``."""

    def __init__(self, type_: type[T]) -> None:
        self._type = type_
        self._typed = msgspec.json.Decoder(type_)

    def decode(self, data: bytes | bytearray | memoryview | str) -> T:
        """Decode JSON text."""
        try:
            return self._typed.decode(data)
        except msgspec.ValidationError:
            return self.convert(msgspec.json.decode(data))

    def convert(self, data: Any) -> T:
        """Convert what a JSON or YAML parser made."""
        return msgspec.convert(without_nulls(data), self._type)


_decoders: dict[type, Decoder[Any]] = {}


def decoder_for(type_: type[T]) -> Decoder[T]:
    """Return the (shared) decoder of a type."""
    decoder = _decoders.get(type_)
    if decoder is None:
        decoder = _decoders[type_] = Decoder(type_)
    return decoder


def without_nulls(data: Any) -> Any:
    """Drop null fields, at every depth; nulls that are list items stay."""
    if isinstance(data, dict):
        return {key: without_nulls(value) for key, value in data.items() if value is not None}
    if isinstance(data, list):
        return [without_nulls(value) for value in data]
    return data
