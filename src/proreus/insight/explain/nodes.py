"""Lists the pods on a node, and the pods that it rejects."""

from __future__ import annotations

from collections import defaultdict
from heapq import nlargest

from proreus.engine.scheduler import Scheduler
from proreus.framework.status import Status
from proreus.insight.decisions.retention import KeptRecords
from proreus.insight.explain.explanation import NodeExplanation, NodeRejection, NodeResource

SHOWN = 10
MAX_RECORDS = 2_000
"""So many waiting pods are asked about at most: a node is explained in milliseconds."""


def explain_node(name: str, scheduler: Scheduler, records: KeptRecords | None) -> NodeExplanation:
    """Explain a node by name."""
    table = scheduler.cache.table
    row = table.rows.get(name)
    if row is None:
        return NodeExplanation(node=name, known=False, summary="There is no node of this name.")
    info = table[row]
    nominated = scheduler.queue.nominator.nominated_pods(name)
    resources = []
    for resource in sorted(info.allocatable.keys() | info.requested.keys()):
        allocatable, requested = info.allocatable[resource], info.requested[resource]
        reserved = sum(pod.requests.amounts.get(resource, 0) for pod in nominated)
        resources.append(
            NodeResource(
                name=resource,
                allocatable=allocatable,
                requested=requested,
                nominated=reserved,
                free=allocatable - requested,
            )
        )
    rejects = _rejections(name, scheduler, records)
    count = sum(one.count for one in rejects)
    largest = nlargest(SHOWN, info.pods.values(), key=lambda pod: (pod.requests.nonzero, pod.key))
    return NodeExplanation(
        node=name,
        known=True,
        summary=f"Pods on it: {len(info.pods)}. Waiting pods that it rejected: {count}.",
        unschedulable=info.unschedulable,
        taints=tuple(map(str, info.taints)),
        pods=len(info.pods),
        allowed_pods=info.allowed_pod_number,
        resources=tuple(resources),
        assumed=tuple(
            sorted(pod.key for pod in info.pods.values() if scheduler.cache.is_assumed(pod.uid))
        ),
        nominated=tuple(sorted(pod.key for pod in nominated)),
        largest_pods=tuple(pod.key for pod in largest),
        rejects=rejects,
    )


def _rejections(
    name: str, scheduler: Scheduler, records: KeptRecords | None
) -> tuple[NodeRejection, ...]:
    """Return why the waiting pods were not put on a node in their last attempts."""
    if records is None:
        return ()
    queue = scheduler.queue
    found: dict[Status, list[str]] = defaultdict(list)
    rows: dict[int, int | None] = {}
    for queued in [*queue.unschedulable_pods(), *queue.backoff_pods()][:MAX_RECORDS]:
        record = records.latest(queued.key)
        if record is None or record.node or record.uid != queued.uid:
            continue
        verdicts, _ = record.found()
        if verdicts is None:
            continue
        # Nodes may have come and gone since: a row of the record is not one of the table.
        if id(record.names) not in rows:
            rows[id(record.names)] = record.row_of(name)
        row = rows[id(record.names)]
        status = None if row is None else verdicts.status(row)
        if status is not None:
            found[status].append(queued.key)
    groups = (
        NodeRejection(
            plugin=status.plugin,
            reasons=status.reasons,
            count=len(pods),
            pods=tuple(pods[:SHOWN]),
        )
        for status, pods in found.items()
    )
    return tuple(sorted(groups, key=lambda one: -one.count))
