"""Taints of nodes and tolerations of pods (KEP-166, KEP-3094)."""

from collections.abc import Iterable

from proreus.objects.meta import ApiStruct

NO_SCHEDULE = "NoSchedule"
PREFER_NO_SCHEDULE = "PreferNoSchedule"
NO_EXECUTE = "NoExecute"


class Taint(ApiStruct, frozen=True):
    """Keeps pods that do not tolerate it away from a node."""

    key: str = ""
    value: str = ""
    effect: str = ""

    def __str__(self) -> str:
        name = f"{self.key}={self.value}" if self.value else self.key
        return f"{name}:{self.effect}"


class Toleration(ApiStruct, frozen=True):
    """Makes a pod tolerate matching taints."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


def tolerates(toleration: Toleration, taint: Taint, compare_numbers: bool = False) -> bool:
    """Return whether a toleration matches a taint, as kube-scheduler's ToleratesTaint does.

    ``compare_numbers``: support Gt and Lt (gate TaintTolerationComparisonOperators).
    """
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    match toleration.operator:
        case "" | "Equal":
            return toleration.value == taint.value
        case "Exists":
            return True
        case "Gt" | "Lt" if compare_numbers:
            wanted, found = _canonical_int(toleration.value), _canonical_int(taint.value)
            if wanted is None or found is None:
                return False
            return found > wanted if toleration.operator == "Gt" else found < wanted
        case _:
            return False


def _canonical_int(text: str) -> int | None:
    """Parse a decimal int64 without leading zeros or plus sign."""
    digits = text.removeprefix("-")
    if not digits.isascii() or not digits.isdigit() or str(int(text)) != text:
        return None
    return int(text) if -(2**63) <= int(text) < 2**63 else None


def tolerated(
    tolerations: Iterable[Toleration], taint: Taint, compare_numbers: bool = False
) -> bool:
    """Return whether any of the tolerations matches the taint."""
    return any(tolerates(toleration, taint, compare_numbers) for toleration in tolerations)


def first_untolerated(
    taints: Iterable[Taint],
    tolerations: tuple[Toleration, ...],
    effects: frozenset[str] = frozenset({NO_SCHEDULE, NO_EXECUTE}),
    compare_numbers: bool = False,
) -> Taint | None:
    """Return the first untolerated taint with one of the effects, or None."""
    for taint in taints:
        if taint.effect in effects and not tolerated(tolerations, taint, compare_numbers):
            return taint
    return None
