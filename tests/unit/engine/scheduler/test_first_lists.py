"""A start with pods that are gated: what is done for them does not grow with the other objects."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from proreus.objects.kinds import NODES, PODS
from proreus.objects.meta import Resource, key_of
from proreus.objects.resource_claims import RESOURCE_CLAIMS, ResourceClaim
from proreus.plugins.dynamic_resources import DynamicResources, pre_filtering
from proreus.testing import Harness, make_node, make_pod


class Lists:
    """The first lists of informers, for the handlers of a scheduler."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._handlers: dict[str, list[Any]] = {}
        with monkeypatch.context() as patch:
            patch.setattr("proreus.offline.api.InMemoryApi.add_handler", self._add_handler)
            self.cluster = Harness()

    def _add_handler(self, resource: Resource[Any], handler: Any) -> None:
        self._handlers.setdefault(resource.id, []).append(handler)

    def fill(self, resource: Resource[Any], objects: Iterable[Any]) -> None:
        """Put the objects into the store, and then call the handlers, as an informer does."""
        for obj in objects:
            self.cluster.api.put(resource, obj)
        stored = [*self.cluster.api.store(resource).values()]
        for handler in self._handlers[resource.id]:
            handler.on_add_all(stored)


def claim(name: str) -> ResourceClaim:
    metadata = ResourceClaim().metadata
    return ResourceClaim(metadata=type(metadata)(name=name, namespace="default", uid=name))


def user(name: str) -> Any:
    claims = [{"name": "r", "resourceClaimName": name}]
    return make_pod(name, spec={"resourceClaims": claims}).pod


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Keys of the pods that PreEnqueue and the hints of DynamicResources look at."""
    looked_at: list[str] = []
    claims_of = pre_filtering.claims_of

    def counting(pod: Any, *more: Any) -> Any:
        looked_at.append(key_of(pod))
        return claims_of(pod, *more)

    monkeypatch.setattr(pre_filtering, "claims_of", counting)
    return looked_at


@pytest.mark.parametrize("number", [5, 20])
def test_pods_with_claims_are_looked_at_once_a_list(
    monkeypatch: pytest.MonkeyPatch, counted: list[str], number: int
) -> None:
    lists = Lists(monkeypatch)
    names = [f"pod-{i}" for i in range(number)]

    lists.fill(PODS, map(user, names))
    lists.fill(NODES, [make_node(f"n{i}") for i in range(2 * number)])
    assert len(counted) == number
    assert not lists.cluster.scheduler.queue.active_pods()

    lists.fill(RESOURCE_CLAIMS, map(claim, names))
    assert len(counted) == 2 * number
    assert len(lists.cluster.scheduler.queue.active_pods()) == number


def test_a_node_that_joins_later_ungates_no_pod_with_claims(counted: list[str]) -> None:
    cluster = Harness(objects=[user("a"), user("b")])
    counted.clear()

    cluster.add(make_node("n"))
    assert counted == []

    cluster.put(RESOURCE_CLAIMS, claim("a"))
    assert {*counted} == {"default/a"}
    assert cluster.queue_of("a") == "active"
    assert cluster.queue_of("b") == "gated"
    assert isinstance(cluster.plugin(DynamicResources), DynamicResources)
