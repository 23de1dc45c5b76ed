"""Whether amounts of pods and nodes are quantities, for objects that no apiserver has checked."""

from __future__ import annotations

from proreus.objects.node import Node
from proreus.objects.pod import Pod, ResourceList
from proreus.objects.quantity import MOST, parse_quantity


def validate_pod_quantities(pod: Pod) -> None:
    """Raise ``ValueError`` that names the field of an amount that no pod may have."""
    spec = pod.spec
    for field, containers in (
        ("containers", spec.containers),
        ("initContainers", spec.init_containers),
    ):
        for number, container in enumerate(containers):
            where = f"spec.{field}[{number}].resources"
            _validate(f"{where}.requests", container.resources.requests)
            _validate(f"{where}.limits", container.resources.limits)
    _validate("spec.overhead", spec.overhead)
    if spec.resources is not None:
        _validate("spec.resources.requests", spec.resources.requests)


def validate_node_quantities(node: Node) -> None:
    """Raise ``ValueError`` that names the field of an amount that no node may have."""
    # An apiserver takes larger ones from pods; nobody has so much of anything.
    _validate("status.allocatable", node.status.allocatable, MOST)
    _validate("status.capacity", node.status.capacity, MOST)


def _validate(field: str, amounts: ResourceList, most: int | None = None) -> None:
    for name, amount in amounts.items():
        try:
            nano = parse_quantity(amount)
        except ValueError as error:
            raise ValueError(f"{field}.{name}: {error}") from None
        if nano < 0:
            raise ValueError(f"{field}.{name}: {amount} must be greater than or equal to 0")
        if most is not None and nano >= most:
            raise ValueError(f"{field}.{name}: {amount} is too large for an int64")
