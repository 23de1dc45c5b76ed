"""Keys, owners and paths."""

from __future__ import annotations

import pytest

from proreus.objects.codec import decoder_for
from proreus.objects.kinds import BY_KIND, NODES, PODS
from proreus.objects.meta import ObjectMeta, OwnerReference, Resource, controller_of, key_of
from proreus.objects.node import Node
from proreus.objects.pod import Pod


def test_keys() -> None:
    assert key_of(Pod(metadata=ObjectMeta(name="a", namespace="b"))) == "b/a"
    assert key_of(Node(metadata=ObjectMeta(name="a"))) == "a"


def test_the_controller_is_the_owner_that_says_so() -> None:
    owners = (OwnerReference(name="a"), OwnerReference(name="b", controller=True))

    assert controller_of(ObjectMeta(owner_references=owners)) == owners[1]
    assert controller_of(ObjectMeta(owner_references=owners[:1])) is None


@pytest.mark.parametrize(
    ("resource", "parts", "path"),
    [
        (PODS, (), "/api/v1/pods"),
        (PODS, ("x",), "/api/v1/namespaces/x/pods"),
        (PODS, ("x", "a", "binding"), "/api/v1/namespaces/x/pods/a/binding"),
        (NODES, (None, "n1"), "/api/v1/nodes/n1"),
        (NODES, ("ignored", "n1"), "/api/v1/nodes/n1"),
        (PODS, ("x", "a:b_c.d"), "/api/v1/namespaces/x/pods/a:b_c.d"),
        # What no apiserver stores, but annotations and files of others may have as a name.
        (PODS, ("../y", "a/../b"), "/api/v1/namespaces/..%2Fy/pods/a%2F..%2Fb"),
        (PODS, ("x", "a b?c#d%2F"), "/api/v1/namespaces/x/pods/a%20b%3Fc%23d%252F"),
        (PODS, ("x", "zoë\r\nHost: y"), "/api/v1/namespaces/x/pods/zo%C3%AB%0D%0AHost:%20y"),
        (PODS, ("x", ".."), "/api/v1/namespaces/x/pods/%2E%2E"),
        (PODS, ("x", "a\ud800"), "/api/v1/namespaces/x/pods/a%3F"),
    ],
)
def test_paths(resource: Resource[object], parts: tuple[str | None, ...], path: str) -> None:
    assert resource.path(*parts) == path


def test_kinds_are_found_under_their_names() -> None:
    assert all(resource.kind == kind for kind, resource in BY_KIND.items())
    assert BY_KIND["ResourceClaim"].path("x", "c") == (
        "/apis/resource.k8s.io/v1/namespaces/x/resourceclaims/c"
    )


@pytest.mark.parametrize(
    ("kind", "count"), [("Node", 0), ("PersistentVolume", 0), ("Pod", 1), ("ReplicaSet", 1)]
)
def test_owners_that_nobody_reads_are_not_decoded(kind: str, count: int) -> None:
    owner = {"apiVersion": "v1", "kind": "Job", "name": "j", "uid": "u", "controller": True}
    metadata = {"name": "a", "labels": {"b": "c"}, "ownerReferences": [owner]}
    obj = decoder_for(BY_KIND[kind].type).convert({"metadata": metadata})
    assert obj.metadata.labels == {"b": "c"}
    assert len(obj.metadata.owner_references) == count
