"""The constraints that apply to a pod: its own, or else the profile's defaults.

Equal constraints of several pods are parsed once and shared.

Worked example: a Deployment's pods spread over zones with ``matchLabelKeys: [pod-template-hash]``.
A pod with the hash ``a1`` counts pods that match the label selector and have the hash ``a1``, so
that pods of the previous revision do not count.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec
from msgspec import Struct

from proreus.base.bounded_cache import BYTES_AN_ENCODED_BYTE, LoadingCache, approximate_size
from proreus.base.kubernetes_version import Change
from proreus.framework.handle import Handle
from proreus.framework.pod_label_groups import PodMatch, PodQuery
from proreus.objects.node import LABEL_HOSTNAME, LABEL_ZONE
from proreus.objects.pod import Pod, TopologySpreadConstraint
from proreus.objects.selectors import (
    EVERYTHING,
    Requirement,
    Selector,
    SelectorError,
    parse_label_selector,
)
from proreus.plugins.pod_topology_spread.args import DefaultConstraint, PodTopologySpreadArgs
from proreus.plugins.pod_topology_spread.default_selectors import DefaultSelectors

HARD = "DoNotSchedule"
SOFT = "ScheduleAnyway"

_SYSTEM_DEFAULTS = (
    TopologySpreadConstraint(max_skew=3, topology_key=LABEL_HOSTNAME, when_unsatisfiable=SOFT),
    TopologySpreadConstraint(max_skew=5, topology_key=LABEL_ZONE, when_unsatisfiable=SOFT),
)


class SpreadConstraint(Struct, frozen=True, eq=False):
    """A parsed constraint.

    ``query``: the pods that it counts; None if it counts none. ``selector``: whether the pod itself
    counts.
    """

    topology_key: str
    max_skew: int
    min_domains: int
    honor_affinity: bool
    honor_taints: bool
    selector: Selector
    query: PodQuery | None


class ResolvedConstraints(Struct, frozen=True, eq=False):
    """A pod's hard and soft constraints.

    ``own``: they are in the pod's spec, and not defaults. Errors are kube-scheduler's texts.
    """

    hard: tuple[SpreadConstraint, ...] = ()
    soft: tuple[SpreadConstraint, ...] = ()
    own: bool = True
    hard_error: str = ""
    soft_error: str = ""


_NONE = ResolvedConstraints(own=False)


class ConstraintResolver:
    """Finds the constraints of pods.

    ``system_defaulted``: whether the defaults are kube-scheduler's and not the profile's.
    """

    def __init__(self, args: PodTopologySpreadArgs, handle: Handle) -> None:
        self.system_defaulted = args.defaulting_type != "List"
        defaults = (
            _SYSTEM_DEFAULTS
            if self.system_defaulted
            else tuple(map(_typed, args.default_constraints))
        )
        self._default_hard = tuple(c for c in defaults if c.when_unsatisfiable == HARD)
        self._default_soft = tuple(c for c in defaults if c.when_unsatisfiable == SOFT)
        self._selectors = DefaultSelectors(handle) if defaults else None
        self._options = _Options(
            handle.feature_gates.enabled("MatchLabelKeysInPodTopologySpread"),
            handle.feature_gates.includes(Change.EMPTY_SPREAD_SELECTOR_COUNTS),
        )
        self._defaults = LoadingCache(16 * 2**20, _key_of_defaults, self._resolve_defaults)

    @property
    def has_hard_defaults(self) -> bool:
        """Whether pods without constraints of their own may have hard ones."""
        return bool(self._default_hard)

    def hard_of(self, pod: Pod) -> ResolvedConstraints:
        """Return the constraints of a pod, at least the hard ones; cheap if there are none."""
        # The system defaults are soft: deducing a selector for them is left to PreScore.
        if not pod.spec.topology_spread_constraints and not self._default_hard:
            return _NONE
        return self.of(pod)

    def of(self, pod: Pod) -> ResolvedConstraints:
        """Return the constraints of a pod."""
        if pod.spec.topology_spread_constraints:
            return _shared.of(pod, self._options)
        if self._selectors is None:
            return _NONE
        selector = self._selectors.of(pod)
        # Neither a service nor an owner selects the pod: kube-scheduler then applies no defaults.
        if selector == EVERYTHING:
            return _NONE
        return self._defaults.of(pod.metadata.namespace, selector)

    def _resolve_defaults(
        self, key: object, namespace: str, selector: Selector
    ) -> tuple[ResolvedConstraints, int]:
        hard, soft = (
            tuple(_constraint(one, selector, namespace, self._options) for one in defaults)
            for defaults in (self._default_hard, self._default_soft)
        )
        return ResolvedConstraints(hard, soft, own=False), _size_of(key)


def _key_of_defaults(namespace: str, selector: Selector) -> tuple[str, Selector]:
    return namespace, selector


class _Options(NamedTuple):
    """The gate of matchLabelKeys, and whether an empty selector counts all pods."""

    match_label_keys: bool
    empty_counts: bool


_encode = msgspec.msgpack.Encoder().encode
_Key = tuple[_Options, str, bytes, tuple[str | None, ...]]


def _key_of(pod: Pod, options: _Options) -> _Key:
    constraints, meta = pod.spec.topology_spread_constraints, pod.metadata
    # Of the pod's labels only these take part; its name or hash must not split the cache.
    values = tuple(meta.labels.get(key) for c in constraints for key in c.match_label_keys)
    return options, meta.namespace, _encode(constraints), values


def _resolved(key: _Key, pod: Pod, options: _Options) -> tuple[ResolvedConstraints, int]:
    hard, hard_error = _parse(pod, HARD, options)
    soft, soft_error = _parse(pod, SOFT, options)
    resolved = ResolvedConstraints(
        hard,
        soft,
        hard_error=hard_error and f"obtaining pod's hard topology spread constraints: {hard_error}",
        soft_error=soft_error and f"obtaining pod's soft topology spread constraints: {soft_error}",
    )
    return resolved, _size_of(key)


def _size_of(key: object) -> int:
    # Once as they are written, and parsed twice: as a selector and as a query over pods.
    return BYTES_AN_ENCODED_BYTE * approximate_size(key)


_shared = LoadingCache(16 * 2**20, _key_of, _resolved)


def _parse(pod: Pod, action: str, options: _Options) -> tuple[tuple[SpreadConstraint, ...], str]:
    labels, parsed = pod.metadata.labels, []
    for one in pod.spec.topology_spread_constraints:
        if one.when_unsatisfiable != action:
            continue
        try:
            selector = parse_label_selector(one.label_selector)
        except SelectorError as error:
            return (), str(error)
        if options.match_label_keys:
            selector = _with_label_values(selector, one.match_label_keys, labels)
        parsed.append(_constraint(one, selector, pod.metadata.namespace, options))
    return tuple(parsed), ""


def _with_label_values(
    selector: Selector, keys: tuple[str, ...], labels: Mapping[str, str]
) -> Selector:
    """Require the pod's own values of some labels as well; keys that it lacks are ignored."""
    # Without a label selector matchLabelKeys has no effect: nothing stays nothing.
    if selector.nothing:
        return selector
    own = tuple(Requirement(key, "In", frozenset((labels[key],))) for key in keys if key in labels)
    return Selector((*own, *selector.requirements))


def _constraint(
    one: TopologySpreadConstraint, selector: Selector, namespace: str, options: _Options
) -> SpreadConstraint:
    # Until 1.37 kube-scheduler counts no pod for an empty selector. The pod itself still matches it
    # (self-match), hence both fields. Terminating pods are not counted.
    query = None
    if options.empty_counts or not selector.empty:
        query = PodQuery((PodMatch(frozenset((namespace,)), selector),), skip_terminating=True)
    return SpreadConstraint(
        topology_key=one.topology_key,
        max_skew=one.max_skew,
        # Without minDomains the global minimum is that of the domains that exist.
        min_domains=1 if one.min_domains is None else one.min_domains,
        honor_affinity=one.node_affinity_policy in (None, "Honor"),
        honor_taints=one.node_taints_policy == "Honor",
        selector=selector,
        query=query,
    )


def _typed(constraint: DefaultConstraint) -> TopologySpreadConstraint:
    """Return a default constraint as one of a pod; its selector is deduced later."""
    return TopologySpreadConstraint(
        max_skew=constraint.max_skew,
        topology_key=constraint.topology_key,
        when_unsatisfiable=constraint.when_unsatisfiable,
        min_domains=constraint.min_domains,
        node_affinity_policy=constraint.node_affinity_policy,
        node_taints_policy=constraint.node_taints_policy,
    )
