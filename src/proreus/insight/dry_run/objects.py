"""The pods and nodes of a request, decoded and given names that nothing in the cluster has."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from itertools import count

import msgspec

from proreus.base.errors import ProreusError
from proreus.config.types import DEFAULT_SCHEDULER_NAME
from proreus.insight.dry_run.api import NodeTemplate
from proreus.objects.codec import DecodeError, decoder_for
from proreus.objects.meta import ObjectMeta
from proreus.objects.node import LABEL_HOSTNAME, Node
from proreus.objects.pod import Pod
from proreus.objects.quantity_validation import (
    validate_node_quantities,
    validate_pod_quantities,
)


class _Kind(msgspec.Struct):
    kind: str = "Pod"


_POD, _NODE, _KIND = decoder_for(Pod), decoder_for(Node), decoder_for(_Kind)


class InvalidDryRun(ProreusError):
    """A request that cannot be answered."""


def decode_pod(place: str, text: msgspec.Raw) -> Pod:
    """Return a pod of the request; raises ``InvalidDryRun``."""
    try:
        if (kind := _KIND.decode(text).kind) != Pod.__name__:
            raise InvalidDryRun(f"{place}: this is a {kind}; send a pod, such as its spec.template")
        pod = _POD.decode(text)
        validate_pod_quantities(pod)
        if not pod.spec.containers:
            raise InvalidDryRun(f"{place}.spec.containers: a container is required")
        namespace = pod.metadata.namespace or "default"
        meta = msgspec.structs.replace(pod.metadata, namespace=namespace)
        # The apiserver's default, which a pod of a template or of an admission review lacks.
        scheduler_name = pod.spec.scheduler_name or DEFAULT_SCHEDULER_NAME
        spec = msgspec.structs.replace(pod.spec, scheduler_name=scheduler_name)
        return msgspec.structs.replace(pod, metadata=meta, spec=spec)
    except (DecodeError, ValueError) as error:
        raise InvalidDryRun(f"{place}: {error}") from None


def numbered_pods(
    pod: Pod, item: int, replicas: int, is_taken: Callable[[str], bool]
) -> Iterator[Pod]:
    """Yield pods like one, with UIDs of their own; ``is_taken``: whether a UID is in use."""
    meta = pod.metadata
    name = meta.name or meta.generate_name or f"pod-{item}"
    for number in range(replicas):
        # A pending pod keeps its UID: a nomination of its own must not count against it.
        own = meta.uid and number == 0 and not is_taken(meta.uid)
        yield msgspec.structs.replace(
            pod,
            metadata=msgspec.structs.replace(
                meta,
                name=name if replicas == 1 else f"{name}-{number}",
                uid=meta.uid if own else f"dry-run/{item}/{number}",
            ),
        )


def decode_node(place: str, text: msgspec.Raw) -> Node:
    """Return a node of the request; raises ``InvalidDryRun``."""
    try:
        node = _NODE.decode(text)
        validate_node_quantities(node)
    except (DecodeError, ValueError) as error:
        raise InvalidDryRun(f"{place}: {error}") from None
    status = node.status
    if not status.allocatable:
        status = msgspec.structs.replace(status, allocatable=status.capacity)
    if not status.allocatable:
        raise InvalidDryRun(f"{place}.status.allocatable: is required")
    return msgspec.structs.replace(node, status=status)


class DecodedTemplate:
    """A template of nodes; ``place``: where it is in the request."""

    def __init__(self, place: str, template: NodeTemplate) -> None:
        """Decode it; raises ``InvalidDryRun``."""
        self.place = place
        self.name = template.name
        self._count = template.count
        self._node = decode_node(f"{place}.node", template.node)
        self._pods = [
            decode_pod(f"{place}.pods[{number}]", text) for number, text in enumerate(template.pods)
        ]

    def resource_names(self) -> set[str]:
        """Return the resources that the nodes have, or that the pods on them request."""
        names = set(self._node.status.allocatable)
        for pod in self._pods:
            names.update(*(one.resources.requests for one in pod.spec.containers))
            names.update(*(one.resources.requests for one in pod.spec.init_containers))
        return names

    def nodes(self, taken: Container[str]) -> Iterator[tuple[Node, list[Pod]]]:
        """Yield the nodes with the pods on each; ``taken``: names that exist already."""
        names = (name for n in count() if (name := f"{self.name}-{n}") not in taken)
        for _ in range(self._count):
            name = next(names)
            labels = self._node.metadata.labels
            if LABEL_HOSTNAME in labels:
                labels = {**labels, LABEL_HOSTNAME: name}
            meta = msgspec.structs.replace(
                self._node.metadata, name=name, uid=f"dry-run/{name}", labels=labels
            )
            yield (
                msgspec.structs.replace(self._node, metadata=meta),
                [_on_node(pod, name, number) for number, pod in enumerate(self._pods)],
            )


def _on_node(pod: Pod, node_name: str, number: int) -> Pod:
    meta: ObjectMeta = msgspec.structs.replace(
        pod.metadata,
        name=f"{pod.metadata.name or 'pod'}-{node_name}-{number}",
        uid=f"dry-run/{node_name}/{number}",
    )
    spec = msgspec.structs.replace(pod.spec, node_name=node_name)
    return msgspec.structs.replace(pod, metadata=meta, spec=spec)
