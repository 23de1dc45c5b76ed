"""The commands that the workbench registers."""

import json

import click
import pytest

from proreus.process.cli import main
from proreus.process.cli.commands import proreus_command

COMMANDS = ["bench", "demo", "evaluate", "sandbox", "simulate", "snapshot"]


def run(*arguments):
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return ended.value.code


def test_help_names_every_command(capsys):
    assert run("--help") == 0
    out = capsys.readouterr().out
    assert all(f"\n  {name} " in out for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_has_a_help_text(name):
    command = proreus_command.get_command(click.Context(proreus_command), name)
    silent = [p.name for p in command.params if isinstance(p, click.Option) and not p.help]
    assert silent == []


def test_a_missing_file_is_a_one_sentence_error(capsys):
    assert run("evaluate", "/nowhere.jsonl") == 1
    assert capsys.readouterr().err == (
        "Error: cannot read /nowhere.jsonl: No such file or directory\n"
    )


def test_an_unknown_correction_is_an_error_before_files_are_read(capsys):
    assert run("evaluate", "--corrections", "pined-victim", "/nowhere.jsonl") == 1
    error = capsys.readouterr().err
    assert error.startswith('Error: --corrections: unknown correction "pined-victim", there are: ')


def test_without_a_checkout_bench_needs_a_config(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run("bench", "--list") == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "--config: name a file of workloads" in printed.err


def test_evaluate_enables_given_plugins(capsysbinary, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "evaluated_plugin.py").write_text(
        "from proreus.framework.plugin import FilterPlugin\n"
        "from proreus.framework.status import Status\n"
        "class Nowhere(FilterPlugin):\n"
        "    def filter(self, state, pod, node):\n"
        "        return Status.unschedulable('not here')\n"
    )
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n1"},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}},
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "default", "uid": "1"},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    case = {"id": "x", "config": None, "objects": [node], "pod": pod}
    (tmp_path / "cases.jsonl").write_text(json.dumps(case))
    cases = str(tmp_path / "cases.jsonl")

    def verdict(*options):
        with pytest.raises(SystemExit) as ended:
            main(["evaluate", *options, cases])
        assert ended.value.code == 0
        return capsysbinary.readouterr().out.decode()

    assert "not here" not in verdict()
    assert "not here" not in verdict("--plugin-dir", str(tmp_path))
    assert "not here" in verdict("--plugin", "evaluated_plugin:Nowhere")
    with pytest.raises(SystemExit) as ended:
        main(["evaluate", "--plugin", "evaluated_plugin:Nobody", cases])
    assert ended.value.code == 1
    assert b"has no class Nobody; its plugins are Nowhere" in capsysbinary.readouterr().err
