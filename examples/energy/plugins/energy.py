"""Energy: prefers the node whose power draw a pod raises least, by a power model of each node.

A node's draw is taken to rise linearly with the CPU that is requested on it, from ``idle`` to
``max`` watts. A node that runs nothing but its DaemonSets could be asleep: waking it costs its idle
watts too. So busy nodes are filled first, the efficient ones before the others.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator

import numpy as np
from pydantic import Field

from proreus.framework import (
    ConfigModel,
    CycleState,
    FeatureGates,
    IntArray,
    NodeInfo,
    NodeTable,
    PluginArgs,
    PodInfo,
    ScorePlugin,
    default_normalize,
    field_errors,
)


class PowerModel(ConfigModel):
    """What a node draws, in watts."""

    idle: int = Field(ge=0, le=1_000_000, description="With nothing requested.")
    max: int = Field(ge=0, le=1_000_000, description="With all of its CPU requested.")


class Energy(ScorePlugin):
    """A raw score is the rise in milliwatts, the smallest is the best."""

    class Args(PluginArgs):
        """The models, and which node has which."""

        node_label: str = Field(
            "example.com/power-model", description="Label of nodes: the name of their model."
        )
        models: dict[str, PowerModel] = Field(
            {"*": PowerModel(idle=100, max=300)}, description='By name; "*" is that of all others.'
        )
        asleep_below: int = Field(
            1, ge=0, description="A node with fewer pods counts as asleep: its DaemonSets + 1."
        )

        def problems(self, path: str, gates: FeatureGates) -> Iterator[str]:
            if "*" not in self.models:
                yield field_errors.required(
                    field_errors.child(path, "models", "*"), "the model of nodes without a label"
                )
            for name, model in self.models.items():
                if model.max < model.idle:
                    text = f"must not be less than idle, {model.idle}"
                    yield field_errors.invalid(
                        field_errors.child(path, "models", name, "max"), model.max, text
                    )

    args: Args
    row_local = True

    def sign(self, pod: PodInfo) -> Hashable:
        return _milli_cpu(pod)

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        model = self._model(node.labels.get(self.args.node_label, "*"))
        allocatable = max(1, node.allocatable.get("cpu", 0))
        rise = 1000 * (model.max - model.idle) * _milli_cpu(pod) // allocatable
        asleep = len(node.pods) < self.args.asleep_below
        return rise + 1000 * model.idle * asleep

    def score_all(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> IntArray:
        names = nodes.label_values(self.args.node_label).values
        models = [self._model(name) for name in (*names, "*")]  # the last: no label, code -1
        code = nodes.label(self.args.node_label)
        idle = np.array([model.idle for model in models], dtype=np.int64)[code]
        most = np.array([model.max for model in models], dtype=np.int64)[code]
        rise = 1000 * (most - idle) * _milli_cpu(pod) // nodes.allocatable["cpu"].clip(min=1)
        asleep = nodes.pod_count < self.args.asleep_below
        watts: IntArray = rise + 1000 * idle * asleep
        return watts

    def normalize(self, state: CycleState, pod: PodInfo, scores: IntArray) -> IntArray:
        return default_normalize(scores, reverse=True)

    def _model(self, name: str) -> PowerModel:
        return self.args.models.get(name) or self.args.models["*"]


def _milli_cpu(pod: PodInfo) -> int:
    """Return what the pod requests, at least what kube-scheduler assumes where it says nothing."""
    return pod.requests.nonzero[0]
