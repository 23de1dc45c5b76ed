"""deploy/crds: every field that an add-on reads is in the definition of its kind.

The apiserver drops what a definition does not have: a field that is missing there would be empty,
without a word. The real apiserver accepts them in tests/controlplane.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from proreus.addons.capacity_scheduling.queue_objects import KAI_QUEUES, VOLCANO_QUEUES
from proreus.addons.capacity_scheduling.quotas import ELASTIC_QUOTAS
from proreus.addons.coscheduling.groups import GANGS, VOLCANO_GANGS
from proreus.addons.device_share.devices import DEVICES
from proreus.addons.group_topology.hyper_nodes import HYPER_NODES
from proreus.addons.network_aware.objects import APP_GROUPS, NETWORK_TOPOLOGIES
from proreus.addons.node_resource_topology_match.zones import NODE_RESOURCE_TOPOLOGIES
from proreus.addons.reservation.objects import RESERVATIONS
from proreus.addons.sysched import SECCOMP_PROFILES
from proreus.objects import ApiStruct, Resource

Json = dict[str, Any]

CRDS = Path(__file__).parents[3] / "deploy" / "crds"
FILES = {
    "appgroup": APP_GROUPS,
    "device": DEVICES,
    "elasticquota": ELASTIC_QUOTAS,
    "hypernode": HYPER_NODES,
    "kai-queue": KAI_QUEUES,
    "networktopology": NETWORK_TOPOLOGIES,
    "noderesourcetopology": NODE_RESOURCE_TOPOLOGIES,
    "podgroup": GANGS,
    "reservation": RESERVATIONS,
    "seccompprofile": SECCOMP_PROFILES,
    "volcano-podgroup": VOLCANO_GANGS,
    "volcano-queue": VOLCANO_QUEUES,
}
OF_ANOTHER_KIND = {
    "podgroup": {".spec.minTaskMember", ".spec.networkTopology"},
    "reservation": {".spec.owners[].object.controller"},
}
"""Fields that are read because two kinds are one type here."""


def missing(type_: msgspec.inspect.Type, schema: Json, path: str = "") -> Iterator[str]:
    """Yield the paths of fields of a type that a schema does not have."""
    match type_:
        case msgspec.inspect.UnionType():
            for one in type_.types:
                yield from missing(one, schema, path)
        case msgspec.inspect.StructType():
            for field in type_.fields:
                inner = f"{path}.{field.encode_name}"
                known = schema.get("properties", {}).get(field.encode_name)
                if inner == ".metadata" or (known is None and is_open(schema)):
                    continue
                if known is None:
                    yield inner
                else:
                    yield from missing(field.type, known, inner)
        case msgspec.inspect.VarTupleType():
            if "items" not in schema:
                yield f"{path}[]"
            else:
                yield from missing(type_.item_type, schema["items"], f"{path}[]")
        case msgspec.inspect.DictType() if not is_open(schema):
            if "additionalProperties" not in schema:
                yield f"{path}{{}}"


def is_open(schema: Json) -> bool:
    return schema.get("x-kubernetes-preserve-unknown-fields") is True


def definition(name: str) -> Json:
    found: Json = yaml.safe_load((CRDS / f"{name}.yaml").read_text())
    return found


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_definition_has_all_that_is_read(name: str) -> None:
    resource: Resource[Any] = FILES[name]
    spec = definition(name)["spec"]
    [version] = spec["versions"]
    assert (spec["group"], version["name"]) == (resource.group, resource.version)
    names = spec["names"]
    assert (names["plural"], names["kind"]) == (resource.plural, resource.kind)
    assert (spec["scope"] == "Namespaced") == resource.namespaced
    schema = version["schema"]["openAPIV3Schema"]
    found = set(missing(msgspec.inspect.type_info(resource.type), schema))
    assert found == OF_ANOTHER_KIND.get(name, set())


class Inner(ApiStruct, frozen=True):
    first_name: str = ""


class Outer(ApiStruct, frozen=True):
    inner: Inner | None = None
    listed: tuple[Inner, ...] = ()
    amounts: dict[str, int] = {}


def test_finds_missing_fields() -> None:
    some = {"properties": {}}
    schema = {"properties": {"inner": some, "listed": {"items": some}, "amounts": {}}}
    assert list(missing(msgspec.inspect.type_info(Outer), schema)) == [
        ".inner.firstName",
        ".listed[].firstName",
        ".amounts{}",
    ]


def test_all_of_them_are_installed_together() -> None:
    listed = yaml.safe_load((CRDS / "kustomization.yaml").read_text())["resources"]
    assert sorted(listed) == sorted(f"{name}.yaml" for name in FILES)
    files = {path.name for path in CRDS.glob("*.yaml")} - {"kustomization.yaml"}
    assert set(listed) == files
