"""Selectors: parsing, matching, and errors."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proreus.objects import selectors
from proreus.objects.selectors import (
    LabelSelector,
    LabelSelectorRequirement,
    NodeSelector,
    NodeSelectorTerm,
    Requirement,
    Selector,
    SelectorError,
    is_label_value,
    is_qualified_name,
    parse_label_selector,
    parse_node_selector,
    parse_node_term,
    parse_requirement,
    selector_of_map,
)

LABELS = {"a": "1", "b": "x"}


def expression(key: str, operator: str, *values: str) -> LabelSelectorRequirement:
    return LabelSelectorRequirement(key=key, operator=operator, values=values)


@pytest.mark.parametrize(
    ("one", "matching"),
    [
        (expression("a", "In", "1", "2"), True),
        (expression("a", "In", "2"), False),
        (expression("c", "In", "1"), False),
        (expression("a", "NotIn", "1"), False),
        (expression("a", "NotIn", "2"), True),
        (expression("c", "NotIn", "1"), True),
        (expression("a", "Exists"), True),
        (expression("c", "Exists"), False),
        (expression("a", "DoesNotExist"), False),
        (expression("c", "DoesNotExist"), True),
        (expression("a", "Gt", "0"), True),
        (expression("a", "Gt", "1"), False),
        (expression("a", "Lt", "2"), True),
        (expression("a", "Lt", "1"), False),
        (expression("b", "Lt", "2"), False),
        (expression("c", "Gt", "0"), False),
    ],
)
def test_matching(one: LabelSelectorRequirement, matching: bool) -> None:
    assert parse_requirement(one, numeric=True).matches(LABELS) is matching


@pytest.mark.parametrize(
    "one",
    [
        expression("a", "In"),
        expression("a", "NotIn"),
        expression("a", "Exists", "1"),
        expression("a", "DoesNotExist", "1"),
        expression("a", "Gt"),
        expression("a", "Gt", "1", "2"),
        expression("a", "Gt", "x"),
        expression("a", "Gt", str(2**63)),
        # a number, and yet no label value
        expression("a", "Lt", "-2"),
        expression("a", "gt", "1"),
        expression("a", "", "1"),
        expression("", "Exists"),
        expression("a b", "Exists"),
        expression("a/b/c", "Exists"),
        expression("A.example/b", "Exists"),
        expression("a", "In", "no spaces"),
        expression("a", "In", "x" * 64),
    ],
)
def test_rejects_invalid_selectors(one: LabelSelectorRequirement) -> None:
    with pytest.raises(SelectorError):
        parse_requirement(one, numeric=True)


def test_numbers_are_compared_in_node_selectors_only() -> None:
    with pytest.raises(SelectorError, match="not a valid label selector operator"):
        parse_requirement(expression("a", "Gt", "0"))


def test_no_selector_and_an_empty_one_differ() -> None:
    nothing, everything = parse_label_selector(None), parse_label_selector(LabelSelector())

    assert not nothing.matches({})
    assert not nothing.empty
    assert everything.matches({})
    assert everything.empty


def test_labels_and_expressions_must_all_match() -> None:
    selector = parse_label_selector(
        LabelSelector(match_labels={"a": "1"}, match_expressions=(expression("b", "Exists"),))
    )

    assert selector.matches(LABELS)
    assert not selector.matches({"a": "1"})
    assert not selector.matches({"a": "2", "b": ""})


def test_selectors_are_values() -> None:
    one = parse_label_selector(LabelSelector(match_labels={"a": "1", "b": "2"}))
    other = parse_label_selector(LabelSelector(match_labels={"b": "2", "a": "1"}))

    assert one == other
    assert hash(one) == hash(other)


def test_plain_maps_are_not_checked() -> None:
    assert selector_of_map({"not a key": "not a value!"}).matches({"not a key": "not a value!"})
    assert selector_of_map(None).empty
    assert selector_of_map({}).matches({})


def term(*expressions: LabelSelectorRequirement, **fields: tuple[str, ...]) -> NodeSelectorTerm:
    operators = {"named": "In", "not_named": "NotIn"}
    return NodeSelectorTerm(
        match_expressions=expressions,
        match_fields=tuple(
            expression("metadata.name", operators[kind], *values) for kind, values in fields.items()
        ),
    )


BROKEN = term(expression("a", "In"))


@pytest.mark.parametrize(
    ("terms", "matching", "has_error"),
    [
        ((), False, False),
        ((term(),), False, False),
        ((term(expression("a", "Exists")),), True, False),
        ((term(), term(expression("a", "Exists"))), True, False),
        ((term(expression("a", "Exists"), named=("n1",)),), True, False),
        ((term(expression("c", "Exists"), named=("n1",)),), False, False),
        ((term(named=("n2",)),), False, False),
        ((term(not_named=("n2",)),), True, False),
        ((term(not_named=("n1",)),), False, False),
        ((term(named=("n1", "n2")),), False, True),
        ((BROKEN,), False, True),
        ((BROKEN, term(expression("a", "Exists"))), True, True),
    ],
)
def test_node_selectors(
    terms: tuple[NodeSelectorTerm, ...], matching: bool, has_error: bool
) -> None:
    parsed = parse_node_selector(NodeSelector(node_selector_terms=terms))

    assert parsed.matches(LABELS, "n1") is matching
    assert (parsed.error() is not None) is has_error


@pytest.mark.parametrize(
    "field",
    [
        expression("metadata.namespace", "In", "n1", "n2"),
        expression("metadata.name", "Exists"),
        expression("metadata.name", "In"),
    ],
)
def test_fields_that_do_not_parse(field: LabelSelectorRequirement) -> None:
    parsed = parse_node_term(NodeSelectorTerm(match_fields=(field,)))

    assert parsed is not None
    assert parsed.error is not None
    assert not parsed.matches(LABELS, "n1")


@pytest.mark.parametrize(
    ("operator", "value", "matching"),
    [("In", "n1", False), ("In", "", True), ("NotIn", "n1", True), ("NotIn", "", False)],
)
def test_other_fields_are_empty(operator: str, value: str, matching: bool) -> None:
    other = expression("metadata.namespace", operator, value)
    named = expression("metadata.name", "In", "n1")
    parsed = parse_node_term(NodeSelectorTerm(match_fields=(other, named)))

    assert parsed is not None
    assert parsed.error is None
    assert parsed.matches(LABELS, "n1") is matching
    assert not parsed.matches(LABELS, "n2")


def test_fields_of_objects_without_a_name_are_not_looked_at() -> None:
    parsed = parse_node_selector(NodeSelector(node_selector_terms=(term(named=("n1",)),)))

    assert parsed.matches({}, "")


@pytest.mark.parametrize(
    ("name", "valid"),
    [
        ("a", True),
        ("A-1_.b", True),
        ("example.com/a", True),
        ("a" * 63, True),
        ("a" * 64, False),
        ("-a", False),
        ("a-", False),
        ("", False),
        ("/a", False),
        ("example.com/", False),
        ("Example.com/a", False),
        ("a.b/c/d", False),
        ("x" * 254 + "/a", False),
        ("a\n", False),
    ],
)
def test_qualified_names(name: str, valid: bool) -> None:
    assert is_qualified_name(name) is valid


@pytest.mark.parametrize(
    ("value", "valid"),
    [("", True), ("a", True), ("A_1.b-c", True), ("a b", False), ("a" * 64, False), (".a", False)],
)
def test_label_values(value: str, valid: bool) -> None:
    assert is_label_value(value) is valid


_many = st.lists(
    st.builds(
        Requirement,
        st.sampled_from("ab"),
        st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]),
        st.sets(st.sampled_from("123"), min_size=1).map(frozenset),
    ),
    max_size=4,
)


@given(_many, st.dictionaries(st.sampled_from("abc"), st.sampled_from("123")))
def test_many_requirements_are_met_as_each_of_them(
    requirements: list[Requirement], labels: dict[str, str]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(selectors, "_MANY_REQUIREMENTS", 0)
        selector = Selector(tuple(requirements))

        assert selector.matches(labels) == all(one.matches(labels) for one in requirements)
