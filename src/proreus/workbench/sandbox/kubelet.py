"""Fake kubelets: one object acts as the kubelets of all nodes.

There is no task per node or pod. Changes of nodes and pods wait in one queue, later actions are in
one heap of timers, and ``Kubelets.step`` does all that is due. ``step`` does not wait and takes the
time as an argument; ``start`` runs it in the event loop, in slices that let other tasks run.
"""

import asyncio
import heapq
import random
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import Any

from proreus.base.clock import rfc3339
from proreus.objects.codec import decoder_for
from proreus.objects.node import Node
from proreus.objects.pod import Pod
from proreus.workbench.sandbox.admission import NodeAllocation, PodRequirements, pod_requirements
from proreus.workbench.sandbox.api_errors import StatusError
from proreus.workbench.sandbox.collection import (
    ADDED,
    DELETED,
    Collection,
    StoredObject,
    WatchCacheEvent,
)
from proreus.workbench.sandbox.pods import TERMINAL_PHASES, set_condition
from proreus.workbench.sandbox.store import Store

JsonObject = dict[str, Any]
Key = tuple[str, str]
Handler = Callable[[WatchCacheEvent, float], None]

RUN_SECONDS = "proreus.dev/run-seconds"
"""Annotation: seconds for which a pod runs before it succeeds; without it, until it is deleted."""

LEASES = "leases.coordination.k8s.io"
LEASE_NAMESPACE = "kube-node-lease"
LEASE_SECONDS = 40

_SLICE = 100
"""Changes handled before other tasks get the event loop: about two milliseconds."""
_NODE_NAME, _PHASE = 2, 3  # indices into StoredObject.fields of pods


@dataclass(frozen=True)
class KubeletOptions:
    """The delays of the fake kubelets, in seconds; 0 is immediately.

    ``start_seconds``: from binding to Running, plus a random fraction, up to ``start_jitter``, of
    it. ``stop_seconds``: from deletion to removal, at most the pod's grace period.
    ``heartbeat_seconds`` and ``lease_seconds``: the period in which a node's status is updated and
    its Lease renewed; 0 is never.
    """

    start_seconds: float = 0.2
    start_jitter: float = 0.5
    stop_seconds: float = 0.2
    heartbeat_seconds: float = 60.0
    lease_seconds: float = 10.0


@dataclass(slots=True)
class _PodState:
    """A pod on a node, as its kubelet knows it."""

    uid: str
    node: str
    requirements: PodRequirements | None = None  # None: not admitted yet, or ended
    stopping: bool = False


class Kubelets:
    """All kubelets of the sandbox."""

    def __init__(self, store: Store, options: KubeletOptions) -> None:
        self._store = store
        self._options = options
        self._pods = store.collection("pods")
        self._allocations: dict[str, NodeAllocation] = {}
        self._pod_states: dict[Key, _PodState] = {}
        self._pods_of_unknown_nodes: dict[str, set[Key]] = {}  # bound to nodes that do not exist
        self._changes: deque[tuple[Handler, WatchCacheEvent]] = deque()
        self._timers: list[tuple[float, int, str, Key, str]] = []
        self._order = count()
        self._renewals = {
            "beat": (options.heartbeat_seconds, update_node_status),
            "lease": (options.lease_seconds, renew_lease),
        }
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._listen(store.collection("nodes"), self._on_node)
        self._listen(self._pods, self._on_pod)

    def _listen(self, collection: Collection, handler: Handler) -> None:
        """Queue the present objects of a collection, and each change from now on."""

        def on_change(change: WatchCacheEvent) -> None:
            self._changes.append((handler, change))
            self._wake.set()

        for version in collection.select():
            on_change(WatchCacheEvent(ADDED, version, None))
        collection.listeners.append(on_change)

    # -- in the loop -----------------------------------------------------------------------------

    def start(self) -> None:
        """Start the kubelets; must be called in a running event loop."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="kubelets")

    async def stop(self) -> None:
        """Stop the kubelets; raises the error that ended them, if there was one."""
        task, self._task = self._task, None
        if task is None:
            return
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error

    async def _run(self) -> None:
        clock = self._store.clock
        while True:
            self._wake.clear()
            if self.step(clock.monotonic()):
                await asyncio.sleep(0)
                continue
            pause = 1.0
            if self._timers:
                pause = min(pause, max(0.0, self._timers[0][0] - clock.monotonic()))
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._wake.wait()

    # -- the state machine -----------------------------------------------------------------------

    def step(self, now: float) -> bool:
        """Handle changes and due timers, up to a slice; return whether more are left.

        ``now`` is in seconds, on the store's clock.
        """
        for _ in range(min(_SLICE, len(self._changes))):
            handler, change = self._changes.popleft()
            handler(change, now)
        for _ in range(_SLICE):
            if not self._timers or self._timers[0][0] > now:
                return bool(self._changes)
            _, _, action, key, uid = heapq.heappop(self._timers)
            self._act(action, key, uid, now)
        return True

    def _on_node(self, change: WatchCacheEvent, now: float) -> None:
        name = change.version.name
        if change.type == DELETED:
            self._remove_node(name)
            return
        node = decoder_for(Node).decode(change.version.data)
        allocation = self._allocations.get(name)
        if allocation is None:
            self._add_node(node, change.version, now)
        else:
            allocation.refresh(node)

    def _remove_node(self, name: str) -> None:
        self._allocations.pop(name, None)
        delete_lease(self._store, name)

    def _add_node(self, node: Node, version: StoredObject, now: float) -> None:
        """Count the pods that run on a new node already; admit the pods that waited for it."""
        name = version.name
        addresses = version.object().get("status", {}).get("addresses") or ()
        address = next((a["address"] for a in addresses if a["type"] == "InternalIP"), "")
        allocation = self._allocations[name] = NodeAllocation(node, address)
        allocation.refresh(node)
        for pod in self._pod_states.values():
            if pod.node == name and pod.requirements is not None:
                allocation.add_pod(pod.requirements)
        for key in self._pods_of_unknown_nodes.pop(name, ()):
            self._schedule_action(now, "admit", key, self._pod_states[key].uid)
        # Spread over their period, so that 5,000 nodes do not write all at once.
        for action, (period_seconds, _) in self._renewals.items():
            if period_seconds:
                first = now + random.random() * period_seconds
                self._schedule_action(first, action, ("", name), node.metadata.uid)
        if self._options.lease_seconds:
            renew_lease(self._store, node)

    def _renew(self, action: str, name: str, uid: str, now: float) -> None:
        allocation = self._allocations.get(name)
        if allocation is not None and allocation.node.metadata.uid == uid:
            period_seconds, write = self._renewals[action]
            write(self._store, allocation.node)
            self._schedule_action(now + period_seconds, action, ("", name), uid)

    def _on_pod(self, change: WatchCacheEvent, now: float) -> None:
        if change.type == DELETED:
            self._forget(change.version)
        elif change.version.fields[_NODE_NAME]:
            self._observe_pod(change.version, now)

    def _observe_pod(self, version: StoredObject, now: float) -> None:
        key = (version.namespace, version.name)
        pod_state = self._pod_states.get(key)
        if pod_state is not None:
            if version.fields[_PHASE] in TERMINAL_PHASES:
                self._release(pod_state)
            # Searching the bytes first avoids decoding: hardly any change is a deletion.
            if not pod_state.stopping and b'"deletionTimestamp"' in version.data:
                self._observe_deletion(key, pod_state, version, now)
            return
        pod = decoder_for(Pod).decode(version.data)
        pod_state = _PodState(pod.metadata.uid, pod.spec.node_name)
        self._pod_states[key] = pod_state
        if pod.metadata.deletion_timestamp is not None:
            self._observe_deletion(key, pod_state, version, now)
        if version.fields[_PHASE] not in TERMINAL_PHASES:
            self._admit(key, pod_state, pod, now)

    def _observe_deletion(
        self, key: Key, pod_state: _PodState, version: StoredObject, now: float
    ) -> None:
        metadata = version.object()["metadata"]
        if "deletionTimestamp" not in metadata:
            return
        pod_state.stopping = True
        grace = float(metadata.get("deletionGracePeriodSeconds") or 0)
        self._schedule_action(
            now + min(grace, self._options.stop_seconds), "stop", key, pod_state.uid
        )

    def _admit(self, key: Key, pod_state: _PodState, pod: Pod, now: float) -> None:
        allocation = self._allocations.get(pod_state.node)
        if allocation is None:
            self._pods_of_unknown_nodes.setdefault(pod_state.node, set()).add(key)
            return
        requirements = pod_requirements(pod)
        running = pod.status.phase == "Running"
        rejection = None if running else allocation.check(pod, requirements)
        if rejection is not None:
            obj = self._store.get("pods", key[1], key[0]).object()
            set_rejected(obj, rejection.reason, rejection.message, self._store.now())
            self._store.write("pods", obj)
            self._record_rejection_event(obj, rejection.reason, rejection.message)
            return
        pod_state.requirements = requirements
        allocation.add_pod(requirements)
        if running:
            self._schedule_completion(key, pod_state.uid, pod.metadata.annotations, now)
            return
        start = self._options.start_seconds
        start += start * self._options.start_jitter * random.random()
        self._schedule_action(now + start, "start", key, pod_state.uid)

    def _schedule_action(self, when: float, action: str, key: Key, uid: str) -> None:
        heapq.heappush(self._timers, (when, next(self._order), action, key, uid))

    def _schedule_completion(
        self, key: Key, uid: str, annotations: dict[str, str], now: float
    ) -> None:
        text = annotations.get(RUN_SECONDS)
        if text is None:
            return
        try:
            seconds = float(text)
        except ValueError:
            return
        self._schedule_action(now + seconds, "end", key, uid)

    def _act(self, action: str, key: Key, uid: str, now: float) -> None:
        if action in self._renewals:
            self._renew(action, key[1], uid, now)
            return
        pod_state = self._pod_states.get(key)
        version = self._pods.get(key[1], key[0])
        if pod_state is None or pod_state.uid != uid or version is None:
            return
        if action == "stop":
            self._store.delete("pods", key[1], key[0], grace_seconds=0)
            return
        if action == "admit":
            self._admit(key, pod_state, decoder_for(Pod).decode(version.data), now)
            return
        if version.fields[_PHASE] in TERMINAL_PHASES or pod_state.stopping:
            return
        pod = version.object()
        if action == "start":
            allocation = self._allocations.get(pod_state.node)
            host_ip = "" if allocation is None else allocation.address
            set_running(pod, self._pod_ip(), host_ip, self._store.now())
            annotations = pod["metadata"].get("annotations")
            if annotations:
                self._schedule_completion(key, uid, annotations, now)
        else:
            set_succeeded(pod, self._store.now())
            self._release(pod_state)
        self._store.write("pods", pod)

    def _release(self, pod_state: _PodState) -> None:
        requirements, pod_state.requirements = pod_state.requirements, None
        allocation = self._allocations.get(pod_state.node)
        if requirements is not None and allocation is not None:
            allocation.remove_pod(requirements)

    def _forget(self, version: StoredObject) -> None:
        key = (version.namespace, version.name)
        pod_state = self._pod_states.pop(key, None)
        if pod_state is not None:
            self._release(pod_state)
            self._pods_of_unknown_nodes.get(pod_state.node, set()).discard(key)

    def _pod_ip(self) -> str:
        number = next(self._order) + 1
        return f"10.{128 | number >> 16 & 127}.{number >> 8 & 255}.{number & 255}"

    def _record_rejection_event(self, pod: JsonObject, reason: str, message: str) -> None:
        metadata = pod["metadata"]
        self._store.create(
            "events.events.k8s.io",
            {
                "metadata": {"generateName": metadata["name"] + "."},
                "reason": reason,
                "note": message,
                "type": "Warning",
                "action": "Admit",
                "reportingController": "kubelet",
                "reportingInstance": pod["spec"]["nodeName"],
                "regarding": {
                    "kind": "Pod",
                    "apiVersion": "v1",
                    "namespace": metadata["namespace"],
                    "name": metadata["name"],
                    "uid": metadata["uid"],
                },
            },
            metadata["namespace"],
        )


_RUNNING = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")
_ENDED = ("Ready", "ContainersReady")


def set_running(pod: JsonObject, pod_ip: str, host_ip: str, now: str) -> None:
    """Set the status of a pod with all containers running and ready, in place."""
    status = pod["status"]
    status["phase"] = "Running"
    status["hostIP"] = host_ip
    status["hostIPs"] = [{"ip": host_ip}]
    status["podIP"] = pod_ip
    status["podIPs"] = [{"ip": pod_ip}]
    status["startTime"] = now
    for type_ in _RUNNING:
        set_condition(status, type_, "True", now)
    uid = pod["metadata"]["uid"]
    status["containerStatuses"] = [
        {
            "name": container["name"],
            "image": container.get("image", ""),
            "imageID": "",
            "containerID": f"fake://{uid}-{number}",
            "ready": True,
            "started": True,
            "restartCount": 0,
            "state": {"running": {"startedAt": now}},
        }
        for number, container in enumerate(pod["spec"]["containers"])
    ]


def set_succeeded(pod: JsonObject, now: str) -> None:
    """Set the status of a pod after all containers have exited with 0, in place."""
    status = pod["status"]
    started = status.get("startTime", now)
    status["phase"] = "Succeeded"
    for type_ in _ENDED:
        set_condition(status, type_, "False", now, reason="PodCompleted")
    ended = {"exitCode": 0, "reason": "Completed", "startedAt": started, "finishedAt": now}
    for entry in status.get("containerStatuses") or ():
        entry.update(ready=False, started=False, state={"terminated": ended})


def set_rejected(pod: JsonObject, reason: str, message: str, now: str) -> None:
    """Set the status of a pod that admission rejected, in place."""
    status = pod["status"]
    status["phase"] = "Failed"
    status["reason"] = reason
    status["message"] = f"Pod was rejected: {message}"
    status["startTime"] = now


def update_node_status(store: Store, node: Node) -> None:
    """Set ``lastHeartbeatTime`` in all conditions of a node, unless it was deleted meanwhile."""
    version = store.collection("nodes").get(node.metadata.name)
    if version is None:
        return
    obj, now = version.object(), store.now()
    conditions = obj["status"].get("conditions") or ()
    for condition in conditions:
        condition["lastHeartbeatTime"] = now
        condition.setdefault("lastTransitionTime", now)
    if conditions:
        store.write("nodes", obj)


def renew_lease(store: Store, node: Node) -> None:
    """Renew the Lease of a node, or create it."""
    name, uid = node.metadata.name, node.metadata.uid
    now = store.clock.now()
    renew_time = f"{rfc3339(now)[:-1]}.{int(now % 1 * 1e6):06d}Z"
    version = store.collection(LEASES).get(name, LEASE_NAMESPACE)
    if version is not None:
        lease = version.object()
        lease["spec"]["renewTime"] = renew_time
        store.write(LEASES, lease)
        return
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}
    spec = {"holderIdentity": name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": renew_time}
    lease = {"metadata": {"name": name, "ownerReferences": [owner]}, "spec": spec}
    store.create(LEASES, lease, LEASE_NAMESPACE)


def delete_lease(store: Store, name: str) -> None:
    """Delete the Lease of a node that was deleted."""
    with suppress(StatusError):
        store.delete(LEASES, name, LEASE_NAMESPACE)
