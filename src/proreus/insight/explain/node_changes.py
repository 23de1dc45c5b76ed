"""Changes of a node that may keep a plugin from rejecting a pod there, the smallest first.

The counterpart of ``pod_changes``: one function a plugin, which knows what the plugin reads of a
node. Whether a proposal helps only the engine says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from msgspec import structs

from proreus.framework.node_info import NodeInfo
from proreus.framework.node_table import NodeTable
from proreus.framework.pod_info import PodInfo
from proreus.insight.explain.explanation import PodChange
from proreus.insight.explain.pod_changes import quantity
from proreus.objects.node import Node
from proreus.objects.selectors import LabelSelectorRequirement
from proreus.objects.taints import first_untolerated

_MAX_DOMAINS = 5


@dataclass(frozen=True)
class NodeProposal:
    """A changed node. ``one_less`` is the same node with one unit less of the raised resource."""

    change: PodChange
    node: Node
    one_less: Node | None = None

    def as_minimal(self) -> NodeProposal:
        """Return the proposal, known to be the smallest."""
        return NodeProposal(structs.replace(self.change, minimal=True), self.node)


def _with_allocatable(node: Node, resource: str, amount: int) -> Node:
    amounts = {**node.status.allocatable, resource: quantity(resource, amount)}
    return structs.replace(node, status=structs.replace(node.status, allocatable=amounts))


def with_more(node: Node, resource: str, before: int, after: int) -> NodeProposal:
    """Return a node with more of a resource."""
    old, new = quantity(resource, before), quantity(resource, after)
    more = quantity(resource, after - before)
    text = f"add {more} allocatable {resource}: {new} instead of {old}"
    change = PodChange(field=f"status.allocatable.{resource}", before=old, after=new, text=text)
    return NodeProposal(
        change,
        _with_allocatable(node, resource, after),
        _with_allocatable(node, resource, after - 1),
    )


# ---- one function a plugin ---------------------------------------------------------------------


def _resources(
    pod: PodInfo, node: Node, info: NodeInfo, table: NodeTable
) -> Iterator[NodeProposal]:
    if len(info.pods) + 1 > info.allowed_pod_number:
        yield with_more(node, "pods", info.allowed_pod_number, len(info.pods) + 1)
    for resource, requested in pod.requests.amounts.items():
        allocatable = info.allocatable[resource]
        needed = info.requested[resource] + requested
        if requested and needed > allocatable:
            yield with_more(node, resource, allocatable, needed)


def _taints(pod: PodInfo, node: Node, info: NodeInfo, table: NodeTable) -> Iterator[NodeProposal]:
    taint = first_untolerated(node.spec.taints, pod.pod.spec.tolerations)
    if taint is not None:
        left = tuple(one for one in node.spec.taints if one != taint)
        yield NodeProposal(
            PodChange(field="spec.taints", before=str(taint), text=f"remove the taint {taint}"),
            structs.replace(node, spec=structs.replace(node.spec, taints=left)),
        )


def _unschedulable(
    pod: PodInfo, node: Node, info: NodeInfo, table: NodeTable
) -> Iterator[NodeProposal]:
    yield NodeProposal(
        PodChange(field="spec.unschedulable", before="true", after="false", text="uncordon it"),
        structs.replace(node, spec=structs.replace(node.spec, unschedulable=False)),
    )


def _node_affinity(
    pod: PodInfo, node: Node, info: NodeInfo, table: NodeTable
) -> Iterator[NodeProposal]:
    spec = pod.pod.spec
    selected = {**node.metadata.labels, **(spec.node_selector or {})}
    affinity = None if spec.affinity is None else spec.affinity.node_affinity
    required = None if affinity is None else affinity.required
    if required is None:
        yield from _labelled(node, selected)
        return
    for term in required.node_selector_terms:
        yield from _labelled(node, _matching(selected, term.match_expressions))


def _matching(
    labels: Mapping[str, str], expressions: Sequence[LabelSelectorRequirement]
) -> dict[str, str]:
    """Return labels that match the expressions, changed where they do not; if there are such."""
    changed = dict(labels)
    for one in expressions:
        value = changed.get(one.key)
        if one.operator == "In" and one.values and value not in one.values:
            changed[one.key] = one.values[0]
        elif one.operator == "Exists" and value is None:
            changed[one.key] = ""
        elif one.operator == "DoesNotExist" or (one.operator == "NotIn" and value in one.values):
            changed.pop(one.key, None)
        elif one.operator in ("Gt", "Lt") and one.values:
            try:
                limit = int(one.values[0])
                up = one.operator == "Gt"
                if value is None or not (int(value) > limit if up else int(value) < limit):
                    changed[one.key] = str(limit + 1 if up else limit - 1)
            except ValueError:
                continue
    return changed


def _labelled(node: Node, labels: Mapping[str, str]) -> Iterator[NodeProposal]:
    """Yield the node with other labels, if they are others."""
    before = node.metadata.labels
    added = {key: value for key, value in labels.items() if before.get(key) != value}
    removed = [key for key in before if key not in labels]
    if not added and not removed:
        return
    texts = [f"add the label {key}={value}" for key, value in sorted(added.items())]
    texts += [f"remove the label {key}" for key in sorted(removed)]
    was = [f"{key}={before[key]}" for key in sorted({*added, *removed}) if key in before]
    change = PodChange(
        field="metadata.labels",
        before=", ".join(was),
        after=", ".join(f"{key}={value}" for key, value in sorted(added.items())),
        text=" and ".join(texts),
    )
    meta = structs.replace(node.metadata, labels=dict(labels))
    yield NodeProposal(change, structs.replace(node, metadata=meta))


def _spread(pod: PodInfo, node: Node, info: NodeInfo, table: NodeTable) -> Iterator[NodeProposal]:
    """Propose a label for a node without that of the domains; it is not moved to another."""
    for one in pod.pod.spec.topology_spread_constraints:
        key = one.topology_key
        if one.when_unsatisfiable != "ScheduleAnyway" and key not in info.labels:
            values = dict.fromkeys(other.labels[key] for other in table if key in other.labels)
            for value in list(values)[:_MAX_DOMAINS]:
                yield from _labelled(node, {**node.metadata.labels, key: value})


NODE_PROPOSALS: dict[
    str, Callable[[PodInfo, Node, NodeInfo, NodeTable], Iterator[NodeProposal]]
] = {
    "NodeResourcesFit": _resources,
    "TaintToleration": _taints,
    "NodeUnschedulable": _unschedulable,
    "NodeAffinity": _node_affinity,
    "PodTopologySpread": _spread,
}
"""By plugin."""
