"""PodInfo: a pod with everything that scheduling derives from it, computed once.

Amounts are int64 in the units of ``objects.quantity``. Pods with equal requests share one
``PodRequests``, so that a thousand replicas cost one computation.

Example: a container requests cpu 500m and no memory. ``requests.amounts`` is {"cpu": 500},
``requests.nonzero`` is (500, 209715200): 200 MiB is the default that kube-scheduler scores with.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from itertools import repeat
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import msgspec
from msgspec import Struct

from proreus.base.bounded_cache import LoadingCache
from proreus.framework.attribute_hints import AttributeHints
from proreus.framework.read_only import Amounts
from proreus.objects.meta import key_of
from proreus.objects.pod import Container, Pod, PodSpec
from proreus.objects.requests import (
    DEFAULT_RESOURCES_OPTIONS,
    NON_ZERO_DEFAULTS,
    PodResourcesOptions,
    has_pod_level_requests,
    may_count_with_status,
    non_zero_requests,
    pod_requests,
)

ASSUMED_AS = "proreus/assumed-as"
"""``CycleState`` key that Reserve may write: the ``PodInfo`` to assume on the node instead of the
pod, because its devices take more of the node than it requests. None for the pod itself."""

_WITHOUT_POD_LEVEL = PodResourcesOptions(pod_level=False)

NOT_STARTED = float("inf")
"""The start time of a pod that has not started yet."""

SelectorKey = tuple[str, frozenset[tuple[str, str]]]
"""Namespace and labels of a pod."""


class HostPort(NamedTuple):
    """A port taken on a node's own address: ``ip`` (0.0.0.0 for all), ``protocol``, ``port``."""

    ip: str
    protocol: str
    port: int


class PodRequests(AttributeHints):
    """A pod's requests, in the three forms in which kube-scheduler counts them.

    ``amounts``: for Filter and ``NodeInfo.requested``. ``nonzero``: (milli-CPU, bytes) with
    defaults for what is not requested, for ``NodeInfo.nonzero_requested``. ``scoring``: for Score
    of NodeResourcesFit, with defaults.
    """

    __slots__ = ("_options", "_scoring", "_use_status", "amounts", "key", "nonzero", "pod")

    def __init__(
        self,
        pod: Pod,
        options: PodResourcesOptions = DEFAULT_RESOURCES_OPTIONS,
        use_status: bool = False,
    ) -> None:
        self.pod = pod
        self._options = options
        self._use_status = use_status
        self.amounts: Mapping[str, int] = Amounts(pod_requests(pod, options, use_status=use_status))
        self.nonzero: tuple[int, int] = non_zero_requests(pod, options, use_status=use_status)
        self._scoring: Mapping[str, int] | None = None
        # A frozenset keeps its hash, which a tuple computes each time.
        self.key: Hashable = (frozenset(self.amounts.items()), self.nonzero)
        """Equal for pods with equal requests; plugins sign pods by it."""

    @property
    def scoring(self) -> Mapping[str, int]:
        """Amounts by tracked resource, with defaults; until 1.37 of the containers' specs alone."""
        if self._scoring is None:
            as_filtered = self._options.scores_as_filtered
            amounts = pod_requests(
                self.pod,
                self._options if as_filtered else _WITHOUT_POD_LEVEL,
                use_status=as_filtered and self._use_status,
                non_missing=NON_ZERO_DEFAULTS,
            )
            self._scoring = Amounts(amounts)
        return self._scoring


class PodInfo(AttributeHints):
    """A pod and values derived from it, some at first use; otherwise immutable."""

    __slots__ = (
        "_accounted_requests",
        "_host_ports",
        "_importance",
        "_selector_key",
        "affinity_terms",
        "key",
        "node_affinity",
        "pod",
        "requests",
        "resized",
        "resources_options",
        "toleration_index",
        "uid",
    )

    def __init__(
        self,
        pod: Pod,
        resources_options: PodResourcesOptions = DEFAULT_RESOURCES_OPTIONS,
        before: PodInfo | None = None,
    ) -> None:
        """``before``: another version of the pod; requests that are equal are shared."""
        self.pod: Pod = pod
        """The API object."""
        self.key: str = key_of(pod)
        """``namespace/name``"""
        self.uid: str = pod.metadata.uid
        """UID of the pod."""
        self.resources_options = resources_options
        self.requests: PodRequests = (
            before.requests
            if before is not None
            and before.resources_options == resources_options
            and _requests_are_equal(before.pod.spec, pod.spec)
            else _requests_of(pod, resources_options)
        )
        """The pod's requests, ``requests.amounts["cpu"]`` in milli-CPU for instance."""
        self.resized: PodRequests = self._requests_during_resize()
        """The requests during an in-place resize: the larger of spec and status, by container."""
        self._accounted_requests: PodRequests | None = None
        self._host_ports: tuple[HostPort, ...] | None = None
        self._importance: tuple[int, float] | None = None
        self._selector_key: SelectorKey | None = None
        self.affinity_terms: Any = None
        """``AffinityTerms``, set by ``framework.affinity_terms``; None before that."""
        self.node_affinity: Any = None
        """A ``PodNodeAffinity``, set by ``framework.node_affinity``; None before that."""
        self.toleration_index: Any = None
        """A ``TolerationIndex``, set by ``framework.tolerations``; None before that."""

    def _requests_during_resize(self) -> PodRequests:
        # A pod that is being resized down still holds what it had. Only pods with resources in
        # their status can be in a resize, and most have none: they keep the shared value.
        options, status = self.resources_options, self.pod.status
        containers = status.container_statuses or status.init_container_statuses
        reported = status.conditions or containers or status.resources
        if reported and may_count_with_status(self.pod, resized_by_sum=options.resized_by_sum):
            return PodRequests(self.pod, options._replace(devices=False), True)
        return self.requests

    def __repr__(self) -> str:
        return f"PodInfo({self.key})"

    @property
    def name(self) -> str:
        """Name of the pod."""
        return self.pod.metadata.name

    @property
    def namespace(self) -> str:
        """Namespace of the pod."""
        return self.pod.metadata.namespace

    @property
    def labels(self) -> Mapping[str, str]:
        """Labels of the pod, read-only."""
        return MappingProxyType(self.pod.metadata.labels)

    @property
    def selector_key(self) -> SelectorKey:
        """Namespace and labels: pods with equal keys match the same selectors."""
        if self._selector_key is None:
            meta = self.pod.metadata
            self._selector_key = meta.namespace, frozenset(meta.labels.items())
        return self._selector_key

    @property
    def priority(self) -> int:
        """``spec.priority``, 0 if there is none."""
        return self.pod.spec.priority or 0

    @property
    def importance(self) -> tuple[int, float]:
        """Sort key, the most important pod first, as kube-scheduler's ``MoreImportantPod``.

        (negative priority, start time in seconds since the epoch; infinite before the start).
        """
        if self._importance is None:
            start = self.pod.status.start_time
            self._importance = (-self.priority, NOT_STARTED if start is None else start.timestamp())
        return self._importance

    @property
    def accounted_requests(self) -> PodRequests:
        """The requests counted on the pod's node, those of its devices included."""
        # Derived at first use: only pods that are on a node need it.
        if self._accounted_requests is None:
            taken = self.pod.status.node_allocatable_resource_claim_statuses
            if taken and self.resources_options.devices:
                self._accounted_requests = PodRequests(self.pod, self.resources_options, True)
            else:
                self._accounted_requests = self.resized
        return self._accounted_requests

    @property
    def host_ports(self) -> tuple[HostPort, ...]:
        """Host ports of the pod's containers and sidecars."""
        if self._host_ports is None:
            self._host_ports = host_ports_of(self.pod)
        return self._host_ports


def host_ports_of(pod: Pod) -> tuple[HostPort, ...]:
    """Return the host ports of containers and sidecars, with the API's defaults filled in."""
    spec = pod.spec
    containers = spec.containers
    # Init containers end before the pod's own start and give their ports back; those that restart
    # always (sidecars) run on.
    if spec.init_containers:
        sidecars = tuple(c for c in spec.init_containers if c.restart_policy == "Always")
        containers = containers + sidecars
    ports = [
        (port.host_ip or "0.0.0.0", port.protocol or "TCP", port.host_port)
        for container in containers
        for port in container.ports
        if port.host_port > 0
    ]
    # What ``HostPort(…)`` does, without a call in Python for each: a pod may have 60,000.
    return tuple(map(tuple.__new__, repeat(HostPort), ports))


_BYTES_A_REQUEST = 600
"""The memory of the request for a resource, as text, in the key and in the amounts."""


def _requests_of(pod: Pod, options: PodResourcesOptions) -> PodRequests:
    """Return a pod's requests, shared with pods whose containers have equal requests."""
    # Pods with pod-level requests are rare enough to be computed one by one.
    if has_pod_level_requests(pod):
        return PodRequests(pod, options._replace(devices=False))
    return _shared_requests.of(pod.spec)


def _requests_are_equal(one: PodSpec, other: PodSpec) -> bool:
    # A pod may have 10,000 containers, and few updates change any of them. Requests of pod-level
    # resources refer to the pod, whose first version would be kept.
    return (
        one.containers == other.containers
        and one.init_containers == other.init_containers
        and one.overhead == other.overhead
        and one.resources is None
        and other.resources is None
    )


def _key_of_requests(spec: PodSpec) -> Hashable:
    # As written, unparsed: pods of one workload are written the same, and parsing is the cost that
    # sharing avoids. Two spellings of an amount merely make two entries.
    key: tuple[Hashable, ...] = tuple(tuple(c.resources.requests.items()) for c in spec.containers)
    if spec.init_containers or spec.overhead:
        init = [(c.restart_policy, *c.resources.requests.items()) for c in spec.init_containers]
        key = (*key, None, *init, tuple(spec.overhead.items()))
    return key


def _computed_requests(_key: Hashable, spec: PodSpec) -> tuple[PodRequests, int]:
    # Without the rest of the pod: its annotations would be kept for as long as the requests.
    counted = PodSpec(
        containers=tuple(Container(resources=c.resources) for c in spec.containers),
        init_containers=tuple(
            Container(resources=c.resources, restart_policy=c.restart_policy)
            for c in spec.init_containers
        ),
        overhead=spec.overhead,
    )
    containers = (*spec.containers, *spec.init_containers)
    written = sum(len(c.resources.requests) for c in containers) + len(spec.overhead)
    size_bytes = _BYTES_A_REQUEST * (1 + len(containers) + written)
    return PodRequests(Pod(spec=counted), _WITHOUT_POD_LEVEL), size_bytes


_shared_requests = LoadingCache(16 * 2**20, _key_of_requests, _computed_requests)


class QueueingParams(Struct, eq=False, kw_only=True):
    """The history of a queued pod or group (kube-scheduler's type of the name).

    ``attempts``: how often it was tried; ``unschedulable_count``, how often it was rejected;
    ``consecutive_errors_count``, how many attempts in a row failed with an error.
    ``initial_attempt_timestamp`` (None before the first attempt) and ``backoff_expiration`` (None
    if not in back-off): in seconds of ``Clock.monotonic``. ``unschedulable_plugins`` and
    ``pending_plugins``: the plugins that rejected it, kept after the pop until an attempt fails.
    ``gating_plugin``: the PreEnqueue plugin that gates it, or "". ``flush_timestamp``: when the
    flush of pods that waited too long last moved it, or tried to.
    """

    attempts: int = 0
    unschedulable_count: int = 0
    consecutive_errors_count: int = 0
    backoff_expiration: float | None = None
    initial_attempt_timestamp: float | None = None
    unschedulable_plugins: set[str] = msgspec.field(default_factory=set)
    pending_plugins: set[str] = msgspec.field(default_factory=set)
    gating_plugin: str = ""
    was_flushed_from_unschedulable: bool = False
    flush_timestamp: float = 0.0
    cost_seconds: float = 0.0
    """The computing time of its last attempt if that delayed other pods, else 0."""
    consecutive_overruns: int = 0
    """How many attempts in a row exceeded their time budget."""

    @property
    def gated(self) -> bool:
        """Whether a PreEnqueue plugin gates it."""
        return bool(self.gating_plugin)

    @property
    def costly(self) -> bool:
        """Whether its last attempt delayed other pods."""
        return self.cost_seconds > 0

    def set_was_flushed_from_unschedulable(self, flushed: bool) -> None:
        """Record whether its next attempt is due to the flush; for each pod of a group too."""
        self.was_flushed_from_unschedulable = flushed

    @property
    def rejectors(self) -> set[str]:
        """All plugins that rejected it."""
        return self.unschedulable_plugins | self.pending_plugins


class QueuedPodInfo(QueueingParams, eq=False):
    """A pod in the scheduling queue, with the history of its attempts.

    ``info``: the pod. ``timestamp``: when it last entered the queue, in seconds of
    ``Clock.monotonic``. The rest: see ``QueueingParams``.
    """

    type: ClassVar[str] = "pod"
    """In metrics; a group is a ``podgroup``."""
    size: ClassVar[int] = 1
    """How many pods it is."""

    info: PodInfo
    timestamp: float

    @property
    def pod(self) -> Pod:
        """The API object."""
        return self.info.pod

    @property
    def uid(self) -> str:
        """UID of the pod."""
        return self.info.uid

    @property
    def key(self) -> str:
        """``namespace/name``"""
        return self.info.key

    @property
    def priority(self) -> int:
        """Priority of the pod."""
        return self.info.priority

    @property
    def queued_pods(self) -> Sequence[QueuedPodInfo]:
        """The pod itself; those of a group are several (``QueuedPodGroupInfo``)."""
        return (self,)
