"""Node heartbeats: the conditions' ``lastHeartbeatTime``, and the nodes' Leases."""

from typing import Any

from proreus.base.clock import rfc3339
from proreus.workbench.sandbox.api_errors import StatusError
from proreus.workbench.sandbox.store import Store

JsonObject = dict[str, Any]

LEASES = "leases.coordination.k8s.io"
LEASE_NAMESPACE = "kube-node-lease"
LEASE_SECONDS = 40


def update_node_status(store: Store, name: str) -> None:
    """Set ``lastHeartbeatTime`` in all conditions of a node."""
    version = store.collection("nodes").get(name)
    if version is None:
        return
    node = version.object()
    conditions = node["status"].get("conditions")
    if not conditions:
        return
    now = store.now()
    for condition in conditions:
        condition["lastHeartbeatTime"] = now
        condition.setdefault("lastTransitionTime", now)
    store.write("nodes", node)


def renew_lease(store: Store, name: str) -> None:
    """Renew the Lease of a node, or create it."""
    now = store.clock.now()
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
