"""Texts of others on a terminal."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from rich.table import Table
from rich.text import Text

from proreus.process.cli import main
from proreus.process.cli.console import new_console, printable
from proreus.process.cli.scheduler_access import SchedulerAccess

COMMANDS = "a\x1b[2Jb\x9b31mc\x00d\re\u202ef\u2028g\x7fh"
SHOWN = "a\ufffd[2Jb\ufffd31mc\ufffdd"


@pytest.mark.parametrize(
    "text", ["", "a", "a b\nc", "f\u00fcr \U0001f600", "1\xa0000", "\u0939\u200d"]
)
def test_texts_are_printed_as_they_are(text: str) -> None:
    assert printable(text) == text


def test_a_terminal_gets_no_commands_but_those_of_rich() -> None:
    console = new_console(file=io.StringIO(), force_terminal=True, width=80)
    table = Table(title=Text(COMMANDS))
    table.add_column(Text(COMMANDS), style="bold")
    table.add_row(Text(COMMANDS))
    console.print(table)
    console.print(f"[bold]{COMMANDS}[/]")
    written = console.file.getvalue()  # type: ignore[attr-defined]
    assert "\x1b[1m" in written
    assert "\x1b[2J" not in written
    assert not set("\x9b\x00\r\u202e\u2028\x7f") & set(written)
    assert written.count(SHOWN) == 3  # the last one is highlighted in parts


def test_explanations_are_printed_so(monkeypatch: Any, capsys: Any) -> None:
    body = json.dumps({"pod": "default/p", "state": "waiting", "summary": COMMANDS}).encode()
    monkeypatch.setattr(SchedulerAccess, "get", lambda *_, **__: body)
    monkeypatch.setattr("sys.argv", ["proreus", "explain", "pod", "p"])
    with pytest.raises(SystemExit):
        main()
    assert SHOWN in capsys.readouterr().out
