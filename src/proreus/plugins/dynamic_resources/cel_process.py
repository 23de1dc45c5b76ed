"""Evaluates an expression in a process of its own, with limits on memory and time.

For the few expressions that may take too much (``cel_cost``): a forked child inherits the compiled
expression and the device, so nothing is sent to it, and it is gone with all that it took.

    parent ── fork ──► child: limits, evaluation
           ◄── pipe ── the result or an error        no answer: the limits ended it
"""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import select
import signal
import time
import warnings
from collections.abc import Callable
from typing import Any

import msgspec

MAX_CPU_SECONDS = 0.03
MAX_WALL_SECONDS = 0.5
"""Only on a machine so busy that the child does not get its CPU time."""
MAX_MORE_BYTES = 64 * 2**20
"""How much memory the child may take in addition to what this process has."""

LIMIT_EXCEEDED = "operation cancelled: actual cost limit exceeded"
"""cel-go's text."""

MAX_ANSWER_BYTES = 2**20
"""What the limits of an evaluation in this process leave to its result (``cel_cost``)."""


class EvaluationFailed(Exception):
    """The evaluation ended with an error, or was ended for its cost."""


def evaluate_in_child(evaluate: Callable[[], object]) -> Any:
    """Return the result of a function that runs in a forked child, as plain data.

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
    try:
        result, error_text = msgspec.msgpack.decode(answer)
    except msgspec.DecodeError:  # nothing, or not all of it
        raise EvaluationFailed(LIMIT_EXCEEDED) from None
    if error_text:
        raise EvaluationFailed(error_text)
    return result


def _answer(reader: int) -> bytes:
    """Return what the child writes; nothing if it was ended, takes too long or writes too much."""
    poll = select.poll()
    poll.register(reader, select.POLLIN)
    deadline = time.monotonic() + MAX_WALL_SECONDS
    answer = b""
    while len(answer) <= MAX_ANSWER_BYTES:
        left = deadline - time.monotonic()
        if left <= 0 or not poll.poll(left * 1000):
            return b""
        data = os.read(reader, 2**16)
        if not data:
            return answer
        answer += data
    return b""


def _run_child(evaluate: Callable[[], object], writer: int) -> None:
    """Evaluate, write the answer and end the process."""
    try:
        # Signals that arrive now are not for the parent's event loop, and what C++ says when memory
        # runs out is not for its log.
        signal.set_wakeup_fd(-1)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        gc.disable()
        _set_limits()
        try:
            answer = msgspec.msgpack.encode((evaluate(), ""))
        except MemoryError:
            answer = msgspec.msgpack.encode((None, LIMIT_EXCEEDED))
        except Exception as error:
            text = str(error)[: select.PIPE_BUF // 8] or type(error).__name__
            answer = msgspec.msgpack.encode((None, text))
        while answer:
            answer = answer[os.write(writer, answer) :]
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
