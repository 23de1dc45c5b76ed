"""Koordinator's annotations about how devices are to be chosen: together, near, by label."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from proreus.framework import ProreusError
from proreus.objects import ApiStruct, LabelSelector, Selector, parse_amount, parse_label_selector
from proreus.objects.codec import UNDECODABLE

_PREFIX = "scheduling.koordinator.sh/"
_JOINT = f"{_PREFIX}device-joint-allocate"
_PARTITION = f"{_PREFIX}gpu-partition-spec"
_HINT = f"{_PREFIX}device-allocate-hint"


class InvalidRequest(ValueError):
    """A combination that no scheduler of the family accepts."""


class DeviceHint(ApiStruct, frozen=True):
    """The choice of devices of one type."""

    selector: LabelSelector | None = None
    vf_selector: LabelSelector | None = None
    allocate_strategy: Literal["", "RequestsAsCount"] = ""
    required_topology_scope: Literal["", "Node", "NUMANode", "PCIe", "Device"] = ""
    exclusive_policy: Literal["", "DeviceLevel"] = ""


class JointAllocation(ApiStruct, frozen=True):
    """The types of devices that are allocated together, and the place."""

    device_types: tuple[str, ...] = ()
    required_scope: Literal["", "SamePCIe"] = ""


class PartitionSpec(ApiStruct, frozen=True):
    """The listed partitions of GPUs that a pod may get, by policy and bandwidth."""

    allocate_policy: Literal["", "Restricted", "BestEffort"] = ""
    ring_bus_bandwidth: str | int | None = None


@dataclass(frozen=True, slots=True)
class Hints:
    """The hints of the annotations.

    ``joint_types`` are allocated next to the GPUs; ``same_pcie``: under the same PCIe switch, or
    not at all. ``partition``: "Restricted" to the listed partitions with the highest score,
    "BestEffort" to any listed one; with at least ``bandwidth``. ``scope``: where all GPUs have to
    be, Node, NUMANode, PCIe or Device. ``selectors``: by type, of devices' labels. ``counted``: by
    type, amounts that are numbers of devices, and the thousandths that are taken of each.
    """

    joint_types: frozenset[str] = frozenset()
    same_pcie: bool = False
    partition: str = ""
    bandwidth: int = 0
    scope: str = ""
    selectors: tuple[tuple[str, Selector], ...] = ()
    counted: tuple[tuple[str, int], ...] = ()

    def allows(self, type_: str, labels: Mapping[str, str]) -> bool:
        """Return whether a device has the labels that are asked for."""
        return all(one.matches(labels) for name, one in self.selectors if name == type_)


NO_HINTS = Hints()


def hints_of(annotations: Mapping[str, str]) -> Hints:
    """Read a pod's annotations; raises ``InvalidRequest``."""
    if not (_JOINT in annotations or _PARTITION in annotations or _HINT in annotations):
        return NO_HINTS
    joint: JointAllocation = _read(annotations, _JOINT, JointAllocation)
    partition: PartitionSpec = _read(annotations, _PARTITION, PartitionSpec)
    hints: dict[str, DeviceHint] = _read(annotations, _HINT, dict[str, DeviceHint])
    for type_, hint in hints.items():
        # They would have to be ignored.
        unknown = "vfSelector" if hint.vf_selector is not None else ""
        if hint.allocate_strategy and type_ == "gpu":
            unknown = f"allocateStrategy {hint.allocate_strategy}"
        if unknown:
            raise InvalidRequest(f"annotation {_HINT}: {unknown} of {type_} is not supported")
    try:
        return Hints(
            joint_types=frozenset(joint.device_types) - {"gpu"},
            same_pcie=bool(joint.required_scope),
            partition=""
            if partition == PartitionSpec()
            else partition.allocate_policy or "BestEffort",
            bandwidth=parse_amount("bandwidth", partition.ring_bus_bandwidth or 0),
            scope=hints["gpu"].required_topology_scope if "gpu" in hints else "",
            selectors=tuple(
                (type_, parse_label_selector(hint.selector))
                for type_, hint in hints.items()
                if hint.selector is not None
            ),
            counted=tuple(
                (type_, 1000 if hint.exclusive_policy else 10)
                for type_, hint in hints.items()
                if hint.allocate_strategy
            ),
        )
    except (ProreusError, ValueError) as error:
        raise InvalidRequest(f"an annotation about devices cannot be read: {error}") from None


def _read(annotations: Mapping[str, str], name: str, type_: Any) -> Any:
    if name not in annotations:
        return type_()
    try:
        return msgspec.json.decode(annotations[name], type=type_)
    except UNDECODABLE as error:
        raise InvalidRequest(f"annotation {name} cannot be read: {error}") from None
