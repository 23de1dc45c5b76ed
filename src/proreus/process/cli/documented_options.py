"""Options of commands that are stated once: in a signature, with their help in its docstring.

    @click.command("demo")
    @documented_options
    def command(*, nodes: Annotated[int, click.IntRange(1)] = 100, keep: bool = False) -> None:
        '''Watch proreus schedule pods.

        --nodes
            Number of nodes. [default]
        --keep
            Keep the cluster running afterwards.
        '''

The head of a paragraph has the option's names and its metavar, as the help shows them, and
``[default]`` at the end shows the default. ``tuple[T, ...]`` may be repeated, a bool is a flag,
``Literal`` has choices. The parameter of ``--from`` is ``from_``, since ``from`` is a keyword.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from types import NoneType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import click

C = TypeVar("C", bound=Callable[..., Any])

_HEAD = re.compile(r"(-\w)?(?:, )?(--[\w-]+(?:/--[\w-]+)?)(?: (.+))?")


def documented_options(command: C) -> C:
    """Give a command the options of its signature."""
    command = with_options_of(command, command)
    command.__doc__ = _paragraphs(command)[0]
    return command


def with_options_of(source: Callable[..., Any], command: C) -> C:
    """Give a command the options of the signature and docstring of a function or class."""
    parameters = inspect.signature(source).parameters
    hints = get_type_hints(source, include_extras=True)
    for paragraph in reversed(_paragraphs(source)[1:]):
        head, *lines = map(str.strip, paragraph.splitlines())
        match = _HEAD.fullmatch(head)
        assert match is not None, head
        short, names, metavar = match.groups()
        name = names.partition("/")[0].removeprefix("--").replace("-", "_")
        name = name if name in parameters else f"{name}_"
        text = " ".join(lines)
        settings = _settings(hints[name]) | {
            "metavar": metavar,
            "help": text.removesuffix(" [default]"),
            "show_default": text.endswith(" [default]"),
        }
        if not settings.get("multiple"):
            settings["default"] = parameters[name].default
        command = click.option(*filter(None, (short, names)), name, **settings)(command)
    return command


def _paragraphs(source: Callable[..., Any]) -> list[str]:
    return re.split(r"\n+(?=-.*\n    )", inspect.getdoc(source) or "")


def _settings(hint: Any) -> dict[str, Any]:
    """Return click's settings for the values of a type."""
    options = [part for part in get_args(hint) if part is not NoneType]
    if NoneType in get_args(hint):
        return _settings(options[0])
    match get_origin(hint):
        case None if hint is bool:
            return {"is_flag": True}
        case None if hint is Path:
            return {"type": click.Path(path_type=Path)}
        case None:
            return {"type": hint}
        case origin if origin is tuple and options[-1] is ...:
            return _settings(options[0]) | {"multiple": True}
        case origin if origin is tuple:
            return _settings(options[0]) | {"nargs": len(options)}
        case origin if origin is Literal:
            return {"type": click.Choice(options)}
    return {"type": get_args(hint)[1]}  # Annotated with a type of click
