"""Peaks: prefer the node with the least rise of power.

The power of a node at a use of x percent of its CPU is ``k0 + k1 * exp(k2 * x)``, or linear between
idle and full. Worked example: of three nodes whose power would rise by 11.2, 0.7 and 5.8 W, the
scores are 0, 100 and 52.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterator
from functools import lru_cache
from math import exp, inf, isfinite
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from proreus.addons.node_metrics.metrics import cpu_values
from proreus.addons.pod_amounts import effective_amounts
from proreus.addons.trimaran.measured import RecentRequestsArgs, RecentRequestsPlugin, cpu_capacity
from proreus.base import yaml_limits
from proreus.framework import (
    MAX_SCORE,
    ConfigError,
    ConfigModel,
    CycleState,
    FeatureGates,
    Handle,
    IntArray,
    NodeInfo,
    PodInfo,
    ScorePlugin,
    field_errors,
)

MODEL_FILE = "NODE_POWER_MODEL"
"""The environment variable with the path of a file (JSON, YAML) with power models by node."""

ANY_NODE = "*"
WORST = 2**62
"""The raw score of a node without a prediction of its power."""
_SCALE = 1e15


class PowerModel(ConfigModel):
    """The power of a node in W: by ``k0``, ``k1``, ``k2``, or linear from ``idle`` to ``max``."""

    k0: float = 0.0
    k1: float = 0.0
    k2: float = 0.0
    idle: float | None = None
    max: float | None = None

    def jump(self, before: float, after: float) -> float:
        """Return the rise of the power between two uses of the CPU in percent."""
        if self.idle is not None and self.max is not None:
            return (self.max - self.idle) * (after - before) / 100
        return self.k1 * (_exp(self.k2 * after) - _exp(self.k2 * before))


def _exp(value: float) -> float:
    try:
        return exp(value)
    except OverflowError:
        return inf


class PeaksArgs(RecentRequestsArgs):
    """``node_power_model``: by node, or ``*`` for all others; read from a file by default."""

    node_power_model: dict[str, PowerModel] = {}

    def problems(self, path: str, gates: FeatureGates) -> Iterator[str]:
        """Check that linear models are complete."""
        for name, model in self.node_power_model.items():
            if (model.idle is None) != (model.max is None):
                where = field_errors.child(path, "nodePowerModel", name)
                yield field_errors.required(where, "idle and max belong together")


class Peaks(ScorePlugin, RecentRequestsPlugin):
    """Prefers the node with the least rise of power."""

    Args = PeaksArgs
    args: PeaksArgs

    def __init__(self, args: PeaksArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        # Asked for each node in turn.
        self._requested_cpu = lru_cache(maxsize=1)(_requested_cpu)
        self._models = args.node_power_model or _from_file(os.environ.get(MODEL_FILE, ""))

    def sign(self, pod: PodInfo) -> Hashable:
        """Return the CPU that the pod requests."""
        return self._requested_cpu(pod)

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """Score a node by the rise of its power, in units of 1e-15 W."""
        measured = self.measured
        if measured is None:
            return 0
        model = self._models.get(node.name) or self._models.get(ANY_NODE)
        values, capacity = cpu_values(measured.of(node.name)), cpu_capacity(node)
        if model is None or not values or not capacity:
            return WORST
        recent_cpu, _ = self.recent_requests(node, measured.window.end)
        before = values[0] + 100 * recent_cpu / capacity
        after = 100 * (before / 100 * capacity + self._requested_cpu(pod)) / capacity
        raw = model.jump(before, after) * _SCALE if after <= 100 else inf
        return int(raw) if isfinite(raw) and abs(raw) < WORST else WORST

    def normalize(self, state: CycleState, pod: PodInfo, scores: IntArray) -> IntArray:
        """Give 100 to the least rise and 0 to the highest; 0 to nodes without prediction."""
        known = scores != WORST
        result = np.zeros_like(scores)
        found = scores[known]
        if not found.size:
            return result
        least, most = int(found.min()), int(found.max())
        if least == most:
            # All alike: 0 for all says as little as 100 for all, but for nodes without prediction.
            result[known] = 0 if least == 0 and known.all() else MAX_SCORE
            return result
        # By floats, as the original: the highest rise may get 1, where they round so.
        share = float(MAX_SCORE) * (found - least).astype(np.float64) / float(most - least)
        result[known] = MAX_SCORE - share.astype(np.int64)
        return result


def _requested_cpu(pod: PodInfo) -> int:
    # As in the original, overhead counts only with a request.
    requested = effective_amounts(pod.pod, overhead=False)["cpu"]
    return effective_amounts(pod.pod)["cpu"] if requested else 0


def _from_file(path: str) -> dict[str, PowerModel]:
    if not path:
        return {}
    try:
        data: Any = yaml_limits.load(Path(path).read_bytes())
        return {str(name): PowerModel.model_validate(model) for name, model in data.items()}
    except (OSError, ValueError, AttributeError, yaml.YAMLError) as error:
        raise ConfigError(f"{MODEL_FILE} {path} cannot be read: {error}") from error
