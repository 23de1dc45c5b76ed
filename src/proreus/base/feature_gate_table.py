"""The feature gates that kube-scheduler knows, by Kubernetes version (``feature_gate_table.txt``).

Gates of other components are accepted, since one list of gates often serves all components of a
cluster, and are without effect.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Literal, NamedTuple

from proreus.base.kubernetes_version import V1_36, V1_37, KubernetesVersion

Stage = Literal["ALPHA", "BETA", "GA"]


class FeatureSpec(NamedTuple):
    """A gate, its default and stage, whether it may be changed, and its dependencies.

    ``on_since``: the gate is on by default where the minimum compatibility version is at least
    this one.
    """

    default: bool
    stage: Stage
    lock_to_default: bool = False
    dependencies: tuple[str, ...] = ()
    on_since: KubernetesVersion | None = None


_KINDS: Mapping[str, FeatureSpec] = {
    "alpha": FeatureSpec(default=False, stage="ALPHA"),
    "beta": FeatureSpec(default=True, stage="BETA"),
    "beta-off": FeatureSpec(default=False, stage="BETA"),
    "beta-37": FeatureSpec(default=False, stage="BETA", on_since=V1_37),
    "ga": FeatureSpec(default=True, stage="GA"),
    "locked": FeatureSpec(default=True, stage="GA", lock_to_default=True),
}
_OTHER = "other"

_ROWS = [
    line.split()
    for line in Path(__file__).with_suffix(".txt").read_text().splitlines()
    if line and not line.startswith("#")
]

MERGED_GATES: Mapping[str, str] = {
    "GangScheduling": "GenericWorkload",
    "WorkloadAwarePreemption": "GenericWorkload",
}
"""Gates that 1.37 removed, each with the gate that decides since."""


def _gates(version: KubernetesVersion) -> Iterator[tuple[str, str, list[str]]]:
    """Yield the name, the kind and the dependencies of each gate of the table."""
    for name, until_1_36, since_1_37, *needs in _ROWS:
        yield name, until_1_36 if version <= V1_36 else since_1_37, needs


@cache
def gates_of(version: KubernetesVersion) -> Mapping[str, FeatureSpec]:
    """Return the gates of a version, sorted by name."""
    return MappingProxyType(
        {
            name: _KINDS[kind]._replace(dependencies=tuple(needs))
            for name, kind, needs in _gates(version)
            if kind in _KINDS
        }
    )


@cache
def gates_of_other_components(version: KubernetesVersion) -> frozenset[str]:
    """Return the names of a version's gates that mean nothing to a scheduler."""
    return frozenset(name for name, kind, _ in _gates(version) if kind == _OTHER)


def is_newer_gate(name: str, version: KubernetesVersion) -> bool:
    """Return whether a gate exists in a version after this one only."""
    return (
        version < V1_37
        and (name in gates_of(V1_37) or name in gates_of_other_components(V1_37))
        and not (name in gates_of(version) or name in gates_of_other_components(version))
    )
