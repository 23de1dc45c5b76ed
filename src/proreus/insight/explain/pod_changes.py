"""Changes of a pod that may keep a plugin from rejecting it, the smallest first.

One function a plugin: it knows which fields of a pod the plugin reads, and proposes changes of
them. Whether one helps, and how large it has to be, only the engine says: a proposal is a pod to
ask it about.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from msgspec import structs

from proreus.framework.node_info import NodeInfo
from proreus.framework.pod_info import PodInfo
from proreus.insight.explain.explanation import PodChange
from proreus.objects.pod import Container, Pod, PodSpec, ResourceRequirements
from proreus.objects.taints import Toleration, first_untolerated

T = TypeVar("T")

UNSCHEDULABLE_TAINT = "node.kubernetes.io/unschedulable"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


@dataclass(frozen=True)
class Proposal:
    """A changed pod. The request of ``resource`` was lowered to ``lower_to``."""

    change: PodChange
    pod: PodInfo
    resource: str = ""
    lower_to: int = 0

    def as_minimal(self) -> Proposal:
        """Return the proposal, known to be the smallest."""
        return replace(self, change=structs.replace(self.change, minimal=True))


def changed(pod: PodInfo, **spec: object) -> PodInfo:
    """Return the pod with other fields of its spec."""
    return PodInfo(
        structs.replace(pod.pod, spec=structs.replace(pod.pod.spec, **spec)), pod.resources_options
    )


def lower_request(pod: PodInfo, resource: str, amount: int) -> Proposal | None:
    """Return the pod with a request of at most an amount; None if it cannot be lowered to that."""
    before = pod.requests.amounts.get(resource, 0)
    lowered = _with_request(pod, resource, amount)
    if lowered is None or lowered.requests.amounts.get(resource, 0) > amount:
        return None
    old, new = quantity(resource, before), quantity(resource, amount)
    less = quantity(resource, before - amount)
    change = PodChange(
        field=f"spec.containers[*].resources.requests.{resource}",
        before=old,
        after=new,
        text=f"request {less} less {resource}: {new} instead of {old}",
    )
    return Proposal(change, lowered, resource, amount)


def _with_request(pod: PodInfo, resource: str, amount: int) -> PodInfo | None:
    """Return the pod with its containers' requests lowered, the largest ones first."""
    spec = pod.pod.spec
    if spec.resources is not None and resource in spec.resources.requests:
        return changed(pod, resources=_lowered(spec.resources, resource, amount))
    excess = pod.requests.amounts.get(resource, 0) - amount
    containers = list(spec.containers)
    requested = [_amount_of(container, resource) for container in containers]
    for place in sorted(range(len(containers)), key=lambda place: -requested[place]):
        taken = min(max(excess, 0), requested[place])
        if taken:
            containers[place] = _with_lowered(containers[place], resource, requested[place] - taken)
            excess -= taken
    # Of init containers, one after another, only the largest counts.
    init_containers = tuple(
        _with_lowered(one, resource, amount) if _amount_of(one, resource) > amount else one
        for one in spec.init_containers
    )
    return changed(pod, containers=tuple(containers), init_containers=init_containers)


def _amount_of(container: Container, resource: str) -> int:
    alone = Pod(spec=PodSpec(containers=(container,)))
    return PodInfo(alone).requests.amounts.get(resource, 0)


def _with_lowered(container: Container, resource: str, amount: int) -> Container:
    return structs.replace(container, resources=_lowered(container.resources, resource, amount))


def _lowered(resources: ResourceRequirements, resource: str, amount: int) -> ResourceRequirements:
    requests = {**resources.requests, resource: quantity(resource, amount)}
    if not amount:
        del requests[resource]
    return structs.replace(resources, requests=requests)


def quantity(resource: str, amount: int) -> str:
    """Return an amount as it is written in YAML: ``1500m`` of cpu, ``512Mi`` of memory."""
    if resource == "cpu":
        return f"{amount}m" if amount % 1000 else str(amount // 1000)
    for unit, size in (("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10)):
        if amount and amount % size == 0 and ("memory" in resource or "storage" in resource):
            return f"{amount // size}{unit}"
    return str(amount)


# ---- one function a plugin ---------------------------------------------------------------------


def _resources(pod: PodInfo, node: NodeInfo) -> Iterator[Proposal]:
    for resource, requested in pod.requests.amounts.items():
        free = node.allocatable[resource] - node.requested[resource]
        if requested > max(free, 0) and (lower := lower_request(pod, resource, max(free, 0))):
            yield lower


def _proposal(
    pod: PodInfo, field: str, text: str, *, before: str = "", after: str = "", **spec: object
) -> Proposal:
    """Propose other fields of the pod's spec, described as a change of ``field``."""
    change = PodChange(field=field, before=before, after=after, text=text)
    return Proposal(change, changed(pod, **spec))


def _without(items: Sequence[T], place: int) -> tuple[T, ...]:
    return (*items[:place], *items[place + 1 :])


def _taints(pod: PodInfo, node: NodeInfo) -> Iterator[Proposal]:
    tolerations = pod.pod.spec.tolerations
    taint = first_untolerated(node.taints, tolerations)
    if taint is not None:
        added = (*tolerations, Toleration(taint.key, "Equal", taint.value, taint.effect))
        text = f"tolerate the taint {taint}"
        yield _proposal(pod, "spec.tolerations", text, after=str(taint), tolerations=added)


def _unschedulable(pod: PodInfo, node: NodeInfo) -> Iterator[Proposal]:
    taint = UNSCHEDULABLE_TAINT
    added = (*pod.pod.spec.tolerations, Toleration(taint, "Exists", "", "NoSchedule"))
    text = f"tolerate {taint}, since the node is cordoned"
    yield _proposal(pod, "spec.tolerations", text, after=taint, tolerations=added)


def _node_affinity(pod: PodInfo, node: NodeInfo) -> Iterator[Proposal]:
    spec = pod.pod.spec
    selector = spec.node_selector or {}
    wrong = {key: value for key, value in selector.items() if node.labels.get(key) != value}
    if wrong:
        kept = {key: value for key, value in selector.items() if key not in wrong}
        labels = ", ".join(f"{key}={value}" for key, value in sorted(wrong.items()))
        text = f"do not select {labels}"
        yield _proposal(pod, "spec.nodeSelector", text, before=labels, node_selector=kept or None)
    affinity = spec.affinity
    if affinity is None or affinity.node_affinity is None:
        return
    if affinity.node_affinity.required is not None:
        without = structs.replace(affinity.node_affinity, required=None)
        yield _proposal(
            pod,
            f"spec.affinity.nodeAffinity.{_REQUIRED}",
            "do not require this node affinity",
            affinity=structs.replace(affinity, node_affinity=without),
        )


def _ports(pod: PodInfo, node: NodeInfo) -> Iterator[Proposal]:
    taken = {(port.protocol, port.port) for port in node.used_ports}
    containers, freed = [], []
    for container in pod.pod.spec.containers:
        ports = []
        for port in container.ports:
            if port.host_port and (port.protocol or "TCP", port.host_port) in taken:
                freed.append(str(port.host_port))
                ports.append(structs.replace(port, host_port=0))
            else:
                ports.append(port)
        containers.append(structs.replace(container, ports=tuple(ports)))
    if freed:
        names = ", ".join(freed)
        text = f"do without host port {names}, which is in use there"
        field = "spec.containers[*].ports[*].hostPort"
        yield _proposal(pod, field, text, before=names, containers=tuple(containers))


def _spread(pod: PodInfo, node: NodeInfo) -> Iterator[Proposal]:
    constraints = pod.pod.spec.topology_spread_constraints
    for place, one in enumerate(constraints):
        if one.when_unsatisfiable == "ScheduleAnyway":
            continue
        where = f"spec.topologySpreadConstraints[{place}]"
        for skew in (*range(one.max_skew + 1, one.max_skew + 11), 10 * one.max_skew + 100):
            more = structs.replace(one, max_skew=skew)
            yield _proposal(
                pod,
                f"{where}.maxSkew",
                f"allow a skew of {skew} instead of {one.max_skew} over {one.topology_key}",
                before=str(one.max_skew),
                after=str(skew),
                topology_spread_constraints=(
                    *constraints[:place],
                    more,
                    *constraints[place + 1 :],
                ),
            )
        text = f"do not require an even spread over {one.topology_key}"
        others = _without(constraints, place)
        yield _proposal(pod, where, text, topology_spread_constraints=others)


def _pod_affinity(pod: PodInfo, node: NodeInfo) -> Iterator[Proposal]:
    affinity = pod.pod.spec.affinity
    if affinity is None:
        return
    for name, json_name in (
        ("pod_anti_affinity", "podAntiAffinity"),
        ("pod_affinity", "podAffinity"),
    ):
        terms = getattr(affinity, name)
        for place, term in enumerate(() if terms is None else terms.required):
            kept = structs.replace(terms, required=_without(terms.required, place))
            yield _proposal(
                pod,
                f"spec.affinity.{json_name}.{_REQUIRED}[{place}]",
                f"do not require this {json_name} over {term.topology_key}",
                affinity=structs.replace(affinity, **{name: kept}),
            )


def _volumes(pod: PodInfo, node: NodeInfo) -> Iterator[Proposal]:
    volumes = pod.pod.spec.volumes
    for place, volume in enumerate(volumes):
        source = volume.persistent_volume_claim
        what = f"volume {volume.name}" if source is None else f"claim {source.claim_name}"
        field, text, kept = f"spec.volumes[{place}]", f"do without {what}", _without(volumes, place)
        yield _proposal(pod, field, text, before=volume.name, volumes=kept)


def _claims(pod: PodInfo, node: NodeInfo) -> Iterator[Proposal]:
    claims = pod.pod.spec.resource_claims
    for place, claim in enumerate(claims):
        field, text = f"spec.resourceClaims[{place}]", f"do without the resource claim {claim.name}"
        kept = _without(claims, place)
        yield _proposal(pod, field, text, before=claim.name, resource_claims=kept)


PROPOSALS: dict[str, Callable[[PodInfo, NodeInfo], Iterator[Proposal]]] = {
    "NodeResourcesFit": _resources,
    "TaintToleration": _taints,
    "NodeUnschedulable": _unschedulable,
    "NodeAffinity": _node_affinity,
    "NodePorts": _ports,
    "PodTopologySpread": _spread,
    "InterPodAffinity": _pod_affinity,
    "VolumeBinding": _volumes,
    "VolumeZone": _volumes,
    "VolumeRestrictions": _volumes,
    "NodeVolumeLimits": _volumes,
    "DynamicResources": _claims,
}
"""By plugin."""
