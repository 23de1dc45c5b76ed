"""The preemptions whose victims are being evicted in the background, for the gate PreEnqueue.

kube-scheduler's ``IsPodRunningPreemption`` and ``IsPodGroupRunningPreemption``, with the pods that
wait for each.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from msgspec import Struct, field

from proreus.objects.meta import key_of
from proreus.objects.pod import Pod


class RunningPreemption(Struct, eq=False):
    """A preemption whose victims are being evicted. ``uid``: of its preemptor."""

    uid: str
    last: Pod | None = None
    """The last victim, from when its eviction starts."""
    gated_pods: set[str] = field(default_factory=set)
    """``namespace/name`` of the pods that PreEnqueue has rejected for it."""


class RunningPreemptions:
    """The running preemptions of one profile. ``pods``: the informer's store.

    A preemption ends when the watch reports the last victim as terminating or deleted, and not when
    the apiserver has accepted the request. Without a grace period it has to be deleted.
    """

    # Ended earlier, the preemptor might be scheduled before that watch event: it would find its
    # node full and evict other pods elsewhere.
    #
    # `ungated_by` is called for every pod that is deleted. A thousand preemptors may wait for three
    # thousand victims, so that its cost has to depend on what has changed: hence the indexes.
    #
    # Invariant: _by_last has those of _by_uid that have a last victim, by its UID;
    # _awaiting_deletion has those of them whose last victim's deletion was accepted and not seen.

    def __init__(self, pods: Mapping[str, Pod]) -> None:
        self._pods = pods
        self._by_uid: dict[str, RunningPreemption] = {}
        self._by_last: dict[str, dict[RunningPreemption, None]] = {}
        self._awaiting_deletion: dict[RunningPreemption, None] = {}
        self._ungated: dict[str, None] = {}
        """Keys of gated pods whose preemption has ended, until ``is_gated`` is called for them."""

    # ---- for PreEnqueue --------------------------------------------------------------------------

    def is_running(self, uid: str) -> bool:
        """Return whether a preemptor's victims are still being evicted; end it if they are not."""
        running = self._by_uid.get(uid)
        if running is None:
            return False
        if running.last is None or not self._is_terminating(running.last):
            return True
        self.end(running)
        return False

    @property
    def is_idle(self) -> bool:
        """Whether no pod waits for a preemption, nor is to be told that one has ended."""
        return not (self._by_uid or self._ungated)

    def is_gated(self, uid: str, key: str) -> bool:
        """Return whether a pod has to wait for a preemptor's victims.

        If so, ``ungated_by`` returns it once they are gone.
        """
        if self.is_running(uid):
            self._by_uid[uid].gated_pods.add(key)
            return True
        self._ungated.pop(key, None)
        return False

    def ungated_by(self, gone: str) -> Collection[str]:
        """Return the keys of gated pods whose preemption has ended, after a pod was deleted.

        A key is returned until ``is_gated`` is called for it. ``gone``: the deleted pod's UID.
        """
        # Preemptions that await a deletion too: the watch may report that one along with this.
        for running in (*self._by_last.get(gone, ()), *self._awaiting_deletion):
            self.is_running(running.uid)
        # A gated pod that was deleted itself never reaches `is_gated` again.
        for key in [key for key in self._ungated if key not in self._pods]:
            del self._ungated[key]
        return tuple(self._ungated)

    def is_ungated(self, key: str) -> bool:
        """Return whether a pod was gated for a preemption that has ended, and is to be queued."""
        return key in self._ungated

    def _is_terminating(self, victim: Pod) -> bool:
        # Another UID: the victim is gone and a pod of its name was created since.
        live = self._pods.get(key_of(victim))
        if live is None or live.metadata.uid != victim.metadata.uid:
            return True
        metadata = live.metadata
        if metadata.deletion_grace_period_seconds == 0 and not metadata.finalizers:
            # It is deleted at once. Until then the node is full, and the preemptor would only be
            # rejected again, and have to back off.
            return False
        return metadata.deletion_timestamp is not None

    # ---- for Evictor -----------------------------------------------------------------------------

    def begin(self, uid: str) -> RunningPreemption:
        """Start a preemption; an older one of the same preemptor ends."""
        before = self._by_uid.get(uid)
        if before is not None:
            self.end(before)
        running = self._by_uid[uid] = RunningPreemption(uid)
        if before is not None:
            running.gated_pods |= before.gated_pods
        return running

    def set_last_victim(self, running: RunningPreemption, victim: Pod) -> None:
        """Record that all other victims have been deleted, and that this one is next."""
        if self._by_uid.get(running.uid) is running:
            running.last = victim
            self._by_last.setdefault(victim.metadata.uid, {})[running] = None

    def last_victim_deleted(self, running: RunningPreemption) -> None:
        """Record that the last victim was deleted; the watch event ends the preemption."""
        if self._by_uid.get(running.uid) is running:
            self._awaiting_deletion[running] = None
            # The watch event may have come before the response.
            self.is_running(running.uid)

    def missed_by(self, running: RunningPreemption) -> Collection[str]:
        """Return the pods that no event has queued since a preemption ended, which gated them.

        The last victim may have gone while its eviction had not begun: then the event of that found
        them gated, and another one does not come.
        """
        if self._by_uid.get(running.uid) is running:
            return ()
        return [key for key in running.gated_pods if key in self._ungated]

    def end(self, running: RunningPreemption) -> None:
        """End a preemption, so that its gated pods may be queued."""
        # `begin` has ended and replaced it, or the watch event came first.
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
