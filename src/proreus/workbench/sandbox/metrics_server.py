"""Serves metrics.k8s.io: the usage of nodes and pods, in the form of metrics-server.

Nothing runs in the sandbox, so usage is made up: a running pod uses a fraction of its requests, and
a node uses the sum of its pods. Annotations of a node or a pod override this:
``proreus.dev/cpu-usage: 3500m``, ``proreus.dev/memory-usage: 2Gi``, or ``none`` for a node that
metrics-server cannot reach. Usage is computed for each request; nothing is stored.
"""

from collections.abc import Mapping
from typing import Any

from proreus.objects.codec import decoder_for
from proreus.objects.pod import Pod
from proreus.objects.quantity import parse_quantity
from proreus.workbench.sandbox.api_errors import StatusError, not_found
from proreus.workbench.sandbox.collection import StoredObject
from proreus.workbench.sandbox.requests import RequestInfo
from proreus.workbench.sandbox.selectors import ALL, SelectionPredicate
from proreus.workbench.sandbox.store import Store

JsonObject = dict[str, Any]
Nano = dict[str, int]

CPU_USAGE, MEMORY_USAGE = "proreus.dev/cpu-usage", "proreus.dev/memory-usage"
NONE = "none"
"""The value of an annotation that marks a node without metrics."""

DEFAULT_SHARE = 0.5

_ANNOTATIONS = {"cpu": CPU_USAGE, "memory": MEMORY_USAGE}
_NODE_NAME, _PHASE = 2, 3  # indices into StoredObject.fields of pods
_WINDOW = "10s"


class FakeMetricsServer:
    """Usage of the nodes and pods of a store; ``share`` is the fraction of its requests that a pod
    uses."""

    def __init__(self, store: Store, share: float = DEFAULT_SHARE) -> None:
        self._store = store
        self._share = share

    def read(self, target: RequestInfo, selector: SelectionPredicate) -> list[JsonObject]:
        """Return the NodeMetrics or PodMetrics that are requested; raises ``StatusError`` 404."""
        pods = target.served.plural == "pods"
        measured = self._stored(target, selector, "pods" if pods else "nodes")
        shown = self._pods(measured) if pods else self._nodes(measured)
        if target.name and not shown:
            raise not_found(target.served.name, target.name)
        return shown

    def _stored(
        self, target: RequestInfo, selector: SelectionPredicate, plural: str
    ) -> list[StoredObject]:
        """Return the nodes or pods with requested metrics; selectors apply to their labels."""
        collection = self._store.collection(plural)
        if not target.name:
            return collection.select(target.namespace, selector)
        version = collection.get(target.name, target.namespace or "")
        return [] if version is None else [version]

    # -- nodes -----------------------------------------------------------------------------------

    def _nodes(self, nodes: list[StoredObject]) -> list[JsonObject]:
        used = self._used_by_node()
        found = []
        for version in nodes:
            metadata = version.object()["metadata"]
            stated = metadata.get("annotations") or {}
            if NONE not in (stated.get(CPU_USAGE), stated.get(MEMORY_USAGE)):
                usage = {**used.get(version.name, {}), **_stated(stated, "node", version.name)}
                found.append(self._shown("NodeMetrics", metadata) | {"usage": _as_text(usage)})
        return found

    def _used_by_node(self) -> dict[str, Nano]:
        running = self._running(self._store.collection("pods").select(None, ALL))
        nodes: dict[str, Nano] = {}
        for pod in running:
            node = nodes.setdefault(pod.fields[_NODE_NAME], {})
            for usage in self._usage_of(pod).values():
                for resource, nano in usage.items():
                    node[resource] = node.get(resource, 0) + nano
        return nodes

    # -- pods ------------------------------------------------------------------------------------

    def _pods(self, pods: list[StoredObject]) -> list[JsonObject]:
        return [
            self._shown("PodMetrics", pod.object()["metadata"])
            | {
                "containers": [
                    {"name": name, "usage": _as_text(usage)}
                    for name, usage in self._usage_of(pod).items()
                ]
            }
            for pod in self._running(pods)
        ]

    def _running(self, pods: list[StoredObject]) -> list[StoredObject]:
        return [pod for pod in pods if pod.fields[_PHASE] == "Running"]

    def _usage_of(self, version: StoredObject) -> dict[str, Nano]:
        """Return the usage of a pod's containers, by name."""
        pod = decoder_for(Pod).decode(version.data)
        containers = pod.spec.containers
        stated = _stated(pod.metadata.annotations, "pod", pod.metadata.name)
        split = {resource: nano // len(containers) for resource, nano in stated.items()}
        return {
            container.name: {
                resource: int(parse_quantity(amount) * self._share)
                for resource, amount in container.resources.requests.items()
                if resource in _ANNOTATIONS
            }
            | split
            for container in containers
        }

    def _shown(self, kind: str, metadata: JsonObject) -> JsonObject:
        now = self._store.now()
        kept = ("name", "namespace", "labels")
        return {
            "kind": kind,
            "apiVersion": "metrics.k8s.io/v1beta1",
            "metadata": {k: metadata[k] for k in kept if k in metadata}
            | {"creationTimestamp": now},
            "timestamp": now,
            "window": _WINDOW,
        }


def _stated(annotations: Mapping[str, str], kind: str, name: str) -> Nano:
    """Return the usage that annotations state; raises ``StatusError`` 500 for a bad quantity."""
    stated = {}
    for resource, key in _ANNOTATIONS.items():
        if key in annotations:
            try:
                stated[resource] = parse_quantity(annotations[key])
            except ValueError as error:
                text = f'annotation {key} of {kind} "{name}": {error}'
                raise StatusError(500, "InternalError", text) from None
    return stated


def _as_text(usage: Nano) -> dict[str, str]:
    """Return usage in the units of metrics-server: nanocores (``n``) and ``Ki``."""
    cpu, memory = usage.get("cpu", 0), usage.get("memory", 0)
    return {"cpu": f"{cpu}n", "memory": f"{memory // (1024 * 10**9)}Ki"}
