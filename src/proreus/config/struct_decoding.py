"""Plain data to the Structs of ``structs``, with the errors of Go's decoder.

All values of wrong types are reported together, in the order of the data. An explicit null counts
as absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, get_args, get_origin

import msgspec

from proreus.base.errors import ConfigError
from proreus.config.field_errors import child, item
from proreus.config.structs import (
    ConfigStruct,
    Field,
    Scalar,
    WrongType,
    fields_of,
    json_type_name,
    scalar_of,
    without_none,
)

S = TypeVar("S", bound=ConfigStruct)


def decode_struct(struct: type[S], data: Mapping[str, Any]) -> tuple[S, tuple[str, ...]]:
    """Decode; return the Struct with the path of each unknown field, which is left out.

    Raises ``ConfigError`` with all values of wrong types.
    """
    decoder = _Decoder()
    decoded: S = decoder.struct(struct, data, _Place(struct))
    if decoder.problems:
        raise ConfigError(*decoder.problems)
    return decoded, tuple(decoder.unknown)


class _Place:
    """A place in the data. ``struct``: the innermost one around it, as Go's errors name it.

    ``path`` has indexes, and is that of unknown fields; ``names`` has none, since Go leaves them
    out where it reports a wrong type.
    """

    def __init__(self, struct: type[ConfigStruct], path: str = "", names: str = "") -> None:
        self.struct = struct
        self.path = path
        self.names = names

    def field(self, struct: type[ConfigStruct], name: str) -> _Place:
        return _Place(struct, child(self.path, name), child(self.names, name))

    def entry(self, key: str) -> _Place:
        return self.field(self.struct, key)

    def item(self, index: int) -> _Place:
        return _Place(self.struct, item(self.path, index), self.names)


class _Decoder:
    """Decodes one document. ``problems`` and ``unknown`` grow meanwhile.

    What a method returns for a value with a problem is not used.
    """

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.unknown: list[str] = []

    def struct(self, struct: type[ConfigStruct], data: Any, place: _Place) -> Any:
        if data is None:
            data = {}
        if not isinstance(data, Mapping):
            return self._wrong(place, json_type_name(data), struct.go_type)
        known = {field.alias: field for field in fields_of(struct)}
        values = {}
        for alias, value in data.items():
            field = known.get(alias)
            if field is None:
                # Go drops nulls only once it knows the field.
                self.unknown.append(child(place.path, alias))
            elif value is not None or _keeps_null(field):
                values[field.name] = self._value(field.type, value, place.field(struct, alias))
        for field in known.values():
            if field.required and field.name not in values:
                self.problems.append(f"{child(place.path, field.alias)}: Required value")
        return None if self.problems else struct(**values)

    def _value(self, annotation: Any, value: Any, place: _Place) -> Any:
        annotation = without_none(annotation)
        if (scalar := scalar_of(annotation)) is not None:
            return self._scalar(scalar, value, place)
        if isinstance(annotation, type) and issubclass(annotation, ConfigStruct):
            return self.struct(annotation, value, place)
        if get_origin(annotation) is tuple:
            return self._tuple(get_args(annotation)[0], value, place)
        if get_origin(annotation) is dict:
            return self._dict(get_args(annotation)[1], value, place)
        if annotation is Any:
            return _plain(value)
        # A field that out-of-tree code has added to arguments of an in-tree plugin.
        try:
            return msgspec.convert(_plain(value), annotation)
        except msgspec.ValidationError as error:
            self.problems.append(f"{place.path}: {error}")

    def _scalar(self, scalar: Scalar, value: Any, place: _Place) -> Any:
        try:
            return scalar.read(value)
        except WrongType as error:
            return self._wrong(place, error.got, error.wanted)
        except ConfigError as error:
            self.problems.extend(error.problems)
            return None

    def _tuple(self, annotation: Any, value: Any, place: _Place) -> Any:
        if not isinstance(value, (list, tuple)):
            return self._wrong(place, json_type_name(value), f"[]{_go_type(annotation)}")
        return tuple(
            self._value(annotation, one, place.item(index)) for index, one in enumerate(value)
        )

    def _dict(self, annotation: Any, value: Any, place: _Place) -> Any:
        if not isinstance(value, Mapping):
            return self._wrong(place, json_type_name(value), _go_type(annotation))
        return {key: self._value(annotation, one, place.entry(key)) for key, one in value.items()}

    def _wrong(self, place: _Place, got: str, wanted: str) -> None:
        struct = place.struct.go_type.rpartition(".")[2]
        self.problems.append(
            f"json: cannot unmarshal {got} into Go struct field {struct}.{place.names} "
            f"of type {wanted}"
        )


def _keeps_null(field: Field) -> bool:
    scalar = scalar_of(field.type)
    return scalar is not None and scalar.keeps_null


def _plain(value: Any) -> Any:
    """Return a copy of plain data in dicts and lists, as a YAML writer can write them."""
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return value


def _go_type(annotation: Any) -> str:
    if isinstance(annotation, type) and issubclass(annotation, ConfigStruct):
        return annotation.go_type
    return "string"
