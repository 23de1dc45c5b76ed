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

from proreus.base.kubernetes_version import (
    DEFAULT_VERSION,
    SUPPORTED_VERSIONS,
    V1_37,
    KubernetesVersion,
)

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
    "PodGroupPreemptionPolicy": "GenericWorkload",
    "WorkloadAwarePreemption": "GenericWorkload",
}
"""Gates that a version removed, each with the gate that decides since."""


def _gates(version: KubernetesVersion) -> Iterator[tuple[str, str, list[str]]]:
    """Yield the name, the kind and the dependencies of each gate of the table."""
    versions = len(SUPPORTED_VERSIONS)
    column = SUPPORTED_VERSIONS.index(version)
    for name, *columns in _ROWS:
        yield name, columns[column], columns[versions:]


@cache
def gates_of(version: KubernetesVersion) -> Mapping[str, FeatureSpec]:
    """Return the gates of a version, sorted by name."""
    kinds = {name: (kind, needs) for name, kind, needs in _gates(version) if kind in _KINDS}
    return MappingProxyType(
        {
            name: _KINDS[kind]._replace(dependencies=tuple(need for need in needs if need in kinds))
            for name, (kind, needs) in kinds.items()
        }
    )


@cache
def gates_of_other_components(version: KubernetesVersion) -> frozenset[str]:
    """Return the names of a version's gates that mean nothing to a scheduler."""
    return frozenset(name for name, kind, _ in _gates(version) if kind == _OTHER)


def is_newer_gate(name: str, version: KubernetesVersion) -> bool:
    """Return whether the default version has a gate that an older version does not have."""
    return version < DEFAULT_VERSION and name in _names(DEFAULT_VERSION) - _names(version)


def _names(version: KubernetesVersion) -> frozenset[str]:
    return gates_of_other_components(version) | frozenset(gates_of(version))
