"""Status: a plugin's result about a pod, as a value.

None is success. The codes, and their effect at each extension point, are kube-scheduler's; a bug in
a plugin is an exception, not a status.
"""

from __future__ import annotations

from enum import IntEnum
from functools import cache
from numbers import Real

from msgspec import Struct

from proreus.base.logs import shortened
from proreus.base.utf8 import valid_text


class Code(IntEnum):
    """kube-scheduler's status codes with its numbers; ``label`` is its name for each."""

    SUCCESS = 0
    """None stands for it; plugins need not return it."""
    ERROR = 1
    """The attempt fails, and the pod is tried again after a back-off."""
    UNSCHEDULABLE = 2
    """Rejected; preemption may help."""
    UNRESOLVABLE = 3
    """Rejected; preemption would not help (UnschedulableAndUnresolvable)."""
    WAIT = 4
    """Permit only: the pod is held."""
    SKIP = 5
    """The plugin has nothing to do for this pod."""
    PENDING = 6
    """Rejected until something completes that is under way."""

    @property
    def label(self) -> str:
        """The name in metrics and recorded cases, e.g. ``UnschedulableAndUnresolvable``."""
        return _LABELS[self]


SUCCESS, ERROR, SKIP = Code.SUCCESS, Code.ERROR, Code.SKIP
"""For the hot path, which compares codes dozens of times a pod: an enum look-up takes 0.1 µs."""

_LABELS = (
    "Success",
    "Error",
    "Unschedulable",
    "UnschedulableAndUnresolvable",
    "Wait",
    "Skip",
    "Pending",
)
MOST_CHARACTERS = 65_536
"""Of a reason; a longer one is cut."""

_REJECTED = frozenset({Code.UNSCHEDULABLE, Code.UNRESOLVABLE, Code.PENDING})


class Status(Struct, frozen=True):
    """A ``code``, its ``reasons``, and the plugin that returned it.

    ``timeout_seconds`` belongs to Wait. The runtime fills in ``plugin``.
    """

    # A plain value: what a plugin returns is checked where it is taken (``checked``).

    code: Code
    reasons: tuple[str, ...] = ()
    plugin: str = ""
    timeout_seconds: float = 0.0

    def __init_subclass__(cls) -> None:
        """Raise ``TypeError``: a status is a value, whose methods are the scheduler's."""
        raise TypeError(f"{cls.__name__}: Status cannot be subclassed")

    @classmethod
    def success(cls, *reasons: str) -> Status:
        """Return a success that has something to tell; None is one without a word."""
        return cls(Code.SUCCESS, reasons)

    @classmethod
    def unschedulable(cls, *reasons: str) -> Status:
        """Return a rejection that preemption may resolve."""
        return cls(Code.UNSCHEDULABLE, reasons)

    @classmethod
    def unresolvable(cls, *reasons: str) -> Status:
        """Return a rejection that preemption cannot resolve (UnschedulableAndUnresolvable)."""
        return cls(Code.UNRESOLVABLE, reasons)

    @classmethod
    def pending(cls, *reasons: str) -> Status:
        """Return a rejection until something completes; that moves the pod without back-off."""
        return cls(Code.PENDING, reasons)

    @staticmethod
    @cache  # one for all: most plugins skip most pods
    def skip() -> Status:
        """Return Skip: the plugin has nothing to do for this pod."""
        return Status(Code.SKIP)

    @classmethod
    def wait(cls, timeout_seconds: float, *reasons: str) -> Status:
        """Return Wait (Permit only): hold the pod until it is allowed, rejected or timed out.

        That is after 15 minutes at the latest, as in kube-scheduler.
        """
        return cls(Code.WAIT, reasons, timeout_seconds=timeout_seconds)

    @classmethod
    def error(cls, text: str) -> Status:
        """Return an Error: the attempt fails and the pod is retried after a back-off."""
        return cls(Code.ERROR, (text,))

    @property
    def rejected(self) -> bool:
        """Whether the pod was rejected, as opposed to accepted, held, skipped or failed."""
        return self.code in _REJECTED

    @property
    def message(self) -> str:
        """The reasons in one line."""
        return ", ".join(self.reasons)

    def with_plugin(self, plugin: str) -> Status:
        """Return the status with the plugin's name (kube-scheduler's ``WithPlugin``)."""
        if self.plugin == plugin:
            return self
        return Status(self.code, self.reasons, plugin, self.timeout_seconds)


def checked(status: Status) -> Status:
    """Return a plugin's status as it can be written: its texts are valid UTF-8, and not too long.

    Raises ``TypeError`` for fields of the wrong type.
    """
    if not isinstance(status.code, Code):
        raise TypeError(
            f'code must be a Code, not {status.code!r}; write Status.unschedulable("why")'
        )
    reasons = status.reasons
    if not isinstance(reasons, tuple):
        raise TypeError(f"reasons must be a tuple of texts, not {reasons!r}")
    seconds: object = status.timeout_seconds
    if seconds != 0.0 and not (isinstance(seconds, Real) and seconds == seconds):
        raise TypeError(f"timeout_seconds must be a number, not {seconds!r}")
    if status.timeout_seconds < 0:
        raise TypeError(f"timeout_seconds must not be negative: {seconds!r}")
    plugin = valid_text("plugin", status.plugin)
    for reason in reasons:
        if type(reason) is not str or not reason.isascii() or len(reason) > MOST_CHARACTERS:
            break
    else:
        if plugin is status.plugin:
            return status
    return Status(status.code, tuple(map(_valid_reason, reasons)), plugin, status.timeout_seconds)


def _valid_reason(reason: str) -> str:
    # The apiserver takes no condition of megabytes, and nobody would learn why the pod waits.
    return shortened(valid_text("reason", reason), MOST_CHARACTERS)


def code_of(status: Status | None) -> Code:
    """Return the code of a status, where None is success."""
    return SUCCESS if status is None else status.code
