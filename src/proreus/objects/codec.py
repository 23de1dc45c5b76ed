"""Bytes to objects.

The fast path decodes typed Structs straight from JSON. Go takes an explicit null for an absent
field, msgspec does not: objects that contain one are decoded again without their nulls. What
msgspec cannot read at all and Go can is decoded again after ``mending``.

msgspec raises more than its own errors (RecursionError for what nests deeply, UnicodeDecodeError
for odd bytes), and who talks to an apiserver must survive all of them: whatever is decoded here
fails with ``DecodeError`` and nothing else.
"""

from typing import Any, Generic, TypeVar

import msgspec

from proreus.objects.mending import Mended, mend

T = TypeVar("T")

DecodeError = msgspec.DecodeError
"""Bytes that are not what was expected; ``msgspec.ValidationError`` is one of these."""

UNDECODABLE = (ValueError, RecursionError, OverflowError)
"""What msgspec raises for input; all of its own errors are ValueErrors."""


class Decoder(Generic[T]):
    """Decodes JSON, or plain data, to one type; raises ``DecodeError``."""

    def __init__(self, type_: type[T]) -> None:
        self._type = type_
        self._typed = msgspec.json.Decoder(type_)
        self._by_text: bool | None = None

    def decode(self, data: bytes | bytearray | memoryview | str | msgspec.Raw) -> T:
        """Decode JSON text."""
        try:
            return self._typed.decode(data)
        except UNDECODABLE:
            pass
        text = data.encode(errors="surrogatepass") if isinstance(data, str) else bytes(data)
        try:
            return self._without_nulls(text)
        except msgspec.ValidationError as error:
            # The only one of these that mending helps: a number for which there is no type.
            if "out of range" not in str(error):
                raise
        except UNDECODABLE:
            pass
        return self.decode_mended(mend(text))

    def decode_mended(self, mended: Mended, part: bytes | msgspec.Raw | None = None) -> T:
        """Decode what was mended, or a part of it; what had to be taken out is put back."""
        text = mended.text if part is None else part
        try:
            try:
                return mended.restore(self._typed.decode(text))
            except msgspec.ValidationError:
                return mended.restore(self._without_nulls(text))
        except DecodeError:
            raise
        except UNDECODABLE as error:
            raise decode_error(error) from error

    def convert(self, data: Any) -> T:
        """Convert what a JSON or YAML parser made."""
        try:
            return self._converted(without_nulls(data))
        except DecodeError:
            raise
        except UNDECODABLE as error:
            raise decode_error(error) from error

    def _without_nulls(self, text: bytes | msgspec.Raw) -> T:
        return self._converted(without_nulls(msgspec.json.decode(text)))

    def _converted(self, data: Any) -> T:
        if self._by_text is None:
            self._by_text = _keeps_text(self._type)
        if self._by_text:  # msgspec.convert makes no Raw
            text = msgspec.json.encode(data)
            try:
                return self._typed.decode(text)
            except RecursionError:
                mended = mend(text)
                return mended.restore(self._typed.decode(mended.text))
        return msgspec.convert(data, self._type)


_decoders: dict[Any, Decoder[Any]] = {}


def decoder_for(type_: type[T]) -> Decoder[T]:
    """Return the (shared) decoder of a type."""
    decoder = _decoders.get(type_)
    if decoder is None:
        decoder = _decoders[type_] = Decoder(type_)
    return decoder


def decode_strictly(data: bytes | msgspec.Raw, type_: type[T]) -> T:
    """Decode what does not come from an apiserver, nulls where they are allowed alone.

    Raises ``DecodeError``.
    """
    try:
        return msgspec.json.decode(data, type=type_)
    except DecodeError:
        raise
    except UNDECODABLE as error:
        raise decode_error(error) from error


def decode_error(error: Exception) -> DecodeError:
    """Return the one error of this module for another one that msgspec raised."""
    if isinstance(error, RecursionError):
        return DecodeError("values nest too deeply")
    return DecodeError(str(error))


def to_plain(obj: Any) -> Any:
    """Return an object as plain data, as ``msgspec.to_builtins``, with the text fields decoded.

    Where a text nests too deeply for Python it stays ``msgspec.Raw``, which is encoded as it is.
    """
    try:
        return msgspec.to_builtins(obj)
    except TypeError:  # it knows no Raw
        pass
    mended = mend(msgspec.json.encode(obj))
    return mended.restore(msgspec.json.decode(mended.text))


def without_nulls(data: Any) -> Any:
    """Drop null fields, at every depth; nulls that are list items stay."""
    top = [data]
    waiting: list[dict[str, Any] | list[Any]] = [top]
    while waiting:  # not by recursion: data may nest deeper than Python's stack
        parent = waiting.pop()
        places = list(parent.items()) if isinstance(parent, dict) else list(enumerate(parent))
        for place, value in places:
            new: dict[str, Any] | list[Any]
            if isinstance(value, dict):
                new = {key: item for key, item in value.items() if item is not None}
            elif isinstance(value, list):
                new = list(value)
            else:
                continue
            parent[place] = new  # type: ignore[index]
            waiting.append(new)
    return top[0]


def _keeps_text(type_: Any) -> bool:
    """Tell whether some field of a type, at any depth, is JSON text."""
    known: set[int] = set()
    waiting: list[Any] = [msgspec.inspect.type_info(type_)]
    while waiting:
        one = waiting.pop()
        if isinstance(one, msgspec.inspect.RawType):
            return True
        if isinstance(one, list | tuple):
            waiting += one
        elif isinstance(one, msgspec.inspect.Type | msgspec.inspect.Field) and id(one) not in known:
            known.add(id(one))
            waiting += [getattr(one, name) for name in one.__struct_fields__]
    return False
