import pytest

from proreus.workbench.sandbox.api_errors import StatusError
from proreus.workbench.sandbox.selectors import ALL, parse_fields, parse_labels, parse_selector


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("app=a", True),
        ("app==a,tier!=back", True),
        ("app!=a", False),
        ("tier!=x", True),
        ("app in (a, b), tier notin (back)", True),
        ("app notin (a)", False),
        ("app", True),
        ("!app", False),
        ("!none,app", True),
        ("size>3", True),
        ("size < 3", False),
        ("example.com/x=", True),
    ],
)
def test_label_selectors(text: str, expected: bool) -> None:
    labels = {"app": "a", "tier": "front", "size": "5", "example.com/x": ""}
    assert parse_labels(text).matches(labels) is expected


@pytest.mark.parametrize("text", ["a in b", "a=b c=d", "=a", "a=b,,c", "a in ()b", "a/b/c=d"])
def test_invalid_label_selectors(text: str) -> None:
    with pytest.raises(StatusError, match="unable to parse requirement") as refused:
        parse_labels(text)
    assert refused.value.code == 400


def test_field_selectors() -> None:
    names = ("metadata.name", "metadata.namespace", "status.phase")
    selector = parse_selector("", "status.phase!=Failed,metadata.namespace==n", names)
    assert selector.matches({}, ("p", "n", "Running"))
    assert not selector.matches({}, ("p", "n", "Failed"))
    assert not selector.matches({}, ("p", "other", "Running"))
    assert selector.equal_to(1) == "n"
    assert selector.equal_to(2) is None
    assert parse_fields(r"metadata.name=a\,b", names) == ((0, "a,b", True),)
    assert parse_selector("", "", names) is ALL


@pytest.mark.parametrize("text", ["spec.colour=red", "metadata.name", "metadata.name>a"])
def test_invalid_field_selectors(text: str) -> None:
    with pytest.raises(StatusError) as refused:
        parse_fields(text, ("metadata.name",))
    assert refused.value.code == 400
