"""Preemptions that go on, and the pods that have to wait for them.

What is asked with every pod that goes (whom does that let in?) must cost what has changed, not what
is waiting: a thousand preemptors may wait for three thousand victims.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from proreus.objects.meta import key_of
from proreus.objects.pod import Pod


@dataclass(eq=False, slots=True)
class RunningPreemption:
    """One preemption. ``uid``: the preemptor's; ``gated_pods``: keys of the pods that wait for
    it."""

    uid: str
    last: Pod | None = None
    """The last victim, once that one is being evicted.

    Until it is seen to go the preemption goes on: were the preemptor tried between the apiserver's
    answer and the watch event, it would find its node full and evict others elsewhere.
    """
    gated_pods: set[str] = field(default_factory=set)


class RunningPreemptions:
    """All of one profile. ``pods``: what the watch says of pods, by ``namespace/name``."""

    # Invariant: _by_last has those of _by_uid that have a last victim, by its UID; _unseen has
    # those of them whose last victim was deleted and is not seen to go yet.

    def __init__(self, pods: Mapping[str, Pod]) -> None:
        self._pods = pods
        self._by_uid: dict[str, RunningPreemption] = {}
        self._by_last: dict[str, dict[RunningPreemption, None]] = {}
        self._awaiting_deletion: dict[RunningPreemption, None] = {}
        self._ungated: dict[str, None] = {}
        """Keys of pods that were kept out and have not been asked about since that ended."""

    # ---- asked by the gate ---------------------------------------------------------------------

    def is_running(self, uid: str) -> bool:
        """Tell whether a preemptor's victims are still being evicted."""
        running = self._by_uid.get(uid)
        if running is None:
            return False
        if running.last is None or not self._is_terminating(running.last):
            return True
        self.end(running)
        return False

    def is_gated(self, uid: str, key: str) -> bool:
        """Tell whether a pod has to wait for a preemptor's victims; if so, ``ungated_by`` names
        it."""
        if self.is_running(uid):
            self._by_uid[uid].gated_pods.add(key)
            return True
        self._ungated.pop(key, None)
        return False

    def ungated_by(self, gone: str) -> Collection[str]:
        """Return the pods that were kept out and need not be any more, now that a pod is gone.

        A pod is named until ``is_gated`` is asked about it. ``gone``: UID.
        """
        for running in (*self._by_last.get(gone, ()), *self._awaiting_deletion):
            self.is_running(running.uid)
        for key in [key for key in self._ungated if key not in self._pods]:
            del self._ungated[key]
        return tuple(self._ungated)

    def _is_terminating(self, victim: Pod) -> bool:
        live = self._pods.get(key_of(victim))
        if live is None or live.metadata.uid != victim.metadata.uid:
            return True
        return live.metadata.deletion_timestamp is not None

    # ---- told by the eviction ------------------------------------------------------------------

    def begin(self, uid: str) -> RunningPreemption:
        """Note a new preemption."""
        before = self._by_uid.get(uid)
        if before is not None:
            self.end(before)
        running = self._by_uid[uid] = RunningPreemption(uid)
        return running

    def set_last_victim(self, running: RunningPreemption, victim: Pod) -> None:
        """Note that all other victims have been deleted, and that this one is about to be."""
        if self._by_uid.get(running.uid) is running:
            running.last = victim
            self._by_last.setdefault(victim.metadata.uid, {})[running] = None

    def last_victim_deleted(self, running: RunningPreemption) -> None:
        """Note that the last victim was deleted; the preemption ends once that is seen."""
        if self._by_uid.get(running.uid) is running:
            self._awaiting_deletion[running] = None
            self.is_running(running.uid)

    def end(self, running: RunningPreemption) -> None:
        """Note that nobody has to wait any more."""
        if self._by_uid.get(running.uid) is not running:
            return
        del self._by_uid[running.uid]
        self._awaiting_deletion.pop(running, None)
        if running.last is not None:
            others = self._by_last[running.last.metadata.uid]
            del others[running]
            if not others:
                del self._by_last[running.last.metadata.uid]
        self._ungated.update(dict.fromkeys(running.gated_pods))
