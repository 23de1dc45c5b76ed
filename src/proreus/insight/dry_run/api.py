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
    """Pods to place."""

    pod: Annotated[Raw, Meta(description="A v1 Pod, as the apiserver would store it.")]
    count: Annotated[int, Meta(ge=1, le=MAX_PODS, description="The number of pods like it.")] = 1


class NodeTemplate(_Spec, frozen=True):
    """Nodes that do not exist."""

    name: Annotated[
        str, Meta(min_length=1, max_length=200, description="Their name; a number follows it.")
    ]
    node: Annotated[
        Raw, Meta(description="A v1 Node. Without allocatable amounts its capacity counts.")
    ]
    count: Annotated[int, Meta(ge=0, le=MAX_NODES, description="The number of nodes like it.")] = 1
    pods: Annotated[
        tuple[Raw, ...],
        Meta(description="v1 Pods that run on each of the nodes, such as those of DaemonSets."),
    ] = ()


class ScoreWeight(_Spec, frozen=True):
    """A weight of a score plugin, in place of the configured one."""

    plugin: Annotated[str, Meta(description="The name of a plugin that scores in the profile.")]
    weight: Annotated[
        int,
        Meta(
            ge=0, le=MAX_WEIGHT, description="The weight of its scores; with 0 they do not count."
        ),
    ]
    scheduler_name: Annotated[str, Meta(description="The profile.")] = DEFAULT_SCHEDULER_NAME


class DryRunSpec(_Spec, frozen=True):
    """The question."""

    pods: Annotated[
        tuple[PodItem, ...],
        Meta(
            min_length=1,
            max_length=MAX_PODS,
            description="The pods, in the order of their placement.",
        ),
    ]
    node_templates: Annotated[
        tuple[NodeTemplate, ...], Meta(description="Nodes to add to the cluster.")
    ] = ()
    ignored_nodes: Annotated[
        tuple[str, ...],
        Meta(
            max_length=MAX_IGNORED_NODES,
            description="Names of nodes that count as gone, with the pods on them.",
        ),
    ] = ()
    placement: Annotated[
        Literal["Sequential", "Independent"],
        Meta(
            description="Sequential: each pod counts on its node for the next ones. Independent: "
            "each pod is placed as if it were the only one."
        ),
    ] = "Sequential"
    include_extenders: Annotated[
        bool,
        Meta(
            description="Whether to ask the configured HTTP extenders. An extender with "
            "nodeCacheCapable does not know the added nodes."
        ),
    ] = False
    node_names: Annotated[
        int, Meta(ge=0, le=1000, description="The number of feasible nodes to name for each pod.")
    ] = 0
    best_nodes: Annotated[
        int,
        Meta(
            ge=0,
            le=MAX_BEST_NODES,
            description="The number of nodes with the highest scores to name for each pod.",
        ),
    ] = 0
    score_weights: Annotated[
        tuple[ScoreWeight, ...],
        Meta(
            max_length=MAX_SCORE_WEIGHTS,
            description="Weights to use instead of the configured ones.",
        ),
    ] = ()
    timeout_seconds: Annotated[
        int,
        Meta(
            ge=1,
            le=MAX_TIMEOUT_SECONDS,
            description="The time limit of the answer, waiting included.",
        ),
    ] = 10


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
    """The node of a pod, or the reasons for having none."""

    item: Annotated[int, Meta(description="The index of its item in spec.pods.")]
    pod: Annotated[str, Meta(description="Namespace and name of the pod.")]
    fits: bool
    node: Annotated[str, Meta(description="The node that would be chosen.")] = ""
    node_template: Annotated[
        str, Meta(description="The template of the node, if the cluster does not have it.")
    ] = ""
    feasible_nodes: Annotated[
        int, Meta(description="The number of nodes that can take the pod.")
    ] = 0
    feasible_node_names: Annotated[
        tuple[str, ...], Meta(description="The first of the nodes that can take the pod.")
    ] = ()
    best_nodes: Annotated[
        tuple[NodeTotal, ...],
        Meta(
            description="The nodes with the highest scores, the best first. A single feasible node "
            "is not scored."
        ),
    ] = ()
    reason: Reason | None = None
    message: Annotated[
        str, Meta(description="The text that the pod's condition PodScheduled would have.")
    ] = ""
    rejections: Annotated[
        tuple[RejectedNodeCount, ...],
        Meta(description="The rejected nodes by plugin and reason, the most frequent first."),
    ] = ()


class TemplateUse(_Status, frozen=True):
    """The number of nodes of a template that got pods, and the number of these pods."""

    name: str
    nodes: int
    nodes_used: int
    pods: int


class DryRunStatus(_Status, frozen=True):
    """The answer."""

    time: Annotated[
        str, Meta(description="The moment to which the answer applies, as in RFC 3339.")
    ]
    all_fit: Annotated[bool, Meta(description="Whether each pod has a node.")]
    cluster_nodes: Annotated[
        int, Meta(description="The number of the cluster's own nodes that took part.")
    ]
    pods: tuple[PodOutcome, ...]
    node_templates: tuple[TemplateUse, ...] = ()
    unknown_nodes: Annotated[
        tuple[str, ...], Meta(description="The names in spec.ignoredNodes that no node has.")
    ] = ()
    plugins_left_out: Annotated[
        tuple[str, ...],
        Meta(description="Plugins that were not asked, as they fetch their results elsewhere."),
    ] = ()


class DryRunReview(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """A question and, in the response, its answer."""

    api_version: Literal["scheduling.proreus.dev/v1alpha1"]
    kind: Literal["DryRunReview"]
    spec: DryRunSpec
    status: DryRunStatus | None = None
