"""Fake kubelets: one object looks after all nodes and their pods.

There is no task a node and none a pod. What has changed is read from the store's history, what is
to happen later stands in one heap, and ``Kubelets.step`` does all that is due in one go. ``step``
is sync and takes the time as an argument; ``start`` runs it in the loop, in slices that leave the
loop free for others.
"""

import asyncio
import heapq
import random
from dataclasses import dataclass
from itertools import count
from typing import Any

from proreus.objects.codec import decoder_for
from proreus.objects.node import Node
from proreus.objects.pod import Pod
from proreus.sandbox import heartbeats
from proreus.sandbox.admission import Demand, NodeAccount, demand_of
from proreus.sandbox.collection import ADDED, BEFORE_HISTORY, DELETED, Change, Version
from proreus.sandbox.pod_statuses import set_rejected, set_running, set_succeeded
from proreus.sandbox.pods import TERMINAL_PHASES
from proreus.sandbox.refusals import Refusal
from proreus.sandbox.store import Store

JsonObject = dict[str, Any]
Key = tuple[str, str]

RUN_SECONDS = "proreus.dev/run-seconds"
"""Annotation: how long a pod runs before it succeeds; without it a pod runs until it is deleted."""

_SLICE = 100
"""Pods that are seen to before others get the loop: about two milliseconds."""
_NODE_NAME, _PHASE = 2, 3  # places in Version.fields of pods


@dataclass(frozen=True)
class KubeletOptions:
    """How fast the fake kubelets are; all in seconds, 0 for "at once".

    ``start_seconds``: from binding to Running, with up to ``start_jitter`` of it added at random.
    ``stop_seconds``: from deletion to being gone, at most the pod's grace. ``heartbeat_seconds``:
    how often a node's status, ``lease_seconds``: how often its Lease is renewed; 0 for never.
    """

    start_seconds: float = 0.2
    start_jitter: float = 0.5
    stop_seconds: float = 0.2
    heartbeat_seconds: float = 60.0
    lease_seconds: float = 10.0


@dataclass(slots=True)
class _PodAccount:
    """A pod on a node, as its kubelet knows it."""

    uid: str
    node: str
    demand: Demand | None = None  # None: takes nothing, for it is not let in or has ended
    stopping: bool = False


class Kubelets:
    """All kubelets of the sandbox."""

    def __init__(self, store: Store, options: KubeletOptions) -> None:
        self._store = store
        self._options = options
        self._pods = store.collection("pods")
        self._nodes = store.collection("nodes")
        self._accounts: dict[str, NodeAccount] = {}
        self._known: dict[Key, _PodAccount] = {}
        self._homeless: dict[str, set[Key]] = {}  # bound to nodes that are not there
        self._later: list[tuple[float, int, str, Key, str]] = []
        self._order = count()
        self._pods_seen = self._nodes_seen = BEFORE_HISTORY
        now = store.time.clock.now()
        self._beats = heartbeats.Turns(options.heartbeat_seconds or 1.0, now)
        self._leases = heartbeats.Turns(options.lease_seconds or 1.0, now)
        self._next_beat = now
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    # -- in the loop -----------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to look after the nodes; must be called in a running loop."""
        for collection in (self._pods, self._nodes):
            collection.listeners.append(self._wake.set)
        self._task = asyncio.get_running_loop().create_task(self._run(), name="kubelets")

    async def stop(self) -> None:
        """Stop at once."""
        task, self._task = self._task, None
        if task is None:
            return
        for collection in (self._pods, self._nodes):
            collection.listeners.remove(self._wake.set)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error

    async def _run(self) -> None:
        clock = self._store.time.clock
        while True:
            self._wake.clear()
            if self.step(clock.now()):
                await asyncio.sleep(0)
                continue
            pause = 1.0
            if self._later:
                pause = min(pause, max(0.0, self._later[0][0] - clock.now()))
            try:
                async with asyncio.timeout(pause):
                    await self._wake.wait()
            except TimeoutError:
                continue

    # -- the state machine -----------------------------------------------------------------------

    def step(self, now: float) -> bool:
        """See to what has changed and to what is due; tell whether there is more of it."""
        self._read_nodes()
        more = self._read_pods(now)
        for _ in range(_SLICE):
            if not self._later or self._later[0][0] > now:
                break
            _, _, action, key, uid = heapq.heappop(self._later)
            self._act(action, key, uid, now)
        else:
            more = True
        if now >= self._next_beat:
            self._next_beat = now + 1.0
            self._beat(now)
        return more

    def _beat(self, now: float) -> None:
        names = list(self._accounts)
        if self._options.heartbeat_seconds:
            for name in self._beats.due(names, now):
                heartbeats.beat(self._store, name)
        if self._options.lease_seconds:
            for name in self._leases.due(names, now):
                heartbeats.renew_lease(self._store, name)

    def _read_nodes(self) -> None:
        try:
            changes = self._nodes.changes_from(self._nodes_seen)
            self._nodes_seen += len(changes)
        except Refusal:  # history was forgotten: all nodes count as new
            changes = [Change(ADDED, version, None) for version in self._nodes.select()]
            self._nodes_seen = self._nodes.end
            for name in self._accounts.keys() - {change.version.name for change in changes}:
                self._lose(name)
        for change in changes:
            name = change.version.name
            if change.type == DELETED:
                self._lose(name)
                continue
            node = decoder_for(Node).decode(change.version.data)
            account = self._accounts.get(name)
            if account is None:
                self._adopt(node, change.version)
            else:
                account.refresh(node)

    def _lose(self, name: str) -> None:
        self._accounts.pop(name, None)
        heartbeats.drop_lease(self._store, name)

    def _adopt(self, node: Node, version: Version) -> None:
        """A node came (back): its pods count, and those that waited for it may start."""
        now = self._store.time.clock.now()
        name = version.name
        addresses = version.object().get("status", {}).get("addresses") or ()
        address = next((a["address"] for a in addresses if a["type"] == "InternalIP"), "")
        account = self._accounts[name] = NodeAccount(node, address)
        account.refresh(node)
        for pod in self._known.values():
            if pod.node == name and pod.demand is not None:
                account.take(pod.demand)
        for key in self._homeless.pop(name, ()):
            self._plan(now, "admit", key, self._known[key].uid)
        if self._options.lease_seconds:
            heartbeats.renew_lease(self._store, name)

    def _read_pods(self, now: float) -> bool:
        try:
            changes = self._pods.changes_from(self._pods_seen, _SLICE)
            self._pods_seen += len(changes)
        except Refusal:  # history was forgotten: begin anew from what there is
            changes = [Change(ADDED, version, None) for version in self._pods.select()]
            self._pods_seen = self._pods.end
            for known in self._known.values():
                self._release(known)
            for forgotten in (self._known, self._homeless, self._later):
                forgotten.clear()
        for change in changes:
            version = change.version
            if change.type == DELETED:
                self._forget(version)
            elif version.fields[_NODE_NAME]:
                self._see(version, now)
        return self._pods_seen < self._pods.end

    def _see(self, version: Version, now: float) -> None:
        key = (version.namespace, version.name)
        known = self._known.get(key)
        if known is not None:
            if version.fields[_PHASE] in TERMINAL_PHASES:
                self._release(known)
            # The bytes are searched first because nearly no change is a deletion.
            if not known.stopping and b'"deletionTimestamp"' in version.data:
                self._see_deletion(key, known, version, now)
            return
        pod = decoder_for(Pod).decode(version.data)
        known = _PodAccount(pod.metadata.uid, pod.spec.node_name)
        self._known[key] = known
        if pod.metadata.deletion_timestamp is not None:
            self._see_deletion(key, known, version, now)
        if version.fields[_PHASE] not in TERMINAL_PHASES:
            self._admit(key, known, pod, now)

    def _see_deletion(self, key: Key, known: _PodAccount, version: Version, now: float) -> None:
        metadata = version.object()["metadata"]
        if "deletionTimestamp" not in metadata:
            return
        known.stopping = True
        grace = float(metadata.get("deletionGracePeriodSeconds") or 0)
        self._plan(now + min(grace, self._options.stop_seconds), "stop", key, known.uid)

    def _admit(self, key: Key, known: _PodAccount, pod: Pod, now: float) -> None:
        account = self._accounts.get(known.node)
        if account is None:
            self._homeless.setdefault(known.node, set()).add(key)
            return
        demand = demand_of(pod)
        running = pod.status.phase == "Running"
        rejection = None if running else account.check(pod, demand)
        if rejection is not None:
            obj = self._store.get("pods", key[1], key[0]).object()
            set_rejected(obj, rejection.reason, rejection.message, self._store.time.now())
            self._store.write("pods", obj)
            self._tell_rejection(obj, rejection.reason, rejection.message)
            return
        known.demand = demand
        account.take(demand)
        if running:
            self._plan_end(key, known.uid, pod.metadata.annotations, now)
            return
        start = self._options.start_seconds
        start += start * self._options.start_jitter * random.random()
        self._plan(now + start, "start", key, known.uid)

    def _plan(self, when: float, action: str, key: Key, uid: str) -> None:
        heapq.heappush(self._later, (when, next(self._order), action, key, uid))

    def _plan_end(self, key: Key, uid: str, annotations: dict[str, str], now: float) -> None:
        text = annotations.get(RUN_SECONDS)
        if text is None:
            return
        try:
            seconds = float(text)
        except ValueError:
            return
        self._plan(now + seconds, "end", key, uid)

    def _act(self, action: str, key: Key, uid: str, now: float) -> None:
        known = self._known.get(key)
        version = self._pods.get(key[1], key[0])
        if known is None or known.uid != uid or version is None:
            return
        if action == "stop":
            self._store.delete("pods", key[1], key[0], grace_seconds=0)
            return
        if action == "admit":
            self._admit(key, known, decoder_for(Pod).decode(version.data), now)
            return
        if version.fields[_PHASE] in TERMINAL_PHASES or known.stopping:
            return
        pod = version.object()
        if action == "start":
            account = self._accounts.get(known.node)
            host_ip = "" if account is None else account.address
            set_running(pod, self._pod_ip(), host_ip, self._store.time.now())
            annotations = pod["metadata"].get("annotations")
            if annotations:
                self._plan_end(key, uid, annotations, now)
        else:
            set_succeeded(pod, self._store.time.now())
            self._release(known)
        self._store.write("pods", pod)

    def _release(self, known: _PodAccount) -> None:
        demand, known.demand = known.demand, None
        account = self._accounts.get(known.node)
        if demand is not None and account is not None:
            account.give_back(demand)

    def _forget(self, version: Version) -> None:
        key = (version.namespace, version.name)
        known = self._known.pop(key, None)
        if known is not None:
            self._release(known)
            self._homeless.get(known.node, set()).discard(key)

    def _pod_ip(self) -> str:
        number = next(self._order) + 1
        return f"10.{128 | number >> 16 & 127}.{number >> 8 & 255}.{number & 255}"

    def _tell_rejection(self, pod: JsonObject, reason: str, message: str) -> None:
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
