"""Verdicts as values: what a plugin answers about a pod.

No status (None) is success. Codes, and what each leads to at each extension point, are
kube-scheduler's; a bug in a plugin is an exception, not a status.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from numbers import Real


class Code(IntEnum):
    """kube-scheduler's status codes, with its numbers; ``label`` is the name that it shows."""

    SUCCESS = 0
    ERROR = 1
    UNSCHEDULABLE = 2
    UNRESOLVABLE = 3
    WAIT = 4
    SKIP = 5
    PENDING = 6

    @property
    def label(self) -> str:
        """The name in metrics and recorded answers, e.g. ``UnschedulableAndUnresolvable``."""
        return _LABELS[self]


SUCCESS, ERROR, SKIP = Code.SUCCESS, Code.ERROR, Code.SKIP
"""For those who ask dozens of times a pod: by way of the enum it takes 0.1 microseconds each."""

_LABELS = (
    "Success",
    "Error",
    "Unschedulable",
    "UnschedulableAndUnresolvable",
    "Wait",
    "Skip",
    "Pending",
)
_REJECTED = frozenset({Code.UNSCHEDULABLE, Code.UNRESOLVABLE, Code.PENDING})


@dataclass(frozen=True, slots=True)
class Status:
    """A plugin's verdict: a code, its reasons, and the plugin that gave it.

    ``timeout_seconds`` belongs to Wait. The runtime fills in ``plugin``.
    """

    code: Code
    reasons: tuple[str, ...] = ()
    plugin: str = ""
    timeout_seconds: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what no status is made of, while whoever made it can still be told from its line.

        Later it would be the scheduler that fails, and not the plugin.
        """
        if not isinstance(self.code, Code):
            raise TypeError(f"code must be a Code, not {self.code!r}")
        if not isinstance(self.reasons, tuple):
            raise TypeError(f"reasons must be a tuple of texts, not {self.reasons!r}")
        for reason in self.reasons:
            if not isinstance(reason, str):
                raise TypeError(f"reasons must be texts, not {reason!r}")
        seconds: object = self.timeout_seconds
        if seconds != 0.0 and not (isinstance(seconds, Real) and seconds == seconds):
            raise TypeError(f"timeout_seconds must be a number, not {seconds!r}")

    @classmethod
    def unschedulable(cls, *reasons: str) -> Status:
        """Not here, not now; preemption may help."""
        return cls(Code.UNSCHEDULABLE, reasons)

    @classmethod
    def unresolvable(cls, *reasons: str) -> Status:
        """Not here, and preemption would not help either (UnschedulableAndUnresolvable)."""
        return cls(Code.UNRESOLVABLE, reasons)

    @classmethod
    def pending(cls, *reasons: str) -> Status:
        """Rejected while something is under way; its end wakes the pod without back-off."""
        return cls(Code.PENDING, reasons)

    @staticmethod
    @cache  # one for all: most plugins skip most pods
    def skip() -> Status:
        """This plugin has nothing to say about this pod."""
        return Status(Code.SKIP)

    @classmethod
    def wait(cls, timeout_seconds: float, *reasons: str) -> Status:
        """Permit only: hold the pod until it is allowed, rejected, or the time is over."""
        return cls(Code.WAIT, reasons, timeout_seconds=timeout_seconds)

    @classmethod
    def error(cls, text: str) -> Status:
        """Something went wrong; the attempt fails and the pod is tried again after a back-off."""
        return cls(Code.ERROR, (text,))

    @property
    def rejected(self) -> bool:
        """Whether the pod was turned down, as opposed to accepted, put off or failed."""
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


def code_of(status: Status | None) -> Code:
    """Return the code of a status, where None is success."""
    return SUCCESS if status is None else status.code
