"""Node heartbeats: the conditions' ``lastHeartbeatTime``, and the nodes' Leases.

Heartbeats are spread over their period, so that 5,000 nodes do not write all at once.
"""

from typing import Any

from proreus.base.clock import rfc3339
from proreus.workbench.sandbox.api_errors import StatusError
from proreus.workbench.sandbox.store import Store

JsonObject = dict[str, Any]

LEASES = "leases.coordination.k8s.io"
LEASE_NAMESPACE = "kube-node-lease"
LEASE_SECONDS = 40


class RoundRobin:
    """Spreads the turns of many names evenly over a period: each is due once a period."""

    def __init__(self, period_seconds: float, now: float) -> None:
        self._period_seconds = period_seconds
        self._next = 0.0
        self._last = now

    def due(self, names: list[str], now: float) -> list[str]:
        """Return the names with a turn since the last call, each at most once.

        ``now`` is in seconds, on the clock of the constructor's ``now``.
        """
        share = (now - self._last) / self._period_seconds
        self._last = now
        if not names:
            return []
        if share >= 1.0:
            return names
        begin = self._next * len(names)
        end = begin + share * len(names)
        self._next = (self._next + share) % 1.0
        return [names[place % len(names)] for place in range(int(begin), int(end))]


def update_node_status(store: Store, name: str) -> None:
    """Set ``lastHeartbeatTime`` in all conditions of a node."""
    version = store.collection("nodes").get(name)
    if version is None:
        return
    node = version.object()
    conditions = node["status"].get("conditions")
    if not conditions:
        return
    now = store.time.now()
    for condition in conditions:
        condition["lastHeartbeatTime"] = now
        condition.setdefault("lastTransitionTime", now)
    store.write("nodes", node)


def renew_lease(store: Store, name: str) -> None:
    """Renew the Lease of a node, or create it."""
    now = store.time.clock.now()
    renew_time = f"{rfc3339(now)[:-1]}.{int(now % 1 * 1e6):06d}Z"
    version = store.collection(LEASES).get(name, LEASE_NAMESPACE)
    if version is not None:
        lease = version.object()
        lease["spec"]["renewTime"] = renew_time
        store.write(LEASES, lease)
        return
    node = store.collection("nodes").get(name)
    if node is None:
        return
    owner = {
        "apiVersion": "v1",
        "kind": "Node",
        "name": name,
        "uid": node.object()["metadata"]["uid"],
    }
    spec = {"holderIdentity": name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": renew_time}
    lease = {"metadata": {"name": name, "ownerReferences": [owner]}, "spec": spec}
    store.create(LEASES, lease, LEASE_NAMESPACE)


def delete_lease(store: Store, name: str) -> None:
    """Delete the Lease of a node that was deleted."""
    try:
        store.delete(LEASES, name, LEASE_NAMESPACE)
    except StatusError:
        return
