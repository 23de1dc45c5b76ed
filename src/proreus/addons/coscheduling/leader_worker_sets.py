"""LeaderWorkerSets, as far as they say whether the pods of a group exist at the same time."""

from __future__ import annotations

from proreus.objects import ApiStruct, ObjectMeta, Resource


class LeaderWorkerSetSpec(ApiStruct, frozen=True):
    """``startup_policy``: with ``LeaderReady`` the workers are created once the leader is ready."""

    startup_policy: str = "LeaderCreated"


class LeaderWorkerSet(ApiStruct, frozen=True):
    """A LeaderWorkerSet of leaderworkerset.x-k8s.io/v1."""

    metadata: ObjectMeta = ObjectMeta()
    spec: LeaderWorkerSetSpec = LeaderWorkerSetSpec()

    @property
    def starts_together(self) -> bool:
        """Whether the leader of a group needs none of its workers to become ready."""
        return self.spec.startup_policy != "LeaderReady"


LEADER_WORKER_SETS = Resource(
    "leaderworkerset.x-k8s.io",
    "v1",
    "leaderworkersets",
    "LeaderWorkerSet",
    True,
    LeaderWorkerSet,
    custom=True,
)
