import pytest

from proreus.base.errors import ConfigError
from proreus.config.reading import read


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("y", True),
        ("on", True),
        ("No", False),
        ("16", 16),
        ("16.0", 16),
        ("1e1", 10),
        ("1.5", 1.5),
        ("0x10", 16),
        ("010", 8),
        ("0o10", 8),
        ("0b11", 3),
        ("1_6", 16),
        ("+5", 5),
        (".5", 0.5),
        ("1:30", "1:30"),
        ("2020-01-01", "2020-01-01"),
        ("'16'", "16"),
        ("~", None),
        ("!mine 5", "5"),
        ("5000000000000000000000", 5e21),
    ],
)
def test_yaml_scalars_are_those_of_go(text, value):
    read_back = read(f"a: {text}").data["a"]
    assert read_back == value
    assert type(read_back) is type(value)


def test_keys_become_texts_and_are_sorted():
    assert list(read("b: 1\ny: 2\n5: 3\n").data) == ["5", "b", "true"]


def test_characters_that_yaml_forbids_are_refused():
    assert read("a: é \U0001f600").data == {"a": "é \U0001f600"}
    for text in ("a: \x07", "a: \x7f", "a: \ufffe"):
        with pytest.raises(ConfigError, match="special characters are not allowed"):
            read(text)


def test_only_the_first_yaml_document_counts():
    assert read("a: 1\n---\nb: [").data == {"a": 1}


def test_anchors_and_merges():
    assert read("a: &x {p: 1}\nb: {<<: *x, q: 2}").data["b"] == {"p": 1, "q": 2}


def test_complains_of_repeated_keys_with_their_line():
    document = read("a:\n  x: 1\n  x: 2\n")
    assert document.data == {"a": {"x": 2}}
    assert document.strict_errors == (
        'yaml: unmarshal errors:\n  line 3: key "x" already set in map',
    )


def test_complains_of_repeated_json_fields_with_their_path():
    document = read('{"a": [{"x": 1, "x": 2}], "b": 1, "b": 1}')
    assert document.strict_errors == ('duplicate field "b"', 'duplicate field "a[0].x"')


@pytest.mark.parametrize(
    "text", ["a: [1", "\tx: 1", "{a: 1}", '{"a": 1', "a: .inf", b"\xff", "? [a]\n: 1"]
)
def test_refuses_what_is_neither_yaml_nor_json(text):
    with pytest.raises(ConfigError, match=r"yaml|json|UTF-8"):
        read(text)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("a: " + "[" * 5_000, "yaml: line 1: nested deeper than 1,000 levels"),
        ('{"a": ' + "[" * 200_000, "json parse error: nested too deep"),
        ("a: " + "9" * 5_000, "yaml: Exceeds the limit"),
        ('{"a": ' + "9" * 5_000 + "}", "json parse error: Exceeds the limit"),
        ("a: &a [*a]", "yaml: line 1: anchor 'a' value contains itself"),
        ("a: &a {k: 1}\nb: [" + "*a, " * 60_000 + "]", "document contains excessive aliasing"),
        ("a: \x00", "yaml: unacceptable character #x0000"),
    ],
)
def test_refuses_what_python_cannot_read(text, error):
    with pytest.raises(ConfigError, match=error):
        read(text)
