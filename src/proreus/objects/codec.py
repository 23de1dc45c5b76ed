"""Decodes API objects.

The fast path decodes typed Structs straight from JSON. Go treats an explicit null as an absent
field, msgspec does not: objects that contain one are decoded again without their nulls. JSON that
Go can decode and msgspec cannot is repaired (``json_repair``) and decoded again.

msgspec raises more than its own errors (RecursionError for deep nesting, UnicodeDecodeError for
invalid UTF-8). All functions here raise ``DecodeError`` alone, so that callers handle one error.
"""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

import msgspec

from proreus.objects.json_repair import RepairedJson, repair_json

T = TypeVar("T")

DecodeError = msgspec.DecodeError
"""The one error of this module; ``msgspec.ValidationError`` is a subclass."""

UNDECODABLE = (ValueError, RecursionError, OverflowError)
"""The exceptions that msgspec raises for invalid input; its own are ValueErrors."""


_making = threading.Lock()


def typed_decoder(type_: type[T]) -> msgspec.json.Decoder[T]:
    """Return a decoder of msgspec, from any thread."""
    # msgspec registers what it knows of a Struct before it knows all of its fields. Another thread
    # that made a decoder meanwhile would read null pointers, and the process would crash.
    with _making:
        return msgspec.json.Decoder(type_)


class Decoder(Generic[T]):
    """Decodes JSON, or plain data, to one type; raises ``DecodeError``."""

    def __init__(self, type_: type[T]) -> None:
        self._type = type_
        self.typed = typed_decoder(type_)
        self._by_text: bool | None = None

    def decode(self, data: bytes | bytearray | memoryview | str | msgspec.Raw) -> T:
        """Decode JSON text."""
        try:
            return self.typed.decode(data)
        except UNDECODABLE:
            pass
        text = data.encode(errors="surrogatepass") if isinstance(data, str) else bytes(data)
        try:
            return self._without_nulls(text)
        except msgspec.ValidationError as error:
            # Of all validation errors, repair helps only with a number that is out of range.
            if "out of range" not in str(error):
                raise
        except UNDECODABLE:
            pass
        return self.decode_repaired(repair_json(text))

    def decode_repaired(self, repaired: RepairedJson, part: bytes | msgspec.Raw | None = None) -> T:
        """Decode repaired JSON, or a part of it, and restore the pieces that were cut out."""
        text = repaired.text if part is None else part
        with _decode_errors():
            try:
                return repaired.restore(self.typed.decode(text))
            except msgspec.ValidationError:
                return repaired.restore(self._without_nulls(text))

    def convert(self, data: Any) -> T:
        """Convert plain data from a JSON or YAML parser."""
        with _decode_errors():
            return self._converted(without_nulls(data))

    def _without_nulls(self, text: bytes | msgspec.Raw) -> T:
        return self._converted(without_nulls(msgspec.json.decode(text)))

    def _converted(self, data: Any) -> T:
        if self._by_text is None:
            self._by_text = _keeps_text(self._type)
        if self._by_text:  # msgspec.convert makes no Raw
            text = msgspec.json.encode(data)
            try:
                return self.typed.decode(text)
            except RecursionError:
                repaired = repair_json(text)
                return repaired.restore(self.typed.decode(repaired.text))
        return msgspec.convert(data, self._type)


_decoders: dict[Any, Decoder[Any]] = {}


def decoder_for(type_: type[T]) -> Decoder[T]:
    """Return the (shared) decoder of a type."""
    decoder = _decoders.get(type_)
    if decoder is None:
        decoder = _decoders[type_] = Decoder(type_)
    return decoder


def decode_strictly(data: bytes | msgspec.Raw, type_: type[T]) -> T:
    """Decode without tolerating nulls, for input that does not come from an apiserver.

    Raises ``DecodeError``.
    """
    with _decode_errors():
        return decoder_for(type_).typed.decode(data)


@contextmanager
def _decode_errors() -> Iterator[None]:
    """Raise ``DecodeError`` for other exceptions of msgspec."""
    try:
        yield
    except DecodeError:
        raise
    except UNDECODABLE as error:
        raise decode_error(error) from error


def decode_error(error: Exception) -> DecodeError:
    """Return a ``DecodeError`` for another exception that msgspec raised."""
    if isinstance(error, RecursionError):
        return DecodeError("values nest too deeply")
    return DecodeError(str(error))


def describe(error: Exception) -> str:
    """Return the text of an error in one line, with the field in front if msgspec names one."""
    text = " ".join(str(error).split())
    match = _AT.fullmatch(text)
    if match is None:
        return text
    return f"{match['field']}: {match['text']}" if match["field"] else match["text"]


_AT = re.compile(r"(?P<text>.*) - at `\$\.?(?P<field>.*)`")


def to_plain(obj: Any) -> Any:
    """Return an object as plain data, as ``msgspec.to_builtins``, with ``Raw`` fields decoded.

    Values that nest too deeply for Python stay ``msgspec.Raw``, which is encoded unchanged.
    """
    try:
        return msgspec.to_builtins(obj)
    except TypeError:  # to_builtins does not support Raw
        pass
    repaired = repair_json(msgspec.json.encode(obj))
    return repaired.restore(msgspec.json.decode(repaired.text))


def without_nulls(data: Any) -> Any:
    """Return data without null fields, at every depth; nulls in lists stay."""
    # Without recursion, which Python's stack limits.
    top = [data]
    waiting: list[dict[str, Any] | list[Any]] = [top]
    while waiting:
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
    """Return whether some field of a type, at any depth, is a ``msgspec.Raw``."""
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
