"""The terminal, protected from texts that are not ours.

Who creates pods, nodes or custom resources decides on texts that are printed, as messages of
expressions or of plugins, and a terminal takes some characters for commands: to move the cursor, to
hide what was printed. ``kubectl describe`` replaces them as well.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook, RenderResult
from rich.segment import Segment

_COMMANDS = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Control characters except the line feed, other ends of lines, and changes of the direction."""


_NO_WRAPPING = 10_000


def new_console(**options: Any) -> Console:
    """Return a ``rich`` console that shows U+FFFD in place of control characters.

    A pipe or a file has no width, so nothing is wrapped there, unless COLUMNS says so.
    """
    console = Console(**options)
    if not console.is_terminal and "width" not in options and "COLUMNS" not in os.environ:
        console.width = _NO_WRAPPING
    console.push_render_hook(_PrintableOnly())
    return console


def printable(text: str) -> str:
    """Return a text with U+FFFD for each character that is not printed; line feeds are kept."""
    return text if text.isprintable() else _COMMANDS.sub("\ufffd", text)


class _PrintableOnly(RenderHook):
    def process_renderables(
        self, renderables: Sequence[ConsoleRenderable]
    ) -> list[ConsoleRenderable]:
        return [_Printable(one) for one in renderables]


class _Printable:
    """The printed text; the control codes of ``rich`` itself are not in the text of its
    segments.
    """

    def __init__(self, renderable: ConsoleRenderable) -> None:
        self._renderable = renderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        segments: Iterable[Segment] = console.render(self._renderable, options)
        for text, style, control in segments:
            yield Segment(text if control else printable(text), style, control)
