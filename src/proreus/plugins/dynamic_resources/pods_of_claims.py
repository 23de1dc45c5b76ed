"""The pods that use each ResourceClaim: an event of a claim concerns few of all that wait."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from proreus.framework.handle import Handle
from proreus.objects.kinds import PODS
from proreus.objects.meta import key_of
from proreus.objects.pod import Pod
from proreus.objects.resource_claims import ResourceClaim
from proreus.plugins.dynamic_resources.claims import ClaimError, claim_name


class PodsOfClaims:
    """Keys of pods by key of a claim (``namespace/name`` both), kept up to date pod by pod."""

    # Invariant: a pod is under exactly the keys that _claim_keys yields for its latest version, and
    # no entry is empty.

    def __init__(self, handle: Handle) -> None:
        self._pods: dict[str, set[str]] = {}
        handle.on_change(PODS, self._pod_changed, with_provided=True)

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        # Asked first: this is called for every change of every pod.
        if old is not None and old.spec.resource_claims:
            for key in _claim_keys(old):
                pods = self._pods.get(key, set())
                pods.discard(key_of(old))
                if not pods:
                    self._pods.pop(key, None)
        if new is not None and new.spec.resource_claims:
            for key in _claim_keys(new):
                self._pods.setdefault(key, set()).add(key_of(new))

    def concerned_by(
        self, old: ResourceClaim | None, new: ResourceClaim | None
    ) -> Collection[str] | None:
        """Return the pods that a change of a claim may help; None means any pod."""
        # Devices that are free now may be what any pod waits for.
        freed = new is None or new.status.allocation is None
        if old is not None and old.status.allocation is not None and freed:
            return None
        return frozenset(self.ungated_by(old, new))

    def ungated_by(self, old: ResourceClaim | None, new: ResourceClaim | None) -> Collection[str]:
        """Return the pods that PreEnqueue may judge otherwise after a change of a claim."""
        claim = old if new is None else new
        assert claim is not None
        return self._pods.get(key_of(claim), ())


def _claim_keys(pod: Pod) -> Iterator[str]:
    for entry in pod.spec.resource_claims:
        try:
            name = claim_name(pod, entry)
        except ClaimError:
            continue
        if name is not None:
            yield f"{pod.metadata.namespace}/{name}"
