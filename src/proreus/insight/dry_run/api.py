"""The API of dry runs: ``DryRunReview`` of group ``scheduling.proreus.dev``, version ``v1alpha1``.

Like a SubjectAccessReview: a client posts an object with a spec, and gets it back with a status.
Nothing is stored. Pods and nodes are kept as JSON text, and decoded one by one.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Raw

from proreus.config.types import DEFAULT_SCHEDULER_NAME

GROUP = "scheduling.proreus.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"

MAX_PODS = 2000
MAX_NODES = 2000
MAX_TEMPLATE_PODS = 10_000
MAX_NODE_NAMES = 50_000
MAX_VALUES = 4_000_000
"""Labels, taints, amounts, images and other values of all pods and nodes together."""
MAX_RESOURCES = 500
"""The most different resources of all added nodes; each is a column of all nodes."""
MAX_IGNORED_NODES = 20_000
MAX_TIMEOUT_SECONDS = 60
MAX_BEST_NODES = 100
MAX_SCORE_WEIGHTS = 1000
MAX_WEIGHT = 1_000_000

Reason = Literal[
    "Unschedulable", "SchedulerError", "SchedulingGated", "OtherScheduler", "AlreadyAssigned"
]


class _Spec(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Fields are snake_case here and camelCase in JSON; a misspelt one is an error."""


class PodItem(_Spec, frozen=True):
    """Pods to place. ``pod``: a Pod. ``count``: how many like it."""

    pod: Raw
    count: Annotated[int, Meta(ge=1, le=MAX_PODS)] = 1


class NodeTemplate(_Spec, frozen=True):
    """Nodes that do not exist.

    ``name``: theirs, followed by a number. ``node``: a Node; without allocatable amounts its
    capacity counts. ``pods``: Pods on each of them, those of DaemonSets for instance.
    """

    name: Annotated[str, Meta(min_length=1, max_length=200)]
    node: Raw
    count: Annotated[int, Meta(ge=0, le=MAX_NODES)] = 1
    pods: tuple[Raw, ...] = ()


class ScoreWeight(_Spec, frozen=True):
    """A weight of a score plugin, in place of the configured one.

    ``scheduler_name``: the profile. ``weight``: of its normalised scores; 0: they do not count.
    """

    plugin: str
    weight: Annotated[int, Meta(ge=0, le=MAX_WEIGHT)]
    scheduler_name: str = DEFAULT_SCHEDULER_NAME


class DryRunSpec(_Spec, frozen=True):
    """The question.

    ``pods``: in the order in which they are placed. ``node_templates``: nodes to be added.
    ``ignored_nodes``: names of nodes that are taken for gone, with the pods on them.
    ``placement``: ``Sequential``: each pod sees those before it on their nodes; ``Independent``:
    each pod is asked about by itself. ``include_extenders``: also ask the configured extenders,
    which do not know the added nodes unless they are sent whole nodes. ``node_names``: how many
    feasible nodes are named for each pod. ``best_nodes``: how many nodes with the highest scores
    are named, with these. ``score_weights``: weights to be used instead of the configured ones.
    ``timeout_seconds``: after which there is no answer.
    """

    pods: Annotated[tuple[PodItem, ...], Meta(min_length=1, max_length=MAX_PODS)]
    node_templates: tuple[NodeTemplate, ...] = ()
    ignored_nodes: Annotated[tuple[str, ...], Meta(max_length=MAX_IGNORED_NODES)] = ()
    placement: Literal["Sequential", "Independent"] = "Sequential"
    include_extenders: bool = False
    node_names: Annotated[int, Meta(ge=0, le=1000)] = 0
    best_nodes: Annotated[int, Meta(ge=0, le=MAX_BEST_NODES)] = 0
    score_weights: Annotated[tuple[ScoreWeight, ...], Meta(max_length=MAX_SCORE_WEIGHTS)] = ()
    timeout_seconds: Annotated[int, Meta(ge=1, le=MAX_TIMEOUT_SECONDS)] = 10


class _Status(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Fields are snake_case here and camelCase in JSON; fields with their default are left out."""


class RejectedNodeCount(_Status, frozen=True):
    """The number of nodes that one plugin rejected for the same reasons."""

    plugin: str
    reasons: tuple[str, ...]
    nodes: int


class NodeTotal(_Status, frozen=True):
    """The total score of a node: the weighted sum of the scores of plugins and extenders."""

    node: str
    score: int


class PodOutcome(_Status, frozen=True):
    """The node of a pod, or the reasons for having none.

    ``item``: its index in ``spec.pods``. ``node``: the node that would be chosen, ``node_template``
    the name of its template if it is not one of the cluster. ``feasible_nodes``: how many nodes can
    take it; ``feasible_node_names``: the first of them. ``best_nodes``: those with the highest
    scores, the best first; none where one node alone can take the pod, which is not scored then.
    ``message``: the text that its PodScheduled condition would get. ``rejections``: the nodes by
    plugin and reason, the most frequent first.
    """

    item: int
    pod: str
    fits: bool
    node: str = ""
    node_template: str = ""
    feasible_nodes: int = 0
    feasible_node_names: tuple[str, ...] = ()
    best_nodes: tuple[NodeTotal, ...] = ()
    reason: Reason | None = None
    message: str = ""
    rejections: tuple[RejectedNodeCount, ...] = ()


class TemplateUse(_Status, frozen=True):
    """The number of nodes of a template that got pods, and the number of these pods."""

    name: str
    nodes: int
    nodes_used: int
    pods: int


class DryRunStatus(_Status, frozen=True):
    """The answer.

    ``time``: the moment whose nodes and pods it is about, RFC 3339. ``all_fit``: whether each pod
    has a node. ``cluster_nodes``: how many nodes of the cluster took part. ``unknown_nodes``: those
    of ``spec.ignoredNodes`` that do not exist. ``plugins_left_out``: plugins in processes of their
    own, which were not asked.
    """

    time: str
    all_fit: bool
    cluster_nodes: int
    pods: tuple[PodOutcome, ...]
    node_templates: tuple[TemplateUse, ...] = ()
    unknown_nodes: tuple[str, ...] = ()
    plugins_left_out: tuple[str, ...] = ()


class DryRunReview(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """A question and, in the response, its answer."""

    api_version: Literal["scheduling.proreus.dev/v1alpha1"]
    kind: Literal["DryRunReview"]
    spec: DryRunSpec
    status: DryRunStatus | None = None
