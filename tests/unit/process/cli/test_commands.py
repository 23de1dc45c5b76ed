import subprocess
import sys

import click
import pytest

from proreus.process.cli import main
from proreus.process.cli.commands import proreus_command


def run(*arguments):
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return ended.value.code


def test_help_names_every_command(capsys):
    assert run("--help") == 0
    out = capsys.readouterr().out
    for name in (
        "run",
        "explain",
        "why",
        "plugins",
        "new-plugin",
        "example",
        "crds",
        "chart",
        "version",
    ):
        assert f"\n  {name} " in out


def test_versions(capsys):
    assert run("version") == 0
    assert "behaves as kube-scheduler 1.36" in capsys.readouterr().out
    assert run("--version") == 0
    assert capsys.readouterr().out.startswith("proreus v")


def test_run_has_its_help_and_its_errors_without_the_group(capsys):
    assert run("run", "--v=2", "--help") == 0
    assert "Usage: proreus run" in capsys.readouterr().out
    assert run("run", "--version") == 0
    assert capsys.readouterr().out.startswith("Kubernetes v")
    assert run("run", "--nope") == 1
    assert capsys.readouterr().err == "Error: unknown flag: --nope\n"


def test_an_unknown_command_is_an_error(capsys):
    assert run("bad") == 2
    assert "No such command" in capsys.readouterr().err
    assert run("simulat") == 2
    assert "No such command 'simulat'. Did you mean 'simulate'?" in capsys.readouterr().err


def test_a_known_command_starts_without_reading_entry_points(monkeypatch, capsys):
    def registered(group):
        raise AssertionError(group)

    monkeypatch.setattr("proreus.process.cli.commands.registered", registered)
    assert run("version") == 0


@pytest.mark.parametrize("name", ["new-plugin", "plugins", "example", "crds", "chart"])
def test_every_option_has_a_help_text(name):
    command = proreus_command.get_command(click.Context(proreus_command), name)
    silent = [p.name for p in command.params if isinstance(p, click.Option) and not p.help]
    assert silent == []


def test_help_loads_nothing_heavy():
    script = (
        "import sys\n"
        "from proreus.process.cli import main\n"
        "try:\n"
        "    main(['--help'])\n"
        "except SystemExit:\n"
        "    heavy = {'numpy', 'aiohttp', 'kubernetes', 'pydantic', 'rich', 'uvloop', 'msgspec'}\n"
        "    sys.exit(','.join(heavy & sys.modules.keys()) or 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
