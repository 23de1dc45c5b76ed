"""The part of Go's text/template that templates use; expected texts are those of Go."""

from typing import Any

import pytest

from proreus.base.errors import ConfigError
from proreus.workbench.bench.text_template import TextTemplate

VALUES: dict[str, Any] = {
    "Index": 7,
    "Count": 30,
    "number": 3,
    "zero": 0,
    "text": "5",
    "mode": "single",
    "list": ["a", "b"],
    "map": {"y": 2, "x": {"deep": "z"}},
    "nothing": None,
    "on": True,
}


def rendered(text: str) -> str:
    return TextTemplate(text).render(VALUES)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain { } text", "plain { } text"),
        ("{{.Index}}-{{ .Count }}", "7-30"),
        ("{{/* a comment */}}x", "x"),
        ("a {{- .Index -}} b", "a7b"),
        ("a\n  {{- .Index}} b", "a7 b"),
        ("{{-7}}", "-7"),
        ("{{`b`}}", "b"),
        ("{{and .number .zero}}", "0"),
        ("{{$x := .number}}{{$x}}", "3"),
        ('{{or .missing "\\u00e9"}}{{or .missing `\\n"`}}', 'é\\n"'),
        ("{{.map.x.deep}}{{.on}}{{.nothing}}", "ztrue<nil>"),
        ("{{.number | AddInt 1}}", "4"),
        ("{{AddInt .text 1}}", "6"),
        ("{{(or .missing 2) | Int}}", "2"),
        ("{{or .zero .missing 9}}", "9"),
        ("{{not .zero}}", "true"),
        ("{{(or .missing nil) | JSON}}", "null"),
        ("{{JSON .map}}", '{"y":2,"x":{"deep":"z"}}'),
        ("{{if .zero}}a{{else}}b{{end}}", "b"),
        ("{{if .missing}}a{{end}}", ""),
        ('{{if eq .mode "all" "single"}}a{{end}}', "a"),
        ('{{if eq .mode "all"}}a{{else if ge .number 3}}b{{else}}c{{end}}', "b"),
        ("{{if .on}}{{if .zero}}a{{else}}b{{end}}c{{end}}", "bc"),
        ("{{range .number}}{{.}},{{end}}", "0,1,2,"),
        ("{{range (.text | Int)}}{{.}}{{end}}", "01234"),
        ("{{range $i := .number}}{{$i}}{{$.Index}} {{end}}", "07 17 27 "),
        ("{{range .missing}}a{{else}}none{{end}}", "none"),
        ("a\n{{- with .number }}\nb{{ . }}{{$.Index}}\n{{- end }}\nc", "a\nb37\nc"),
        ("{{with .missing}}a{{else}}{{.Index}}{{end}}", "7"),
        ("{{with .map}}{{.y}}{{with .x}}{{.deep}}{{end}}{{end}}", "2z"),
        ("{% if %} {# x #} {{.Index}}", "{% if %} {# x #} 7"),
        ("{{range .list}}{{range 2}}{{.}}{{end}}{{.}}{{end}}", "01a01b"),
    ],
)
def test_actions(text: str, expected: str) -> None:
    assert rendered(text) == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{{.missing}}", r"\{\{.missing\}\} has no value; there are .Index, .Count, .number"),
        ("{{AddInt 1 .missing}}", "AddInt: a parameter without value"),
        ("{{eq .missing 1}}", "eq: a parameter without value"),
        ("{{.Index.deep}}", ".deep: 7 has no fields"),
        ("{{Modulo 1 2}}", "Modulo is unknown; there are numbers, strings, AddFloat"),
        ("{{$x}}", "'variable_x' is undefined"),
        ("{{range 2}}{{$x := 1}}{{end}}{{$x}}", "'variable_x' is undefined"),
        ("{{range .mode}}{{end}}", "range cannot go through 'single'"),
        ("{{if .on}}a", "has no {{end}}"),
        ("a{{end}}", "ends no block"),
        ("{{1 | 2}}", "2 is no function"),
        ("{{x := 1}}", "x is no variable"),
        ("{{ }}", "an action is empty"),
    ],
)
def test_errors(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        rendered(text)


def test_a_template_is_rendered_anew_for_other_values() -> None:
    template = TextTemplate("{{range .n}}{{.}}{{end}}")
    assert [template.render({"n": n}) for n in (2, 3)] == ["01", "012"]
    assert not template.static
    assert TextTemplate("a: b").static
