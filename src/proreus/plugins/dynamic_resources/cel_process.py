"""Evaluates an expression in a process of its own, with limits on memory and time.

For the few expressions that may take too much (``cel_cost``): a forked child inherits the compiled
expression and the device, so nothing is sent to it, and it is gone with all that it took.

    parent ── fork ──► child: limits, evaluation
           ◄── pipe ── True, False or an error       no answer: the limits ended it
"""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import select
import signal
import warnings
from collections.abc import Callable

import msgspec

MAX_CPU_SECONDS = 0.03
MAX_WALL_SECONDS = 0.5
"""Only on a machine so busy that the child does not get its CPU time."""
MAX_MORE_BYTES = 64 * 2**20
"""How much memory the child may take in addition to what this process has."""

LIMIT_EXCEEDED = "operation cancelled: actual cost limit exceeded"
"""cel-go's text."""

_Answer = tuple[bool, str]
_decode = msgspec.msgpack.Decoder(_Answer).decode


class EvaluationFailed(Exception):
    """The evaluation ended with an error, or was ended for its cost."""


def evaluate_in_child(evaluate: Callable[[], bool]) -> bool:
    """Return the result of a function that runs in a forked child.

    Raises ``EvaluationFailed`` with the text of what the function raised, or ``LIMIT_EXCEEDED``.
    """
    reader, writer = os.pipe()
    try:
        with warnings.catch_warnings():
            # Forking with threads is discouraged since they may hold locks. The child runs C++ that
            # only this thread uses, and ends.
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
    except OSError as error:
        os.close(reader)
        os.close(writer)
        raise EvaluationFailed(f"no process to evaluate it in: {error}") from None
    if not child:
        _run_child(evaluate, writer)
    os.close(writer)
    try:
        answer = _answer(reader)
    finally:
        os.close(reader)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    if answer is None:
        raise EvaluationFailed(LIMIT_EXCEEDED)
    matched, error_text = answer
    if error_text:
        raise EvaluationFailed(error_text)
    return matched


def _answer(reader: int) -> _Answer | None:
    poll = select.poll()
    poll.register(reader, select.POLLIN)
    if not poll.poll(MAX_WALL_SECONDS * 1000):
        return None
    data = os.read(reader, select.PIPE_BUF)
    return _decode(data) if data else None  # nothing: the child was ended


def _run_child(evaluate: Callable[[], bool], writer: int) -> None:
    """Evaluate, write the answer and end the process."""
    try:
        # Signals that arrive now are not for the parent's event loop, and what C++ says when memory
        # runs out is not for its log.
        signal.set_wakeup_fd(-1)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        gc.disable()
        _set_limits()
        try:
            answer: _Answer = (evaluate(), "")
        except MemoryError:
            answer = (False, LIMIT_EXCEEDED)
        except Exception as error:
            answer = (False, str(error)[: select.PIPE_BUF // 8] or type(error).__name__)
        os.write(writer, msgspec.msgpack.encode(answer))
    finally:
        os._exit(0)


def _set_limits() -> None:
    with open("/proc/self/statm", encoding="ascii") as sizes:
        pages = int(sizes.read().split()[0])
    most = pages * resource.getpagesize() + MAX_MORE_BYTES
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Of CPU time, so that a busy machine changes no result.
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, MAX_CPU_SECONDS)
