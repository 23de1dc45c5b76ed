import click
import pytest

from proreus.process.cli.go_flags import Flag, FlagError
from proreus.process.cli.run_command import GoCommand

FLAGS = (
    Flag("leader-elect", "bool", "true", "A", "Text."),
    Flag("secure-port", "int", "10259", "A", "Text."),
    Flag("kube-api-qps", "float", "50", "A", "Text."),
    Flag("retry-period", "duration", "2s", "A", "Text."),
    Flag("config", "string", "", "A", "Text."),
    Flag("paths", "list", "[/a,/b]", "B", "Text."),
    Flag("labels", "map", "", "B", "Text."),
    Flag("old", "string", "", "B", "Text.", has_effect=False),
    Flag("version", "string", "false", "B", "Text.", no_opt_default="true"),
    Flag("v", "int", "0", "B", "Text.", short="v"),
)


def parse(*arguments):
    seen = []
    command = GoCommand("run", FLAGS, seen.append, "Help.")
    command.main(list(arguments), standalone_mode=False, prog_name="proreus run")
    return seen[0]


def test_defaults_go_through_the_same_parser():
    values = parse()
    assert values["leader-elect"] is True
    assert values["secure-port"] == 10259
    assert values["kube-api-qps"] == 50.0
    assert values["retry-period"] == 2.0
    assert values["paths"] == ("/a", "/b")
    assert values["labels"] == {}
    assert values.explicit == frozenset()


@pytest.mark.parametrize(
    ("arguments", "flag", "value"),
    [
        (["--leader-elect"], "leader-elect", True),
        (["--leader-elect=false"], "leader-elect", False),
        (["--leader_elect=F"], "leader-elect", False),
        (["--secure-port", "1"], "secure-port", 1),
        (["--secure_port=1"], "secure-port", 1),
        (["--secure-port=1", "--secure-port=2"], "secure-port", 2),
        (["--secure-port", "-1"], "secure-port", -1),
        (["--retry-period=1m30s"], "retry-period", 90.0),
        (["--config="], "config", ""),
        (["--config", "a=b"], "config", "a=b"),
        (["--paths=/x,/y", "--paths=/z"], "paths", ("/x", "/y", "/z")),
        (["--paths="], "paths", ()),
        (["--labels=m,l='v1,v2'"], "labels", {"m,l": "v1,v2"}),
        (["--labels=m,l='v1,v2',n,k='w'"], "labels", {"m,l": "v1,v2", "n,k": "w"}),
        (["--version"], "version", "true"),
        (["--version=raw"], "version", "raw"),
        (["-v", "4"], "v", 4),
        (["-v=4"], "v", 4),
        (["-v4"], "v", 4),
        (["--v", "4"], "v", 4),
    ],
)
def test_forms_of_values(arguments, flag, value):
    assert parse(*arguments)[flag] == value


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--nope"], "unknown flag: --nope"),
        (["--nope=1"], "unknown flag: --nope"),
        (["-x"], "unknown shorthand flag: 'x' in -x"),
        (["--config"], "flag needs an argument: --config"),
        (["-v"], "flag needs an argument: 'v' in -v"),
        (["foo"], '"proreus run" does not take any arguments, got ["foo"]'),
        (["--leader-elect", "false"], '"proreus run" does not take any arguments, got ["false"]'),
        (["--", "a", "b"], '"proreus run" does not take any arguments, got ["a" "b"]'),
        (
            ["--leader-elect=maybe"],
            'invalid argument "maybe" for "--leader-elect" flag: '
            'strconv.ParseBool: parsing "maybe": invalid syntax',
        ),
        (
            ["--secure-port=x"],
            'invalid argument "x" for "--secure-port" flag: '
            'strconv.ParseInt: parsing "x": invalid syntax',
        ),
        (
            ["--retry-period=5"],
            'invalid argument "5" for "--retry-period" flag: time: missing unit in duration "5"',
        ),
        (
            ["--labels=x"],
            'invalid argument "x," for "--labels" flag: it must look like key=value',
        ),
    ],
)
def test_error_messages_are_those_of_kubernetes(arguments, message):
    with pytest.raises(FlagError) as caught:
        parse(*arguments)
    assert str(caught.value) == message


def test_explicit_flags_and_flags_without_effect():
    values = parse("--old=1", "--v=2")
    assert values.explicit == {"old", "v"}
    assert values.without_effect() == ["--old"]


def test_every_flag_as_text():
    texts = parse("--leader-elect=false", "--paths=/x", "--paths=/y", "--labels=a='1'").texts()
    assert texts == {
        "leader-elect": "false",
        "secure-port": "10259",
        "kube-api-qps": "50",
        "retry-period": "2s",
        "config": "",
        "paths": "[/x,/y]",
        "labels": "a=1",
        "old": "",
        "version": "false",
        "v": "0",
    }


def test_help_is_by_group(capsys):
    with pytest.raises(click.exceptions.Exit):
        GoCommand("run", FLAGS, print, "Help.").parse_args(
            click.Context(click.Command("run")), ["-h"]
        )
    out = capsys.readouterr().out
    assert out.index("A flags:") < out.index("--secure-port int") < out.index("B flags:")
    assert "-v, --v int" in out
    assert "(accepted, has no effect)" in out
