"""Whether amounts of pods and nodes are quantities, for objects that no apiserver has checked."""

from __future__ import annotations

from proreus.objects.node import Node
from proreus.objects.pod import Pod, ResourceList
from proreus.objects.quantity import parse_quantity


def validate_pod_quantities(pod: Pod) -> None:
    """Raise ``ValueError`` that names the field of an amount which is no quantity."""
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
    """Raise ``ValueError`` that names the field of an amount which is no quantity."""
    _validate("status.allocatable", node.status.allocatable)
    _validate("status.capacity", node.status.capacity)


def _validate(field: str, amounts: ResourceList) -> None:
    for name, amount in amounts.items():
        try:
            parse_quantity(amount)
        except ValueError as error:
            raise ValueError(f"{field}.{name}: {error}") from None
