"""A set of values of feature gates, for one version of Kubernetes.

A ``FeatureGates`` is an immutable value that is passed down; there is no global. The gates
themselves are in ``feature_gate_table``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from proreus.base.errors import ConfigError
from proreus.base.feature_gate_table import (
    MERGED_GATES,
    FeatureSpec,
    Stage,
    gates_of,
    gates_of_other_components,
    is_newer_gate,
)
from proreus.base.known_faults import NO_CORRECTIONS, KnownFault
from proreus.base.kubernetes_version import (
    DEFAULT_VERSION,
    SUPPORTED_VERSIONS,
    Change,
    KubernetesVersion,
)

_SPECIAL_GATES: Mapping[str, Stage] = {"AllAlpha": "ALPHA", "AllBeta": "BETA"}

_BOOLS = {
    **dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True),
    **dict.fromkeys(("0", "f", "F", "FALSE", "false", "False"), False),
}
"""The texts that Go's ``strconv.ParseBool`` accepts."""


class FeatureGates(NamedTuple):
    """The values of all gates. ``changed`` has the gates that were set; the others have their
    defaults.

    ``emulation_version``: the version of kube-scheduler that this process is.
    ``min_compatibility``: the oldest one that it may share a cluster with; None for the one before.
    ``corrections``: the faults of kube-scheduler that it does not have.
    """

    changed: Mapping[str, bool] = MappingProxyType({})
    emulation_version: KubernetesVersion = DEFAULT_VERSION
    min_compatibility: KubernetesVersion | None = None
    corrections: frozenset[KnownFault] = NO_CORRECTIONS

    @classmethod
    def parse(cls, text: str) -> FeatureGates:
        """Parse the value of ``--feature-gates``: ``A=true,B=false``, each also as ``kube:A=``.

        Raises ``ConfigError`` with kube-scheduler's words, all faults at once.
        """
        return cls.from_list(text.split(","))

    @classmethod
    def from_list(
        cls,
        settings: Iterable[str],
        emulation_version: KubernetesVersion = DEFAULT_VERSION,
        min_compatibility: KubernetesVersion | None = None,
        corrections: frozenset[KnownFault] = NO_CORRECTIONS,
    ) -> FeatureGates:
        """Parse settings of the form ``Name=bool``; empty ones are passed over.

        ``AllAlpha`` and ``AllBeta`` set the gates of a stage that are not set by name.
        """
        defaults = cls(
            emulation_version=emulation_version,
            min_compatibility=min_compatibility,
            corrections=corrections,
        )
        given: dict[str, bool] = {}
        problems: list[str] = []
        for setting in settings:
            name, equals, text = setting.partition("=")
            name, text = name.strip().removeprefix("kube:"), text.strip()
            if not name and not equals:
                continue
            problem = defaults._problem(name, equals, text)
            if problem is None:
                given[name] = _BOOLS[text]
            else:
                problems.append(problem)
        if problems:
            raise ConfigError(*problems)
        gates = defaults._replace(changed=MappingProxyType(_spread(given, defaults.specs)))
        problems.extend(gates._unmet_dependencies())
        if problems:
            raise ConfigError(*problems)
        return gates

    @property
    def min_compatibility_version(self) -> KubernetesVersion:
        """The oldest version that this process may share a cluster with."""
        return self.min_compatibility or self.emulation_version.previous()

    @property
    def specs(self) -> Mapping[str, FeatureSpec]:
        """The gates of the emulated version, by name."""
        return gates_of(self.emulation_version)

    def includes(self, change: Change) -> bool:
        """Return whether the emulated version has a change that no gate guards."""
        return self.emulation_version.includes(change)

    def corrects(self, fault: KnownFault) -> bool:
        """Return whether a fault of kube-scheduler is corrected."""
        return fault in self.corrections

    def enabled(self, name: str) -> bool:
        """Return whether a gate is on; raises ``KeyError`` if no version has it.

        A gate that the emulated version does not know is on if it became GA before, and as the one
        that it was merged into; else it is off.
        """
        value = self.changed.get(name)
        if value is not None:
            return value
        spec = self.specs.get(name)
        if spec is None:
            merged = MERGED_GATES.get(name)
            return self.enabled(merged) if merged else _spec_elsewhere(name).stage == "GA"
        return spec.default or (
            spec.on_since is not None and self.min_compatibility_version >= spec.on_since
        )

    def __str__(self) -> str:
        return ",".join(f"{name}={str(on).lower()}" for name, on in sorted(self.changed.items()))

    def _unmet_dependencies(self) -> Iterable[str]:
        for name, gate in self.specs.items():
            if self.enabled(name):
                missing = [need for need in gate.dependencies if not self.enabled(need)]
                if missing:
                    yield (
                        f"{name} is enabled, but depends on features that are disabled: "
                        f"[{' '.join(missing)}]"
                    )

    def _problem(self, name: str, equals: str, text: str) -> str | None:
        if not equals:
            return f"missing bool value for {name}"
        if text not in _BOOLS:
            return (
                f"invalid value of {name}={text}, err: "
                f'strconv.ParseBool: parsing "{text}": invalid syntax'
            )
        component, colon, _ = name.rpartition(":")
        if colon:
            return f"component not registered: {component}"
        version = self.emulation_version
        if name in gates_of_other_components(version) or name in _SPECIAL_GATES:
            return None
        gate, value = self.specs.get(name), str(_BOOLS[text]).lower()
        if gate is None and is_newer_gate(name, version):
            return (
                f"cannot set feature gate {name} to {value}, feature is PreAlpha at emulated "
                f"version {version}, min compatibility version {self.min_compatibility_version}"
            )
        if gate is None:
            return f"unrecognized feature gate: {name}"
        if gate.lock_to_default and _BOOLS[text] != gate.default:
            return (
                f"cannot set feature gate {name} to {value}, "
                f"feature is locked to {str(gate.default).lower()}"
            )
        return None


def _spread(given: Mapping[str, bool], specs: Mapping[str, FeatureSpec]) -> dict[str, bool]:
    """Return the values of gates, including gates of whole stages."""
    values = {name: on for name, on in given.items() if name in specs}
    for whole, stage in _SPECIAL_GATES.items():
        if whole in given:
            for name, gate in specs.items():
                if gate.stage == stage:
                    values.setdefault(name, given[whole])
    return values


def _spec_elsewhere(name: str) -> FeatureSpec:
    """Return a gate as another version has it; raises ``KeyError``."""
    for version in SUPPORTED_VERSIONS:
        if name in gates_of(version):
            return gates_of(version)[name]
    raise KeyError(name)
