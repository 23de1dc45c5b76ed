"""Redaction: nothing identifying is left, and decisions are the recorded ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from proreus.engine.runtime.registry import Registry
from proreus.insight.snapshots.cluster_objects import ClusterObjects
from proreus.objects.codec import decoder_for, to_plain
from proreus.objects.kinds import BY_KIND, PODS
from proreus.objects.meta import key_of
from proreus.offline.evaluate import evaluate, read_cases
from proreus.plugins import IN_TREE_PLUGINS
from proreus.plugins.dynamic_resources.devices.kinds import DeviceKind
from proreus.plugins.dynamic_resources.features import Features
from proreus.workbench.simulation.redaction import is_meaningful, redact, replacements_for

CASES = Path(__file__).parents[3] / "conformance" / "cases"
FAMILIES = ("1.37/mixed", "1.37/interpod", "1.37/spread", "1.37/nodeaff", "1.37/taint")
VOLUMES_AND_DEVICES = ("1.37/volume", "1.37/image", "1.37/services", "1.37/dra", "1.36/preempt")
A_FAMILY = 40


def cluster_of(case: dict[str, Any]) -> ClusterObjects:
    objects = ClusterObjects()
    for obj in (*case["objects"], {"kind": "Pod", **case["pod"]}):
        resource = BY_KIND[obj["kind"]]
        objects.put(resource, decoder_for(resource.type).convert(obj))
    return objects


def plain_case(case: dict[str, Any], objects: ClusterObjects, pod_key: str) -> dict[str, Any]:
    plain = [(r, o, {**to_plain(o), "kind": r.kind}) for r, o in objects]
    others = [one for r, o, one in plain if not (r is PODS and key_of(o) == pod_key)]
    pod = objects.of(PODS)[pod_key]
    return {**case, "objects": others, "pod": to_plain(pod)}


def decide(case: dict[str, Any]) -> Any:
    (answer,) = evaluate([case], Registry(IN_TREE_PLUGINS))
    return answer["expect"]


def with_names(value: Any, names: dict[str, str]) -> Any:
    """Return a decision with the names of nodes and pods replaced, and lists of them sorted."""
    if isinstance(value, dict):
        return {names.get(key, key): with_names(one, names) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return sorted((with_names(one, names) for one in value), key=repr)
    return names.get(value, value) if isinstance(value, str) else value


def without_texts(value: Any) -> Any:
    """Leave out messages and reasons: names of claims and taints are parts of sentences there."""
    if isinstance(value, dict):
        return {
            key: without_texts(one)
            for key, one in value.items()
            if key not in ("message", "reasons", "error")
        }
    return [without_texts(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("family", [*FAMILIES, *VOLUMES_AND_DEVICES])
def test_decisions_about_a_redacted_cluster_are_the_same(family: str) -> None:
    compared = 0
    for case in read_cases(CASES / f"{family}.jsonl.gz"):
        if "pod" not in case or "extenders" in case or compared == A_FAMILY:
            continue
        before = cluster_of(case)
        # Configurations of these cases name labels.
        replacements = replacements_for(before, ["disk"] if "config" in case else ())
        after = redact(before, replacements)
        pod_key = key_of(decoder_for(PODS.type).convert(case["pod"]))
        redacted_key = list(after.of(PODS))[list(before.of(PODS)).index(pod_key)]
        names = {new: old for old, new in replacements.items()}
        expected = decide(plain_case(case, before, pod_key))
        found = decide(plain_case(case, after, redacted_key))
        assert without_texts(with_names(found, names)) == without_texts(with_names(expected, {})), (
            case["id"]
        )
        compared += 1
    assert compared > 10


@pytest.mark.parametrize("family", [*FAMILIES, *VOLUMES_AND_DEVICES])
def test_no_name_and_no_label_is_left(family: str) -> None:
    for case in list(read_cases(CASES / f"{family}.jsonl.gz"))[:A_FAMILY]:
        if "pod" not in case:
            continue
        objects = cluster_of(case)
        identifying = set[str]()
        for resource, obj in objects:
            if resource.kind in ("CSIDriver", "DeviceClass"):
                continue
            meta = obj.metadata
            identifying |= {meta.name, meta.namespace, *meta.labels, *meta.labels.values()}
        identifying = {
            text for text in identifying if len(text) > 2 and not is_meaningful(text)
        } - _names_of_devices(objects)
        for resource, obj in redact(objects):
            found = set(_texts(to_plain(obj))) & identifying
            assert not found, (resource.kind, msgspec.json.encode(obj))


def _names_of_devices(objects: ClusterObjects) -> set[str]:
    """What CEL expressions may contain, and so has to stay."""
    found: set[str] = set()
    for resource, obj in objects:
        if resource.kind in ("ResourceSlice", "ResourceClaim", "DeviceClass", "DeviceTaintRule"):
            plain = to_plain(obj)
            found |= set(_texts(plain.get("spec", {}))) | set(_texts(plain.get("status", {})))
    return found


def _texts(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [
            text
            for key, one in value.items()
            if key not in ("ports", "requests", "limits")
            for text in (key, *_texts(one))
        ]
    if isinstance(value, list | tuple):
        return [text for one in value for text in _texts(one)]
    return [value] if isinstance(value, str) else []


def test_redacting_twice_gives_the_same() -> None:
    case = next(read_cases(CASES / "1.37" / "mixed.jsonl.gz"))
    first, second = (redact(cluster_of(case)) for _ in range(2))
    assert [obj for _, obj in first] == [obj for _, obj in second]


@pytest.mark.parametrize(
    "text",
    [
        *("topology.kubernetes.io/zone", "kube-system", "default", "metadata.name", "17", "-3"),
        *("true", "1.25", "10Gi", "100m", "1.2.3", "hugepages-2Mi", "NoSchedule", "Unschedulable"),
    ],
)
def test_keeps_values_with_a_meaning(text: str) -> None:
    assert is_meaningful(text)


@pytest.mark.parametrize(
    "text",
    [
        *("shop", "example.com/team", "us-east-1a", "kubernetes", "10.1.2.3", "1.2.3-acme"),
        *("kube-acme", "system-acme", "acme.k8s.io/team", "node-role.kubernetes.io/payments"),
    ],
)
def test_drops_identifying_values(text: str) -> None:
    assert not is_meaningful(text)


DRIVER = "gpu.acme.example"


def devices(*expressions: str) -> ClusterObjects:
    """Return a cluster with a device and a class with selectors of it."""
    slice_ = {
        "metadata": {"name": "s"},
        "spec": {
            "driver": DRIVER,
            "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1},
            "nodeName": "n",
            "devices": [
                {
                    "name": "d",
                    "attributes": {
                        "model": {"string": "h100"},
                        f"{DRIVER}/family": {"string": "hopper"},
                        "version": {"version": "1.2.3-acme"},
                        "default": {"bool": True},
                    },
                    "capacity": {"memory": {"value": "80Gi"}},
                }
            ],
        },
    }
    selectors = [{"cel": {"expression": one}} for one in expressions]
    class_ = {"metadata": {"name": "c"}, "spec": {"selectors": selectors}}
    objects = ClusterObjects()
    for kind, obj in (("ResourceSlice", slice_), ("DeviceClass", class_)):
        resource = BY_KIND[kind]
        objects.put(resource, decoder_for(resource.type).convert(obj))
    return objects


@pytest.mark.parametrize(
    ("expression", "selected"),
    [
        (f'device.driver == "{DRIVER}"', True),
        (f"device.attributes['{DRIVER}'].model == 'h100' // secret", True),
        (f'device.attributes["{DRIVER}"].model in ["b200", r"h100"]', True),
        (f'device.attributes["{DRIVER}"].model == "h200"', False),
        (f'device.attributes["{DRIVER}"].family == "hopper"', True),
        (f'device.attributes["{DRIVER}"]["model"] == "h100"', True),
        (f'"family" in device.attributes["{DRIVER}"]', True),
        (f'"secret" in device.attributes["{DRIVER}"]', False),
        (f'device.attributes["{DRIVER}"].model.startsWith("h1")', True),
        (f'device.attributes["{DRIVER}"].model.startsWith("a")', False),
        (f'!device.attributes["{DRIVER}"].model.endsWith("00")', False),
        (f'device.attributes["{DRIVER}"].family.contains("oppe")', True),
        (f'device.attributes["{DRIVER}"].model.matches("^[hb][0-9]+$")', True),
        (f'device.attributes["{DRIVER}"].version.isGreaterThan(semver("1.2.2"))', True),
        (f'device.capacity["{DRIVER}"].memory.compareTo(quantity("40Gi")) >= 0', True),
        (f'cel.bind(acme, device.attributes["{DRIVER}"], has(acme.model) && acme.default)', True),
    ],
)
def test_expressions_select_the_same_devices(expression: str, selected: bool) -> None:
    for objects in (devices(expression), redact(devices(expression))):
        (slice_,) = objects.of(BY_KIND["ResourceSlice"]).values()
        (class_,) = objects.of(BY_KIND["DeviceClass"]).values()
        text = class_.spec.selectors[0].cel.expression
        kind = DeviceKind(slice_.spec.driver, slice_.spec.devices[0], Features())
        assert kind.matches(text) is selected, text
    for secret in ("acme", "secret", "h100", "hop", "model", "family"):
        assert secret not in text


def test_times_keep_their_order_and_their_distance() -> None:
    objects = ClusterObjects()
    for name, time in (("a", "2031-04-05T06:00:10Z"), ("b", "2031-04-05T06:00:00Z")):
        obj = {"metadata": {"name": name, "creationTimestamp": time}}
        objects.put(PODS, decoder_for(PODS.type).convert(obj))
    first, second = redact(objects).of(PODS).values()
    newest, oldest = first.metadata.creation_timestamp, second.metadata.creation_timestamp
    assert newest is not None
    assert oldest is not None
    assert newest.year == 2000
    assert (newest - oldest).total_seconds() == 10
