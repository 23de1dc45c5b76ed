"""Logs as kube-scheduler writes them: klog's text, or a JSON object a line, to stderr.

    log = logs.logger(__name__)

    log.info("Bound pod", pod="ns/name", node="n1")        # always
    log.v(4).info("Hint woke pod", pod=key, plugin=name)   # with -v 4 or more
    if log.v(6):                                           # when finding the values is work itself
        log.v(6).info("Scores", scores=table.explain())
    log.warning("Unknown flag value", flag="--x")
    log.error("Binding failed", err=error, pod="ns/name")

A message is a constant sentence; what varies goes into the pairs. ``v`` costs a comparison when it
is off. Underneath is the standard library's logging, so that what other packages say comes out in
the same form, and tests read records as usual (``record.pairs``). Before ``configure`` nothing is
changed: a program that imports proreus keeps its own logging.
"""

from __future__ import annotations

import json
import logging
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from typing import Any, Literal, TextIO

import msgspec

from proreus.base.utf8 import to_valid_utf8

Format = Literal["text", "json"]

_SEVERITY = {
    logging.DEBUG: "I",
    logging.INFO: "I",
    logging.WARNING: "W",
    logging.ERROR: "E",
    logging.CRITICAL: "F",
}


class Verbose:
    """The result of ``Logger.v``: true and writing, or false and silent."""

    __slots__ = ("_level", "_log")

    def __init__(self, log: logging.Logger | None, level: int) -> None:
        self._log = log
        self._level = level

    def __bool__(self) -> bool:
        return self._log is not None

    def info(self, message: str, /, **pairs: object) -> None:
        """Write the message, if this level is on."""
        if self._log is not None:
            self._log.info(message, extra={"v": self._level, "pairs": pairs}, stacklevel=2)


_SILENT = Verbose(None, 0)


class Logger:
    """The logger of the module ``name``. ``threshold`` is the highest v-level that it logs.

    Methods take a message and pairs: ``log.info("Pod held", pod=pod.key)``.
    """

    __slots__ = ("_log", "name", "threshold")

    def __init__(self, name: str) -> None:
        self.name = name
        self.threshold = 0
        self._log = logging.getLogger(name)

    def v(self, level: int) -> Verbose:
        """Return a writer for details of ``level`` (2: steady state, 4: debug, 6 and up: trace)."""
        return Verbose(self._log, level) if level <= self.threshold else _SILENT

    def info(self, message: str, /, **pairs: object) -> None:
        """Log a fact that operators always want to know."""
        self._log.info(message, extra={"v": 0, "pairs": pairs}, stacklevel=2)

    def warning(self, message: str, /, **pairs: object) -> None:
        """Log a fact that may not be intended, although everything works."""
        self._log.warning(message, extra={"v": 0, "pairs": pairs}, stacklevel=2)

    def error(
        self,
        message: str,
        /,
        *,
        err: BaseException | str | None = None,
        trace: bool = False,
        **pairs: object,
    ) -> None:
        """Log a failure; ``trace`` adds the traceback of ``err``, for bugs only."""
        exc_info = err if trace and isinstance(err, BaseException) else None
        self._log.error(
            message,
            extra={"v": 0, "err": None if err is None else error_text(err), "pairs": pairs},
            exc_info=exc_info,
            stacklevel=2,
        )


class _Settings:
    """The settings of the last ``configure``: logging belongs to the process."""

    verbosity = 0
    vmodule: tuple[tuple[str, int], ...] = ()
    handler: logging.Handler | None = None
    loggers: dict[str, Logger] = {}


def logger(name: str) -> Logger:
    """Return the logger of a module (``__name__``); ``--vmodule`` selects it by that name."""
    found = _Settings.loggers.get(name)
    if found is None:
        found = _Settings.loggers[name] = Logger(name)
        found.threshold = _threshold(name)
    return found


def configure(
    verbosity: int = 0,
    log_format: Format = "text",
    vmodule: str = "",
    stream: TextIO | None = None,
) -> None:
    """Take over the process's logging: ``-v``, ``--logging-format`` and ``--vmodule``.

    ``vmodule`` is like ``scheduling_queue=6,client/*=4``: a file's name or path without ``.py``,
    with wildcards. Raises ValueError for one that cannot be read.
    """
    patterns = parse_vmodule(vmodule)
    if patterns and log_format == "json":
        raise ValueError("--vmodule is only for the text logging format")
    handler = _LogHandler(stream or sys.stderr)
    handler.setFormatter(_JsonFormatter() if log_format == "json" else _KlogFormatter())
    root = logging.getLogger()
    if _Settings.handler is not None:
        root.removeHandler(_Settings.handler)
    root.addHandler(handler)
    root.setLevel(logging.WARNING)  # other packages chat at INFO
    logging.getLogger("proreus").setLevel(logging.INFO)
    _Settings.handler = handler
    _Settings.vmodule = patterns
    set_verbosity(verbosity)


class _LogHandler(logging.StreamHandler[TextIO]):
    """Loses a line that cannot be written, as klog does: its traceback would not fit either."""

    def handleError(self, record: logging.LogRecord) -> None:
        if not isinstance(sys.exception(), OSError):
            super().handleError(record)


def set_verbosity(verbosity: int) -> None:
    """Change ``-v`` while running."""
    _Settings.verbosity = verbosity
    for each in _Settings.loggers.values():
        each.threshold = _threshold(each.name)


def verbosity() -> int:
    """Return the ``-v`` in effect."""
    return _Settings.verbosity


def parse_vmodule(text: str) -> tuple[tuple[str, int], ...]:
    """Return the (pattern, level) pairs of a ``--vmodule`` value; raise ValueError."""
    patterns = []
    for item in filter(None, (part.strip() for part in text.split(","))):
        pattern, equals, level = item.rpartition("=")
        if not equals or not pattern or not level.isdigit():
            raise ValueError(f"--vmodule: {item!r} must look like pattern=N, N a whole number")
        patterns.append((pattern, int(level)))
    return tuple(patterns)


def _threshold(name: str) -> int:
    path = PurePosixPath(name.replace(".", "/"))
    levels = [level for pattern, level in _Settings.vmodule if path.match(pattern)]
    return max([_Settings.verbosity, *levels[:1]])


_MOST_LINES = 160
"""Lines of a traceback: half of them where it was caught, half where it was raised."""


def traceback_text(error: BaseException) -> str:
    """Return an exception's traceback as Python prints it, a long one without its middle."""
    # A RecursionError has a thousand frames, of which Python leaves out only those that repeat one
    # after another.
    lines = "".join(traceback.format_exception(error)).splitlines(keepends=True)
    left = len(lines) - _MOST_LINES
    if left > 0:
        half = _MOST_LINES // 2
        lines[half:-half] = [f"… {left} lines left out …\n"]
    return "".join(lines).removesuffix("\n")


class _KlogFormatter(logging.Formatter):
    """``I1121 02:42:43.832598   29847 file.py:185] "message" key="value"``."""

    def format(self, record: logging.LogRecord) -> str:
        when = time.strftime("%m%d %H:%M:%S", time.localtime(record.created))
        micros = int(record.created % 1 * 1e6)
        head = (
            f"{_SEVERITY.get(record.levelno, 'I')}{when}.{micros:06d} {record.process or 0:7d} "
            f"{record.filename}:{record.lineno}]"
        )
        pairs = _pairs(record)
        if pairs is None:
            line = f"{head} {record.getMessage()}"
        else:
            rest = "".join(_text_pair(key, value) for key, value in pairs.items())
            line = f"{head} {_quoted(record.getMessage())}{rest}"
        if record.exc_info:
            line += "\n" + _exception_text(record.exc_info)
        return to_valid_utf8(line)


class _JsonFormatter(logging.Formatter):
    """One object a line: ``ts`` (ms), ``caller``, ``msg``, ``v`` or ``err``, then the pairs."""

    def format(self, record: logging.LogRecord) -> str:
        folder, _, name = record.pathname.replace("\\", "/").rpartition("/")
        fields: dict[str, object] = {
            "ts": round(record.created * 1000, 3),
            "caller": f"{folder.rpartition('/')[2]}/{name}:{record.lineno}",
            "msg": record.getMessage(),
        }
        if record.levelno < logging.ERROR:
            fields["v"] = getattr(record, "v", 0)
        fields.update(_pairs(record) or {})
        if record.exc_info:
            fields["stacktrace"] = _exception_text(record.exc_info)
        return _json_text(fields)


def _exception_text(exc_info: tuple[Any, ...] | bool) -> str:
    error = exc_info[1] if isinstance(exc_info, tuple) else None
    # As the standard library has it where there is no exception.
    return "NoneType: None" if error is None else traceback_text(error)


def _pairs(record: logging.LogRecord) -> Mapping[str, object] | None:
    """Return a record's pairs, err first; None for a record of another package."""
    pairs: Mapping[str, object] | None = getattr(record, "pairs", None)
    if pairs is None:
        return None
    err = getattr(record, "err", None)
    if err is not None:
        pairs = {"err": err, **pairs}
    if (value := pairs.get("err")) is not None:
        text = error_text(value) if isinstance(value, BaseException) else str(value)
        if (cut := shortened(text)) is not text:
            pairs = {**pairs, "err": cut}
    return pairs


_MOST_CHARACTERS = 16_384


def shortened(text: str, most_characters: int = _MOST_CHARACTERS) -> str:
    """Return an error's text, cut to a length that a person may read; most are not cut."""
    # Users decide on the length of the message of a failed attempt: a pod that asks for
    # 5,000 resources has one of 300 KB, at each attempt.
    if len(text) <= most_characters:
        return text
    return f"{text[:most_characters]}… ({len(text)} characters)"


def _json_text(value: object) -> str:
    try:
        return msgspec.json.encode(value, enc_hook=_json_value).decode()
    except UnicodeEncodeError:
        return to_valid_utf8(json.dumps(value, default=_json_value, ensure_ascii=False))


def _text_pair(key: str, value: object) -> str:
    match value:
        case str() if "\n" in value:
            lines = value.removesuffix("\n").replace("\n", "\n\t")
            return f" {key}=<\n\t{lines}\n >"
        case bool():
            return f" {key}={str(value).lower()}"
        case int() | float():
            return f" {key}={value}"
        case None:
            return f' {key}="<nil>"'
        case dict() | list() | tuple():
            return f" {key}={_json_text(value)}"
        case BaseException():
            return f" {key}={_quoted(error_text(value))}"
        case _:
            return f" {key}={_quoted(str(value))}"


def _quoted(text: str) -> str:
    quoted = json.dumps(to_valid_utf8(text), ensure_ascii=False)
    if quoted.isprintable():
        return quoted
    # As Go quotes it: a line separator ends a line for some readers, and a change of direction has
    # a terminal show another order than the text has.
    return "".join(
        one if one.isprintable() else json.dumps(one)[1:-1].replace("\x7f", "\\u007f")
        for one in quoted
    )


def error_text(err: BaseException | str) -> str:
    """Return the text of an error, with the exception's name where the text alone means nothing."""
    # A ``TimeoutError`` has no text; a ``KeyError``'s is the key, a ``SystemExit``'s a number.
    name, text = type(err).__name__, _text(err, str)
    return f"{name}: {text}" if text and isinstance(err, (KeyError, SystemExit)) else text or name


def named_error_text(err: BaseException) -> str:
    """Return the name and the text of an exception, as the last line of a traceback has them."""
    name, text = type(err).__name__, _text(err, str)
    return f"{name}: {text}" if text else name


def short_repr(value: object) -> str:
    """Return the ``repr`` of a value in 60 characters at most; raises nothing."""
    text = _text(value, repr)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _text(value: object, convert: Callable[[object], str]) -> str:
    # A plugin's exceptions and results have methods of its own, with bugs of its own.
    try:
        return to_valid_utf8(str.__str__(convert(value)))
    except BaseException as failure:
        return f"<{type(value).__name__}, whose text raises {type(failure).__name__}>"


def _json_value(value: object) -> object:
    return error_text(value) if isinstance(value, BaseException) else str(value)
