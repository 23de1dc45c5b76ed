"""Parses JSON and YAML to plain data as kube-scheduler does.

A file that begins with ``{`` is JSON, else YAML. YAML scalars are those of Go's YAML 1.1 (``on`` is
true; ``1e3``, ``0x10`` and ``010`` are numbers; dates and ``1:30`` are strings), and the result is
equivalent to JSON: keys are strings, floats without a fraction are integers. Duplicate keys in a
mapping are reported.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import yaml
from msgspec import Struct

from proreus.base import yaml_limits
from proreus.base.errors import ConfigError
from proreus.config.field_errors import child, item

_TOO_DEEP = "nested too deep"


class Document(Struct, frozen=True):
    """Parsed data; ``strict_errors`` report duplicate keys, of which the last one counts."""

    data: Any
    strict_errors: tuple[str, ...] = ()


def read(source: str | bytes) -> Document:
    """Parse JSON, or the first YAML document; raises ``ConfigError`` with the error's line."""
    try:
        text = source.decode() if isinstance(source, bytes) else source
    except UnicodeDecodeError as error:
        raise ConfigError(f"the configuration is not UTF-8 text: {error}") from None
    try:
        return _read_json(text) if text.lstrip().startswith("{") else _read_yaml(text)
    except ConfigError as error:
        error.remedy = template_remedy(text)
        raise


def template_remedy(text: str) -> str:
    """Return the remedy for a template of Helm that was not rendered; "" for another text."""
    found = _TEMPLATE.search(text)
    if found is None:
        return ""
    line = text.count("\n", 0, found.start()) + 1
    return f"line {line}: write what `helm template` makes of this template"


_TEMPLATE = re.compile(r"\{\{-? *(?:[.$]|(?:if|with|range|include|define|template|toYaml|end)\b)")


def _read_json(text: str) -> Document:
    try:
        data = json.loads(text, object_pairs_hook=_DuplicateTrackingDict)
        return Document(data, tuple(_repeated_fields(data, "")))
    # ValueError: a JSONDecodeError, or a number of more digits than Python converts.
    except ValueError as error:
        raise ConfigError(f"couldn't get version/kind; json parse error: {error}") from None
    except RecursionError:
        raise ConfigError(f"couldn't get version/kind; json parse error: {_TOO_DEEP}") from None


class _DuplicateTrackingDict(dict[str, Any]):
    """A dict that records duplicate keys."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        seen: set[str] = set()
        self.repeated = [key for key, _ in pairs if key in seen or seen.add(key)]  # type: ignore[func-returns-value]


def _repeated_fields(data: Any, path: str) -> Iterator[str]:
    if isinstance(data, _DuplicateTrackingDict):
        for key in data.repeated:
            yield f'duplicate field "{child(path, key)}"'
        for key, value in data.items():
            yield from _repeated_fields(value, child(path, key))
    elif isinstance(data, list):
        for index, value in enumerate(data):
            yield from _repeated_fields(value, item(path, index))


def _read_yaml(text: str) -> Document:
    try:
        yaml_limits.check(text.encode())
        loader = _Loader(text)
        try:
            data = loader.get_data()
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise ConfigError(f"yaml: {line}{error.problem or error.context}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"yaml: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise ConfigError(f"yaml: {_TOO_DEEP}") from None
    if not loader.repeated:
        return Document(data)
    return Document(data, ("yaml: unmarshal errors:\n" + "\n".join(loader.repeated),))


class _Loader(yaml.SafeLoader):
    """SafeLoader with Go's scalars; records duplicate keys."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.repeated: list[str] = []

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        if isinstance(node, yaml.MappingNode):
            self._record_repeated(node)
            self.flatten_mapping(node)
        made: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = _key(self.construct_object(key_node, deep=True))
            made[key] = self.construct_object(value_node, deep=True)
        return dict(sorted(made.items()))

    def construct_undefined(self, node: yaml.Node) -> Any:
        """Ignore unknown tags."""
        if isinstance(node, yaml.SequenceNode):
            return self.construct_sequence(node, deep=True)
        if isinstance(node, yaml.MappingNode):
            return self.construct_mapping(node)
        assert isinstance(node, yaml.ScalarNode)
        return self.construct_scalar(node)

    def _record_repeated(self, node: yaml.MappingNode) -> None:
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
    raise ConfigError("yaml: a mapping key must be a text or a number")


_BOOLEAN = re.compile(
    "(?:[yYnN]|yes|Yes|YES|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF)$"
)
_INTEGER = re.compile(r"[-+]?(?:0b[01_]+|0x[0-9a-fA-F_]+|0o?[0-7_]+|0|[1-9][0-9_]*)$")
_FLOAT = re.compile(
    r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$|[-+]?\.(?:inf|Inf|INF)$|\.(?:nan|NaN|NAN)$"
)


def _integer(loader: _Loader, node: yaml.ScalarNode) -> float | int:
    text = node.value.replace("_", "").lower()
    sign = -1 if text.startswith("-") else 1
    digits = text.lstrip("+-")
    for prefix, base in (("0b", 2), ("0x", 16), ("0o", 8)):
        if digits.startswith(prefix):
            return sign * int(digits[2:], base)
    octal = len(digits) > 1 and digits.startswith("0")
    number = sign * int(digits, 8 if octal else 10)
    return number if -(2**63) <= number < 2**64 else _whole(float(number))


def _float(loader: _Loader, node: yaml.ScalarNode) -> float | int:
    text = node.value.lower()
    if text.lstrip("+-") in (".inf", ".nan"):
        raise ConfigError(f"json: unsupported value: {node.value}")
    return _whole(float(text))


def _whole(number: float) -> float | int:
    """Return a float as Go writes it to JSON: as an integer if it has no fraction."""
    return int(number) if number.is_integer() and abs(number) < 1e21 else number


def _boolean(loader: _Loader, node: yaml.ScalarNode) -> bool:
    return node.value.lower() in ("y", "yes", "true", "on")


_KEPT_TAGS = ("tag:yaml.org,2002:merge", "tag:yaml.org,2002:null")
_Loader.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in resolvers if tag in _KEPT_TAGS]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
SCALARS = (
    ("tag:yaml.org,2002:bool", _BOOLEAN, list("yYnNtTfFoO")),
    ("tag:yaml.org,2002:int", _INTEGER, list("-+0123456789")),
    ("tag:yaml.org,2002:float", _FLOAT, list("-+.0123456789")),
)
"""Plain scalars that are not strings: tag, pattern, first characters."""

for _scalar in SCALARS:
    _Loader.add_implicit_resolver(*_scalar)
_Loader.add_constructor("tag:yaml.org,2002:bool", _boolean)
_Loader.add_constructor("tag:yaml.org,2002:int", _integer)
_Loader.add_constructor("tag:yaml.org,2002:float", _float)
_Loader.add_constructor(None, _Loader.construct_undefined)
