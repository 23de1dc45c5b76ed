"""Node objects for a sandbox, with zones, sizes and labels as cloud providers set them."""

from collections.abc import Mapping
from typing import Any

JsonObject = dict[str, Any]

SIZES: dict[str, Mapping[str, str]] = {
    "small": {"cpu": "4", "memory": "16Gi", "ephemeral-storage": "100Gi", "pods": "110"},
    "medium": {"cpu": "8", "memory": "32Gi", "ephemeral-storage": "200Gi", "pods": "110"},
    "large": {"cpu": "16", "memory": "64Gi", "ephemeral-storage": "400Gi", "pods": "110"},
}
_CONDITIONS = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID"),
    ("Ready", "True", "KubeletReady"),
)


def make_node(
    name: str,
    *,
    zone: str = "",
    region: str = "region-1",
    size: str = "medium",
    capacity: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    taints: list[JsonObject] | None = None,
    address: str = "10.0.0.1",
) -> JsonObject:
    """Return a ready Node.

    ``size`` is a key of ``SIZES``; ``capacity`` adds to its resources, or overrides them.
    """
    amounts = {**SIZES[size], **(capacity or {})}
    default_labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "node.kubernetes.io/instance-type": size,
    }
    if zone:
        default_labels["topology.kubernetes.io/region"] = region
        default_labels["topology.kubernetes.io/zone"] = zone
    spec: JsonObject = {}
    if taints:
        spec["taints"] = taints
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {**default_labels, **(labels or {})}},
        "spec": spec,
        "status": {
            "capacity": amounts,
            "allocatable": dict(amounts),
            "conditions": [
                {"type": type_, "status": status, "reason": reason}
                for type_, status, reason in _CONDITIONS
            ],
            "addresses": [
                {"type": "InternalIP", "address": address},
                {"type": "Hostname", "address": name},
            ],
            "nodeInfo": {
                "kubeletVersion": "v1.37.1",
                "osImage": "proreus sandbox",
                "kernelVersion": "6.12.0",
                "containerRuntimeVersion": "fake://1.0",
                "operatingSystem": "linux",
                "architecture": "amd64",
            },
        },
    }


def make_nodes(
    count: int,
    *,
    zones: int = 3,
    prefix: str = "node-",
    sizes: tuple[str, ...] = ("medium",),
    labels: Mapping[str, str] | None = None,
) -> list[JsonObject]:
    """Return nodes spread evenly over ``zone-1`` … ``zone-N``, cycling through ``sizes``.

    With ``zones=0`` they have no zone label.
    """
    nodes = []
    width = len(str(max(count - 1, 0)))
    for number in range(count):
        zone = f"zone-{number % zones + 1}" if zones else ""
        nodes.append(
            make_node(
                f"{prefix}{number:0{width}d}",
                zone=zone,
                size=sizes[number // max(zones, 1) % len(sizes)],
                labels=labels,
                address=f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}",
            )
        )
    return nodes
