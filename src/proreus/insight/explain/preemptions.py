"""Lists recorded preemptions: which pods have to go, for which other pod."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import nlargest

import msgspec

from proreus.insight.decisions.record import DecisionRecord, FailureRecord
from proreus.insight.explain.attempts import victim_state
from proreus.insight.explain.explanation import VictimState
from proreus.objects.pod import Pod


class Preemption(msgspec.Struct):
    """Pods that are evicted for another one, ``pod``.

    ``at``: when its node was nominated, in seconds since the epoch. ``waits``: whether it has no
    node yet.
    """

    pod: str
    priority: int
    node: str
    at: float
    waits: bool
    victims: tuple[VictimState, ...]
    pdb_violations: int = 0


def recent_preemptions(
    records: Iterable[DecisionRecord], pods: Mapping[str, Pod], limit: int
) -> tuple[Preemption, ...]:
    """Return the preemptions of recorded attempts, the latest first.

    ``pods``: all pods as they are now, by ``namespace/name``.
    """
    found = (
        (record.at, number, record, record.failure)
        for number, record in enumerate(records)
        if record.failure is not None and record.failure.victims
    )
    latest = nlargest(limit, found, key=lambda one: one[:2])
    return tuple(_preemption(record, failure, pods) for _, _, record, failure in latest)


def _preemption(
    record: DecisionRecord, failure: FailureRecord, pods: Mapping[str, Pod]
) -> Preemption:
    live = pods.get(record.key)
    same = live is not None and live.metadata.uid == record.uid
    return Preemption(
        pod=record.key,
        priority=(live.spec.priority or 0) if live is not None and same else 0,
        node=failure.nominated_node,
        at=record.at,
        waits=live is not None and same and not live.spec.node_name,
        victims=tuple(victim_state(victim, pods) for victim in failure.victims),
        pdb_violations=failure.pdb_violations,
    )
