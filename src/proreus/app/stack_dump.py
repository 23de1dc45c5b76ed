"""The stack of a process that ended because C code held the interpreter lock for too long.

No Python code runs then: no other thread, and no handler of a signal. What is left is a timer of
the kernel's, which counts the process's CPU time (``call_watchdog`` puts it off for as long as it
runs), and faulthandler, whose handler is C: it writes the stack to a file and ends the process. The
next process reads the file.

    {"plugins": […]}                                           written when plugins are loaded
    Current thread 0x7f (most recent call first):              written by faulthandler
      File "/etc/plugins/fit.py", line 12 in filter

Each process has a file of its own, and a lock on it for as long as it lives.
"""

from __future__ import annotations

import ctypes
import faulthandler
import fcntl
import json
import os
import re
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypedDict

from proreus import logs

log = logs.logger(__name__)

_FRAME = re.compile(r'^  File "(.+)", line (\d+) in (.+)$', re.M)


class PluginInUse(TypedDict):
    """A plugin of the process. ``line``: of its class; ``content``: what identifies its code."""

    plugin: str
    file: str
    line: int
    content: str


class DumpedCall(TypedDict):
    """Where a process was when it ended. ``seconds``: since the epoch."""

    plugin: PluginInUse
    function: str
    place: str
    seconds: float


class StackDump:
    """The file of this process, next to the record of blocked plugins, and those of earlier ones.

    ``ready``: faulthandler is registered for ``SIGPROF``, which ends the process then.
    """

    def __init__(self, record: Path) -> None:
        self._record = record
        self._path = record.with_name(f"{record.name}.{os.getpid()}.stack")
        self._descriptor = -1
        self.ready = False

    def prepare(self, plugins: Iterable[PluginInUse]) -> None:
        """Write down which plugins are in use, and let ``SIGPROF`` write the stack.

        Raises ``OSError``.
        """
        if self._descriptor < 0:
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            self._descriptor = os.open(self._path, flags, 0o600)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        os.ftruncate(self._descriptor, 0)
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        os.write(self._descriptor, json.dumps({"plugins": list(plugins)}).encode() + b"\n")
        if not self.ready:
            _exit_at(signal.SIGPROF)
            faulthandler.register(signal.SIGPROF, file=self._descriptor, chain=True)
            self.ready = True

    def close(self) -> None:
        """Delete the file: the process ends well."""
        if self.ready:
            faulthandler.unregister(signal.SIGPROF)
            signal.signal(signal.SIGPROF, signal.SIG_DFL)
            self.ready = False
        if self._descriptor >= 0:
            self._path.unlink(True)
            os.close(self._descriptor)
            self._descriptor = -1

    def take_earlier(self) -> Iterator[DumpedCall]:
        """Delete the files of processes that have ended; yield what they were doing."""
        try:
            paths = sorted(self._record.parent.glob(f"{self._record.name}.*.stack"))
        except OSError as error:
            log.error("Cannot look for what ended earlier processes", err=error)
            return
        for path in paths:
            try:
                with path.open() as file:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    status = os.fstat(file.fileno())
                    text = file.read()
                path.unlink(True)
            except OSError:  # it is in use, or another user's
                continue
            if status.st_uid in (os.getuid(), 0):
                yield from _parse(text, status.st_mtime)


def _exit_at(number: int) -> None:
    """Let a signal call C's ``_exit``: the exit code is the signal's number.

    faulthandler calls what was the handler before (``chain``). By itself the signal ends a process,
    but not the first one of a container, to which the kernel delivers no such signal.
    """
    libc = ctypes.CDLL(None)
    libc.signal.argtypes, libc.signal.restype = (ctypes.c_int, ctypes.c_void_p), ctypes.c_void_p
    libc.signal(number, ctypes.cast(libc._exit, ctypes.c_void_p))


def _parse(text: str, seconds: float) -> Iterator[DumpedCall]:
    """Yield the innermost call of a plugin, if there was one."""
    header, _, stacks = text.partition("\n")
    _, _, current = stacks.partition("Current thread ")
    try:
        plugins: list[PluginInUse] = json.loads(header)["plugins"] if current else []
        for file, line, function in _FRAME.findall(current):
            in_file = [one for one in plugins if one["file"] == file and one["line"] <= int(line)]
            if in_file:
                plugin = max(in_file, key=lambda one: one["line"])
                yield DumpedCall(
                    plugin=plugin, function=function, place=f"{file}:{line}", seconds=seconds
                )
                return
    except (ValueError, KeyError, TypeError) as error:
        log.error("Cannot read the stack of an earlier process", err=error)
