"""A plugin over a small cluster, and a pod on its way through it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from proreus.framework.cycle_state import CycleState
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Status
from proreus.framework.verdicts import Verdicts
from proreus.objects.kinds import PODS
from proreus.objects.node import Node
from proreus.objects.storage import PersistentVolume, PersistentVolumeClaim
from proreus.plugins.volume_binding import VolumeBinding
from proreus.testing import FakeHandle, make_node, make_plugin, make_pod
from proreus.testing.agreement import assert_agreement
from proreus.testing.volumes import spec_with_claims

NODES = (
    make_node("a1", labels={"zone": "a"}),
    make_node("a2", labels={"zone": "a"}),
    make_node("b1", labels={"zone": "b"}),
)


class Attempt:
    """One attempt to schedule a pod with claims, or with any ``volumes``."""

    def __init__(
        self,
        objects: list[dict[str, Any]],
        *claims: str,
        volumes: list[dict[str, Any]] | None = None,
        nodes: tuple[Node, ...] = NODES,
        gates: tuple[str, ...] = (),
        args: dict[str, Any] | None = None,
    ) -> None:
        spec = spec_with_claims(*claims) if volumes is None else {"volumes": volumes}
        self.pod: PodInfo = make_pod("p", spec=spec)
        self.handle = FakeHandle(nodes, objects=objects, gates=gates)
        self.handle.api.put(PODS, self.pod.pod)
        self.plugin = make_plugin(VolumeBinding, self.handle, args)
        self.state = CycleState()

    def pre_filter(self) -> Status | None:
        self.state = CycleState()
        return self.plugin.pre_filter(self.state, self.pod, self.handle.nodes)

    def filter(self) -> dict[str, list[str] | str]:
        """Return the reasons by node, in their order; an error as a plain text."""
        assert self.pre_filter() is None
        assert_agreement(self.plugin, self.pod, self.handle.nodes)
        verdicts = Verdicts(len(self.handle.nodes), self.plugin.name)
        self.plugin.filter_all(self.state, self.pod, self.handle.nodes, verdicts)
        results: dict[str, list[str] | str] = {}
        for row, node in enumerate(self.handle.nodes):
            status = verdicts.status(row)
            if status is not None and status.code == Status.error("").code:
                results[node.name] = status.message
            else:
                assert status is None or status.code == Status.unresolvable().code
                results[node.name] = [] if status is None else list(status.reasons)
        return results

    def reserve(self, node_name: str) -> Status | None:
        assert self.pre_filter() is None
        return self.plugin.reserve(self.state, self.pod, node_name)

    def pre_flight(self, node_name: str) -> Status | None:
        return self.plugin.pre_bind_pre_flight(self.state, self.pod, node_name)

    def volume(self, name: str) -> PersistentVolume:
        """Return a volume as the plugin sees it."""
        found = self.plugin._storage.volumes.get(name)
        assert found is not None
        return found

    def claim(self, name: str) -> PersistentVolumeClaim:
        """Return a claim as the plugin sees it."""
        found = self.plugin._storage.claims.get(f"default/{name}")
        assert found is not None
        return found


@pytest.fixture
def attempt() -> Callable[..., Attempt]:
    """Make an attempt: ``attempt(objects, *claims)``."""
    return Attempt
