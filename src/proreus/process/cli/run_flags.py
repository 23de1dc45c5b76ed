"""The flags of ``proreus run``: kube-scheduler's, and a few of our own.

``run_flags.txt`` is their table; ``run`` turns them into ``RunOptions``. Flags for features that
proreus does not have are accepted there, so that an existing manifest starts, as "no effect".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from string import Template
from typing import Any

from proreus.base.kubernetes_version import DEFAULT_VERSION
from proreus.process.cli.go_flags import Flag

_ROW = re.compile(r"--(\S+) (\w+)(?: = (.*?))?(?:  \((.*)\))?")


def _read(table: str) -> Iterator[Flag]:
    """Yield the flags of a table: titles of groups, flags below them, help below each flag."""
    group = ""
    for paragraph in re.split(r"\n+(?=\S|  -)", table.strip()):
        head, *text = map(str.strip, paragraph.splitlines())
        if row := _ROW.fullmatch(head):
            name, kind, default, marks = row.groups(default="")
            yield Flag(name, kind, default, group, " ".join(text), **dict(_marks(marks)))
        else:
            group = head


def _marks(text: str) -> Iterator[tuple[str, Any]]:
    for mark in text.split("; ") if text else ():
        match mark.split():
            case ["no", "effect"]:
                yield "has_effect", False
            case ["short", letter]:
                yield "short", letter
            case ["alone", value]:
                yield "no_opt_default", value
            case ["one", "of", *choices]:
                yield "choices", tuple(choices)
            case _:
                yield "sign", mark


_TABLE = Template(Path(__file__).with_suffix(".txt").read_text())
_VERSIONS = {"version": DEFAULT_VERSION, "previous": DEFAULT_VERSION.previous()}
FLAGS: tuple[Flag, ...] = tuple(_read(_TABLE.substitute(_VERSIONS)))
