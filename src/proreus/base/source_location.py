"""Files and lines in the source of a plugin, for messages to its author."""

from __future__ import annotations

import ast
import inspect
import re
import sys
import traceback
from collections.abc import Callable
from types import FrameType
from typing import Any

_CLASS = re.compile(r"^class\s+(\w+)", re.M)
_NAME = re.compile(r"""^\s+name\s*(?::[^=\n]+)?=\s*["']([^"'\n]+)["']""", re.M)


def class_location(cls: type) -> tuple[str, int]:
    """Return the file and line of a class statement; ``("", 0)`` where there is no source."""
    try:
        file = inspect.getsourcefile(cls) or ""
        return file, inspect.getsourcelines(cls)[1]
    except (OSError, TypeError):
        return "", 0


def function_location(function: Any) -> str:
    """Return the location at which a function begins, or "" if it is not written in Python."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else ""


def attribute_location(cls: type, name: str) -> str:
    """Return where a class sets an attribute, or where the class begins if that is not known."""
    owner = next((base for base in cls.__mro__ if name in base.__dict__), cls)
    file, line = class_location(owner)
    if not line:
        return file
    source = "".join(inspect.getsourcelines(owner)[0])
    try:
        body = ast.parse(inspect.cleandoc(source) if source[:1].isspace() else source).body[0]
    except SyntaxError:
        return f"{file}:{line}"
    for statement in getattr(body, "body", ()):
        targets = getattr(statement, "targets", None) or [getattr(statement, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            return f"{file}:{line + statement.lineno - 1}"
    return f"{file}:{line}"


def error_location(error: BaseException, ours: Callable[[str], bool]) -> str:
    """Return the location at which an import failed: the innermost line in a file that is ``ours``.

    Where there is none, the innermost one of all that has a source.
    """
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return f"{error.filename}:{error.lineno}"
    frames = [
        (frame.f_code.co_filename, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if _has_source(frame)
    ]
    for file, line in reversed(frames):
        if ours(file):
            return f"{file}:{line}"
    return ""


def _has_source(frame: FrameType) -> bool:
    return not frame.f_code.co_filename.startswith("<")


def plugin_names_in(source: bytes) -> frozenset[str]:
    """Return the plugin names that a file seems to define, even if it does not parse."""
    text = source.decode(errors="replace")
    return frozenset(_CLASS.findall(text)) | frozenset(_NAME.findall(text))


def thread_location(thread: int, owned: Callable[[FrameType], bool]) -> str:
    """Return the innermost ``file:line`` of a running thread that is ``owned``, else of all.

    ``thread``: its identifier; "" if it has ended.
    """
    innermost, frame = "", sys._current_frames().get(thread)
    while frame is not None:
        file = frame.f_code.co_filename
        line = f"{file}:{frame.f_lineno}"
        if owned(frame):
            return line
        if not innermost and _has_source(frame):
            innermost = line
        frame = frame.f_back
    return innermost
