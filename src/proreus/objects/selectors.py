"""Label selectors and node selectors, parsed once and matched often.

Parsed ones are Structs: one pod may have 24,000 requirements, and frozen dataclasses take several
times as long to make, and are walked by the garbage collector.

Parsing makes the checks of the API's own parsers and raises ``SelectorError``; callers decide
whether that is an error or means no match. Parsed selectors are hashable, so that results over many
objects can be cached by selector.
"""

import re
from collections.abc import Mapping
from functools import lru_cache

import msgspec

from proreus.base.bounded_cache import BoundedCache, cleared_with_age
from proreus.base.errors import ProreusError
from proreus.objects.meta import ApiStruct


class SelectorError(ProreusError):
    """A selector that the API's parser refuses."""


class LabelSelectorRequirement(ApiStruct, frozen=True):
    """One expression; the operators are In, NotIn, Exists, DoesNotExist (nodes: also Gt, Lt)."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class LabelSelector(ApiStruct, frozen=True):
    """metav1.LabelSelector."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[LabelSelectorRequirement, ...] = ()


class NodeSelectorTerm(ApiStruct, frozen=True):
    """Expressions over labels and fields, all of which must match."""

    match_expressions: tuple[LabelSelectorRequirement, ...] = ()
    match_fields: tuple[LabelSelectorRequirement, ...] = ()


class NodeSelector(ApiStruct, frozen=True):
    """Terms, at least one of which must match."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class PreferredSchedulingTerm(ApiStruct, frozen=True):
    """A term that adds ``weight`` to the score of matching nodes."""

    weight: int = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


NAME = r"(?:[A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_DNS_LABEL = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
DNS_SUBDOMAIN = rf"{_DNS_LABEL}(?:\.{_DNS_LABEL})*"
MAX_PREFIX_LENGTH, MAX_NAME_LENGTH = 253, 63
"""Of the two parts of a qualified name: ``DNS_SUBDOMAIN`` and ``NAME``."""
_NAME = re.compile(NAME)
_QUALIFIED_NAME = re.compile(rf"(?:{DNS_SUBDOMAIN}/)?{NAME}")
_INT64 = range(-(2**63), 2**63)
_INT64_DIGITS = 19


@cleared_with_age
@lru_cache(maxsize=4096)
def is_qualified_name(name: str) -> bool:
    """Return whether a name has the form ``[prefix/]name`` of label keys and resources."""
    if _QUALIFIED_NAME.fullmatch(name) is None:
        return False
    if len(name) <= MAX_NAME_LENGTH:
        return True
    prefix, _, rest = name.rpartition("/")
    return len(prefix) <= MAX_PREFIX_LENGTH and len(rest) <= MAX_NAME_LENGTH


def is_label_value(value: str) -> bool:
    """Return whether a text is a valid label value."""
    return not value or (len(value) <= 63 and _NAME.fullmatch(value) is not None)


def parse_int64(text: str) -> int | None:
    """Parse as Go's ``strconv.ParseInt(text, 10, 64)`` does."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    # No text of thousands of digits, which ``int`` refuses; zeros in front are allowed.
    if not digits.isascii() or not digits.isdigit() or len(digits.lstrip("0")) > _INT64_DIGITS:
        return None
    number = int(digits.lstrip("0") or "0")
    number = -number if text[0] == "-" else number
    return number if number in _INT64 else None


def parse_count(text: str) -> int | None:
    """Parse a number as ``parse_int64`` does; None for a negative one, too."""
    number = parse_int64(text)
    return number if number is not None and number >= 0 else None


class Requirement(msgspec.Struct, frozen=True, gc=False):
    """One parsed expression over labels: ``key``, ``operator``, ``values``.

    Operators: In, NotIn, Exists, DoesNotExist, Gt, Lt.
    """

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether labels match."""
        return self.matches_value(labels.get(self.key))

    def matches_value(self, value: str | None) -> bool:
        """Return whether a value of the label (None if absent) matches."""
        match self.operator:
            case "In":
                return value is not None and value in self.values
            case "NotIn":
                return value is None or value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
        number = None if value is None else parse_int64(value)
        if number is None:
            return False
        (bound,) = self.values
        return number > int(bound) if self.operator == "Gt" else number < int(bound)


def parse_requirement(expression: LabelSelectorRequirement, numeric: bool = False) -> Requirement:
    """Check one expression; ``numeric`` allows Gt and Lt, as node selectors do."""
    key, operator, values = expression.key, expression.operator, expression.values
    match operator:
        case "In" | "NotIn":
            valid = len(values) > 0
        case "Exists" | "DoesNotExist":
            valid = not values
        case "Gt" | "Lt" if numeric:
            valid = len(values) == 1 and parse_int64(values[0]) is not None
        case _:
            raise SelectorError(f'"{operator}" is not a valid label selector operator')
    if not valid:
        raise SelectorError(
            f"values {list(values)} do not go with operator {operator} (key {key!r})"
        )
    if not is_qualified_name(key):
        raise SelectorError(f"key {key!r} is not a qualified name")
    for value in values:
        if not is_label_value(value):
            raise SelectorError(f"value {value!r} of key {key!r} is not a valid label value")
    return Requirement(key, operator, frozenset(values))


def _equality(key: str, value: str) -> Requirement:
    if is_qualified_name(key) and is_label_value(value):
        return Requirement(key, "In", frozenset((value,)))
    return parse_requirement(LabelSelectorRequirement(key=key, operator="In", values=(value,)))


class Selector(msgspec.Struct, frozen=True, gc=False):
    """A selector whose ``requirements`` must all match; with ``nothing`` it matches no object."""

    requirements: tuple[Requirement, ...] = ()
    nothing: bool = False

    @property
    def empty(self) -> bool:
        """Whether the selector has no requirements and so matches everything."""
        return not self.requirements and not self.nothing

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether an object with these labels is selected."""
        if self.nothing:
            return False
        if len(self.requirements) > _MANY_REQUIREMENTS:
            return _by_key_of(self).matches(labels)
        for requirement in self.requirements:
            if not requirement.matches_value(labels.get(requirement.key)):
                return False
        return True


_MANY_REQUIREMENTS = 64
_BYTES_A_REQUIREMENT = 200


class _RequirementsByKey:
    """The requirements of a selector that has thousands, of which few are about an object."""

    __slots__ = ("_by_key", "_needed")

    def __init__(self, requirements: tuple[Requirement, ...]) -> None:
        self._by_key: dict[str, list[Requirement]] = {}
        for one in requirements:
            self._by_key.setdefault(one.key, []).append(one)
        self._needed = {one.key for one in requirements if not one.matches_value(None)}

    def matches(self, labels: Mapping[str, str]) -> bool:
        if not self._needed <= labels.keys():
            return False
        return all(
            one.matches_value(labels[key])
            for key in labels.keys() & self._by_key.keys()
            for one in self._by_key[key]
        )


_by_key: BoundedCache[int, tuple[Selector, _RequirementsByKey]] = BoundedCache(16 * 2**20)


def _by_key_of(selector: Selector) -> _RequirementsByKey:
    # An id may be reused after that object is gone, hence the entry holds it.
    known = _by_key.get(id(selector))
    if known is None or known[0] is not selector:
        requirements = selector.requirements
        size_bytes = _BYTES_A_REQUIREMENT * len(requirements)
        known = _by_key.put(id(selector), (selector, _RequirementsByKey(requirements)), size_bytes)
    return known[1]


NOTHING = Selector(nothing=True)
EVERYTHING = Selector()


def parse_label_selector(selector: LabelSelector | None) -> Selector:
    """Parse metav1.LabelSelector; None selects nothing, an empty selector everything."""
    if selector is None:
        return NOTHING
    requirements = [_equality(key, value) for key, value in sorted(selector.match_labels.items())]
    requirements += [parse_requirement(expression) for expression in selector.match_expressions]
    return Selector(tuple(requirements))


def selector_of_map(labels: Mapping[str, str] | None) -> Selector:
    """Return the selector of a plain map (nodeSelector, Service): equality, unvalidated."""
    items = sorted((labels or {}).items())
    return Selector(tuple(Requirement(key, "In", frozenset((value,))) for key, value in items))


class ParsedNodeTerm(msgspec.Struct, frozen=True, gc=False):
    """A node selector term; ``error``: its parse error, if any."""

    labels: Selector
    fields: tuple[tuple[str, str, str], ...] = ()
    error: str | None = None

    def matches(self, labels: Mapping[str, str], name: str) -> bool:
        """Return whether a node matches; fields are evaluated only if the node has a name."""
        if self.error is not None or not self.labels.matches(labels):
            return False
        return not name or self.matches_name(name)

    def matches_name(self, name: str) -> bool:
        """Return whether the field expressions match a node name."""
        return all((name == value) == (operator == "In") for _, operator, value in self.fields)


_NAME_FIELD = "metadata.name"


def _parse_node_term(term: NodeSelectorTerm) -> ParsedNodeTerm:
    try:
        labels = tuple(parse_requirement(e, numeric=True) for e in term.match_expressions)
        fields = tuple(_parse_field(e) for e in term.match_fields)
    except SelectorError as error:
        return ParsedNodeTerm(NOTHING, error=str(error))
    # An apiserver refuses other fields. Nodes have none, so their value is empty.
    others = [(operator, value) for key, operator, value in fields if key != _NAME_FIELD]
    if not all((value == "") == (operator == "In") for operator, value in others):
        return ParsedNodeTerm(NOTHING)
    return ParsedNodeTerm(Selector(labels), tuple(one for one in fields if one[0] == _NAME_FIELD))


def _parse_field(expression: LabelSelectorRequirement) -> tuple[str, str, str]:
    if expression.operator not in ("In", "NotIn"):
        raise SelectorError(f'"{expression.operator}" is not a valid node selector operator')
    if len(expression.values) != 1:
        raise SelectorError(
            f"values {list(expression.values)}: a field takes one value with {expression.operator}"
        )
    return expression.key, expression.operator, expression.values[0]


class ParsedNodeSelector(msgspec.Struct, frozen=True, gc=False):
    """Terms, at least one of which must match; without any, no node matches."""

    terms: tuple[ParsedNodeTerm, ...]

    def matches(self, labels: Mapping[str, str], name: str) -> bool:
        """Return whether a node matches any term; terms with a parse error match nothing."""
        return any(term.matches(labels, name) for term in self.terms)

    def error(self) -> str | None:
        """Return the first parse error, or None."""
        return next((term.error for term in self.terms if term.error is not None), None)


def parse_node_term(term: NodeSelectorTerm) -> ParsedNodeTerm | None:
    """Parse one term; None if it has no expressions at all and so never matches."""
    if not term.match_expressions and not term.match_fields:
        return None
    return _parse_node_term(term)


def parse_node_selector(selector: NodeSelector) -> ParsedNodeSelector:
    """Parse leniently, as nodeaffinity.NewLazyErrorNodeSelector does."""
    parsed = (parse_node_term(term) for term in selector.node_selector_terms)
    return ParsedNodeSelector(tuple(term for term in parsed if term is not None))
