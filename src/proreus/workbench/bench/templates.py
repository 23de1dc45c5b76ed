"""Templates of API objects: YAML with Go's text/template, as in scheduler_perf.

Values are ``{{.Index}}``, ``{{.Count}}`` and the parameters that an operation gives its template.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from proreus.base.errors import ConfigError
from proreus.config.reading import read
from proreus.workbench.bench.text_template import TextTemplate

JsonObject = dict[str, Any]

_FREE_FORM = frozenset(
    (
        *("labels", "annotations", "matchLabels", "nodeSelector", "selector", "data", "stringData"),
        *("requests", "limits", "capacity", "allocatable", "overhead", "attributes", "counters"),
        "consumesCounters",
    )
)
"""Fields whose keys are data and not field names of the API."""


class Template:
    """One template file; raises ``ConfigError`` if it cannot be read or parsed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._text = TextTemplate(path.read_text())
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror}") from error
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from None

    @property
    def static(self) -> bool:
        """Whether it has no actions, so that all its objects are the same."""
        return self._text.static

    def object(
        self, index: int = 0, count: int = 1, parameters: Mapping[str, Any] | None = None
    ) -> JsonObject:
        """Return a new object, number ``index`` of ``count``; raises ``ConfigError``."""
        values = {**(parameters or {}), "Index": index, "Count": count}
        try:
            document = read(self._text.render(values))
        except ConfigError as error:
            raise ConfigError(f"{self.path}: {error}") from None
        if document.strict_errors:
            raise ConfigError(*(f"{self.path}: {problem}" for problem in document.strict_errors))
        made = document.data
        if not isinstance(made, dict) or not made.get("kind") or not made.get("apiVersion"):
            raise ConfigError(f"{self.path}: must be an object with apiVersion and kind")
        return dict(_with_json_field_names(made))


DEFAULT_NODE, DEFAULT_POD = (
    Template(Path(__file__).with_name(f"default-{kind}.yaml")) for kind in ("node", "pod")
)
"""The templates of operations that name none."""


@lru_cache(maxsize=256)
def template_of(path: Path) -> Template:
    """Return the template of a file, read only once."""
    return Template(path)


def _with_json_field_names(value: Any) -> Any:
    """Return a value with field names in lower camelCase.

    Go decodes them regardless of case, but the apiserver would drop those in upper case.
    """
    if isinstance(value, dict):
        return dict(_fields(value))
    if isinstance(value, list):
        return [_with_json_field_names(item) for item in value]
    return value


def _fields(fields: JsonObject) -> Iterator[tuple[str, Any]]:
    for name, value in fields.items():
        if name in _FREE_FORM:
            yield name, value
        elif name[:1].isupper():
            yield name[0].lower() + name[1:], _with_json_field_names(value)
        else:
            yield name, _with_json_field_names(value)
