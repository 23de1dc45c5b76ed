"""Faults that kube-scheduler still has, and that proreus corrects where it is asked to.

Off by default: parity comes first. Each member is asked for where the behaviour is
(``FeatureGates.corrects``), as a ``Change`` is, and becomes one once kube-scheduler has mended it.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from proreus.base.errors import ConfigError


class KnownFault(Enum):
    """A fault of kube-scheduler, with its report and the correct behaviour."""

    def __init__(self, report: str, summary: str) -> None:
        self.report = report
        self.summary = summary

    DEVICE_POOL_COUNTS = (
        "kubernetes/kubernetes#141117",
        "DynamicResources takes a pool of devices for invalid if its slices of one generation "
        "disagree with the resourceSliceCount that they declare",
    )
    GANG_MEMBER_COMPLETED = (
        "kubernetes/kubernetes#142330",
        "a pod that joins a gang which has been scheduled once does not wait for minCount others: "
        "members that have finished are no longer counted",
    )
    NEGATIVE_NAMESPACE_SELECTOR = (
        "kubernetes/kubernetes#141526",
        "a namespaceSelector that a namespace without labels matches excludes namespaces all the "
        "same; 1.37 has this already",
    )
    PINNED_VICTIM = (
        "kubernetes/kubernetes#141227",
        "of potential victims of equal priority, those whose replacement can run on no other node "
        "are reprieved first",
    )
    TAINTED_ZONE_MIN_DOMAINS = (
        "kubernetes/enhancements#6211",
        "a domain all of whose nodes are tainted counts towards minDomains, though not for the "
        "skew, with nodeTaintsPolicy Honor",
    )
    TWO_CLAIMS_ONE_CAPACITY = (
        "kubernetes/kubernetes#111755",
        "the claims of a pod for which one CSIStorageCapacity counts have to fit it together",
    )

    @property
    def flag(self) -> str:
        """The name by which ``--corrections`` asks for it."""
        return self.name.lower().replace("_", "-")


NO_CORRECTIONS: frozenset[KnownFault] = frozenset()


def parse_corrections(names: Iterable[str], field: str = "--corrections") -> frozenset[KnownFault]:
    """Return corrections by name; ``field``: where the names were given.

    Raises ``ConfigError`` that names all unknown ones, and those that there are.
    """
    known = {one.flag: one for one in KnownFault}
    given = [name.strip() for name in names if name.strip()]
    problems = [
        f'{field}: unknown correction "{name}", there are: {", ".join(sorted(known))}'
        for name in given
        if name not in known
    ]
    if problems:
        raise ConfigError(*problems)
    return frozenset(known[name] for name in given)
