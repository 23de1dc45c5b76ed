"""The history of attempts of what waits in the scheduling queue: a pod, or a whole PodGroup."""

from __future__ import annotations

import msgspec
from msgspec import Struct


class QueueingParams(Struct, eq=False, kw_only=True):
    """What the queue knows about an entity, besides what it is (kube-scheduler's type of the name).

    ``attempts``: how often it was tried; ``unschedulable_count``, how often it was rejected;
    ``consecutive_errors_count``, how many attempts in a row failed with an error.
    ``initial_attempt_timestamp`` (None: not tried yet) and ``backoff_expiration`` (None: not in
    back-off): in seconds of ``Clock.monotonic``. ``unschedulable_plugins`` and ``pending_plugins``:
    the plugins that rejected it, kept after the pop until an attempt fails. ``gating_plugin``: the
    PreEnqueue plugin that gates it, or "". ``flush_timestamp``: when the flush of pods that waited
    too long last moved it, or tried to.
    """

    attempts: int = 0
    unschedulable_count: int = 0
    consecutive_errors_count: int = 0
    backoff_expiration: float | None = None
    initial_attempt_timestamp: float | None = None
    unschedulable_plugins: set[str] = msgspec.field(default_factory=set)
    pending_plugins: set[str] = msgspec.field(default_factory=set)
    gating_plugin: str = ""
    was_flushed_from_unschedulable: bool = False
    flush_timestamp: float = 0.0
    cost_seconds: float = 0.0
    """The computing time of its last attempt if that delayed other pods, else 0."""
    consecutive_overruns: int = 0
    """How many attempts in a row exceeded their time budget."""

    @property
    def gated(self) -> bool:
        """Whether a PreEnqueue plugin gates it."""
        return bool(self.gating_plugin)

    @property
    def costly(self) -> bool:
        """Whether its last attempt delayed other pods."""
        return self.cost_seconds > 0

    def set_was_flushed_from_unschedulable(self, flushed: bool) -> None:
        """Record whether its next attempt is due to the flush; for each pod of a group too."""
        self.was_flushed_from_unschedulable = flushed

    @property
    def rejectors(self) -> set[str]:
        """All plugins that rejected it."""
        return self.unschedulable_plugins | self.pending_plugins
