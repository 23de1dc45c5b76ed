"""LeaderWorkerSets, as far as they say whether the pods of a group exist at the same time."""

from __future__ import annotations

from proreus.objects import ApiStruct, ObjectMeta, Resource

EXCLUSIVE_TOPOLOGY = "leaderworkerset.sigs.k8s.io/exclusive-topology"
"""The annotation with which each group has a topology domain of its own: the leader's, which its
workers select, so that they are created once the leader has a node."""


class LeaderWorkerSetSpec(ApiStruct, frozen=True):
    """``startup_policy``: with ``LeaderReady`` the workers are created once the leader is ready."""

    startup_policy: str = "LeaderCreated"


class LeaderWorkerSet(ApiStruct, frozen=True):
    """A LeaderWorkerSet of leaderworkerset.x-k8s.io/v1."""

    metadata: ObjectMeta = ObjectMeta()
    spec: LeaderWorkerSetSpec = LeaderWorkerSetSpec()

    @property
    def starts_together(self) -> bool:
        """Whether the workers of a group are created before its leader has a node."""
        return (
            self.spec.startup_policy != "LeaderReady"
            and EXCLUSIVE_TOPOLOGY not in self.metadata.annotations
        )


LEADER_WORKER_SETS = Resource(
    "leaderworkerset.x-k8s.io",
    "v1",
    "leaderworkersets",
    "LeaderWorkerSet",
    True,
    LeaderWorkerSet,
    custom=True,
)
