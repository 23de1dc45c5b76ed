"""What a group asks of the topology.

=====================================================  =============================================
annotation of the pods                                 meaning
=====================================================  =============================================
``kueue.x-k8s.io/podset-required-topology``            all pods in one domain of this label
``kueue.x-k8s.io/podset-preferred-topology``           in one domain of this label if there is one
``kueue.x-k8s.io/podset-unconstrained-topology``       anywhere, in as few domains as possible
``kai.scheduler/topology-required-placement``          as Kueue's
``kai.scheduler/topology-preferred-placement``         as Kueue's
=====================================================  =============================================

The first pod of a group speaks for all.
"""

from __future__ import annotations

from dataclasses import dataclass

from proreus.objects import Pod

_REQUIRED = (
    "kueue.x-k8s.io/podset-required-topology",
    "kai.scheduler/topology-required-placement",
)
_PREFERRED = (
    "kueue.x-k8s.io/podset-preferred-topology",
    "kai.scheduler/topology-preferred-placement",
)
_UNCONSTRAINED = "kueue.x-k8s.io/podset-unconstrained-topology"


@dataclass(frozen=True)
class TopologyRequest:
    """``key``: the label of the domain, "" for none. ``required``: whether one has to hold all."""

    key: str = ""
    required: bool = False


def topology_request(pod: Pod) -> TopologyRequest | None:
    """Return what a pod's group asks for; None if it asks for nothing."""
    annotations = pod.metadata.annotations
    for names, required in ((_REQUIRED, True), (_PREFERRED, False)):
        for name in names:
            if key := annotations.get(name):
                return TopologyRequest(key, required)
    return TopologyRequest() if annotations.get(_UNCONSTRAINED) == "true" else None
