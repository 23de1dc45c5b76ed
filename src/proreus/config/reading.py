"""Bytes to plain data, as strictly as kube-scheduler reads them.

A file that begins with ``{`` is JSON, else YAML. YAML is read with the scalars of Go's YAML 1.1
(``on`` is true; ``1e3``, ``0x10`` and ``010`` are numbers; dates and ``1:30`` are texts), and what
comes out is what JSON could have said: keys are texts, whole floats are integers. A key that stands
twice in a mapping is an error.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

import yaml

from proreus.errors import ConfigError


def read(source: str | bytes) -> Any:
    """Parse JSON or YAML text; raises ``ConfigError`` with the line of the fault."""
    try:
        text = source.decode() if isinstance(source, bytes) else source
    except UnicodeDecodeError as error:
        raise ConfigError(f"the configuration is not UTF-8 text: {error}") from None
    return _read_json(text) if text.lstrip().startswith("{") else _read_yaml(text)


def _read_json(text: str) -> Any:
    repeated: list[str] = []

    def as_dict(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for key, value in pairs:
            if key in made:
                repeated.append(f'duplicate field "{key}"')
            made[key] = value
        return made

    try:
        data = json.loads(text, object_pairs_hook=as_dict)
    except json.JSONDecodeError as error:
        raise ConfigError(f"couldn't get version/kind; json parse error: {error}") from None
    _refuse(repeated)
    return data


def _read_yaml(text: str) -> Any:
    loader = _Loader(text)
    try:
        data = loader.get_single_data()
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise ConfigError(
            f"error converting YAML to JSON: yaml: {line}{error.problem or error.context}"
        ) from None
    except yaml.YAMLError as error:
        raise ConfigError(f"error converting YAML to JSON: yaml: {error}") from None
    finally:
        loader.dispose()
    if loader.repeated:
        _refuse(["yaml: unmarshal errors:\n" + "\n".join(loader.repeated)])
    return data


def _refuse(problems: list[str]) -> None:
    if problems:
        raise ConfigError("strict decoding error: " + ", ".join(problems))


class _Loader(yaml.SafeLoader):
    """SafeLoader with Go's scalars; notes repeated keys."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.repeated: list[str] = []

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        if isinstance(node, yaml.MappingNode):
            self._note_repeated(node)
            self.flatten_mapping(node)
        made: dict[str, Any] = {}
        for key_node, value_node in node.value:
            made[_key(self.construct_object(key_node, deep=True))] = self.construct_object(
                value_node, deep=True
            )
        return made

    def _note_repeated(self, node: yaml.MappingNode) -> None:
        seen: set[str] = set()
        for key_node, _ in node.value:
            if not isinstance(key_node, yaml.ScalarNode) or key_node.value == "<<":
                continue
            if key_node.value in seen:
                line = key_node.start_mark.line + 1
                self.repeated.append(f'  line {line}: key "{key_node.value}" already set in map')
            seen.add(key_node.value)


def _key(key: object) -> str:
    match key:
        case str():
            return key
        case bool():
            return str(key).lower()
        case int() | float():
            return str(key)
    raise ConfigError(
        "error converting YAML to JSON: yaml: a mapping key must be a text or a number"
    )


_INTEGER = re.compile(r"[-+]?(?:0b[01_]+|0x[0-9a-fA-F_]+|0o?[0-7_]+|0|[1-9][0-9_]*)$")
_FLOAT = re.compile(
    r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$|[-+]?\.(?:inf|Inf|INF)$|\.(?:nan|NaN|NAN)$"
)


def _integer(loader: _Loader, node: yaml.ScalarNode) -> int:
    text = node.value.replace("_", "").lower()
    sign = -1 if text.startswith("-") else 1
    digits = text.lstrip("+-")
    for prefix, base in (("0b", 2), ("0x", 16), ("0o", 8)):
        if digits.startswith(prefix):
            return sign * int(digits[2:], base)
    octal = len(digits) > 1 and digits.startswith("0")
    return sign * int(digits, 8 if octal else 10)


def _float(loader: _Loader, node: yaml.ScalarNode) -> float | int:
    text = node.value.lower()
    if text.lstrip("+-") in (".inf", ".nan"):
        raise ConfigError(f"error converting YAML to JSON: json: unsupported value: {node.value}")
    number = float(text)
    return int(number) if number.is_integer() and abs(number) < 1e21 else number


_KEPT_TAGS = ("tag:yaml.org,2002:bool", "tag:yaml.org,2002:merge", "tag:yaml.org,2002:null")
_Loader.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in resolvers if tag in _KEPT_TAGS]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:int", _INTEGER, list("-+0123456789"))
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+.0123456789"))
_Loader.add_constructor("tag:yaml.org,2002:int", _integer)
_Loader.add_constructor("tag:yaml.org,2002:float", _float)
