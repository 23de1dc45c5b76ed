"""Label and field selectors of query parameters, parsed once per request or watch.

A selector reads only what a ``StoredObject`` keeps decoded (labels and the values of the selectable
fields), so matching never decodes an object.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from proreus.base.errors import ProreusError
from proreus.objects.selectors import (
    EVERYTHING,
    LabelSelectorRequirement,
    SelectorError,
    parse_requirement,
)
from proreus.objects.selectors import Selector as LabelSelector
from proreus.workbench.sandbox.api_errors import bad_request

ALWAYS_SELECTABLE = ("metadata.name", "metadata.namespace")

_SETS = re.compile(r"(?P<key>[^\s,()=!<>]+)\s+(?P<op>in|notin)\s*\((?P<values>[^()]*)\)")
_COMPARED = re.compile(r"(?P<key>[^\s,()=!<>]+)\s*(?P<op>==|=|!=|>|<)\s*(?P<value>[^\s,()=!<>]*)")
_PRESENT = re.compile(r"(?P<absent>!?)\s*(?P<key>[^\s,()=!<>]+)")
_COMMA = re.compile(r"\s*(,\s*|$)")
_OPERATORS = {"in": "In", "notin": "NotIn", "=": "In", "==": "In", "!=": "NotIn"} | {
    ">": "Gt",
    "<": "Lt",
}


@dataclass(frozen=True, slots=True)
class SelectionPredicate:
    """Labels and fields that must match; ``fields`` are (index, value, whether equal)."""

    labels: LabelSelector = EVERYTHING
    fields: tuple[tuple[int, str, bool], ...] = ()

    @property
    def everything(self) -> bool:
        """Whether all objects are selected."""
        return not self.fields and self.labels.empty

    def matches(self, labels: Mapping[str, str], fields: tuple[str, ...]) -> bool:
        """Return whether an object with these labels and field values is selected."""
        for index, value, equal in self.fields:
            if (fields[index] == value) is not equal:
                return False
        return self.labels.empty or self.labels.matches(labels)

    def equal_to(self, index: int) -> str | None:
        """Return the value that the field at ``index`` must have, or None."""
        return next((v for i, v, equal in self.fields if equal and i == index), None)


ALL = SelectionPredicate()


def parse_selector(labels: str, fields: str, selectable: tuple[str, ...]) -> SelectionPredicate:
    """Parse ``labelSelector`` and ``fieldSelector``; raises ``StatusError`` 400.

    ``selectable``: the field paths, in the order of ``StoredObject.fields``.
    """
    if not labels and not fields:
        return ALL
    return SelectionPredicate(parse_labels(labels), parse_fields(fields, selectable))


def parse_labels(text: str) -> LabelSelector:
    """Parse ``a=b,c!=d,e in (x,y),f notin (z),g,!h``; raises ``StatusError`` 400."""
    requirements = []
    position = 0
    text = text.strip()
    try:
        while position < len(text):
            expression, position = _next_expression(text, position)
            requirements.append(parse_requirement(expression, numeric=True))
            comma = _COMMA.match(text, position)
            if comma is None:
                raise SelectorError(f"found {text[position:]!r}, expected: ',' or the end")
            position = comma.end()
    except (SelectorError, ProreusError) as error:
        raise bad_request(f"unable to parse requirement: {error}") from None
    return LabelSelector(tuple(requirements))


def _next_expression(text: str, position: int) -> tuple[LabelSelectorRequirement, int]:
    if match := _SETS.match(text, position):
        values = tuple(value.strip() for value in match["values"].split(","))
        operator = _OPERATORS[match["op"]]
    elif match := _COMPARED.match(text, position):
        values, operator = (match["value"],), _OPERATORS[match["op"]]
    elif match := _PRESENT.match(text, position):
        values, operator = (), "DoesNotExist" if match["absent"] else "Exists"
    else:
        raise SelectorError(f"found {text[position:]!r}, expected: identifier")
    expression = LabelSelectorRequirement(key=match["key"], operator=operator, values=values)
    return expression, match.end()


def parse_fields(text: str, selectable: tuple[str, ...]) -> tuple[tuple[int, str, bool], ...]:
    """Parse ``a=b,c==d,e!=f``, with ``, = \\`` in values escaped by a backslash.

    Returns (index, value, whether equal) of each term; raises ``StatusError`` 400.
    """
    found = []
    for term in re.split(r"(?<!\\),", text):
        if not term.strip():
            continue
        match = re.fullmatch(r"\s*([^=!\s]+?)\s*(!=|==|=)(.*)", term, re.DOTALL)
        if match is None:
            raise bad_request(
                f"invalid field selector: {text}; can't understand '{term}': "
                "expected field=value, field==value or field!=value"
            )
        field, operator, value = match.groups()
        if field not in selectable:
            raise bad_request(f"field label not supported: {field}")
        value = re.sub(r"\\([\\,=])", r"\1", value)
        found.append((selectable.index(field), value, operator != "!="))
    return tuple(found)
