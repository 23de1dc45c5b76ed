"""Taints of nodes and tolerations of pods (KEP-166, KEP-3094)."""

from collections.abc import Iterable
from itertools import product

from proreus.objects.meta import ApiStruct

NO_SCHEDULE = "NoSchedule"
PREFER_NO_SCHEDULE = "PreferNoSchedule"
NO_EXECUTE = "NoExecute"
HARD_EFFECTS = frozenset((NO_SCHEDULE, NO_EXECUTE))


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
    if len(digits) > 19:  # beyond int64, and perhaps beyond what ``int`` takes
        return None
    if not digits.isascii() or not digits.isdigit() or str(int(text)) != text:
        return None
    return int(text) if -(2**63) <= int(text) < 2**63 else None


class TolerationIndex:
    """The tolerations of a pod, by the taints that they match.

    A pod may have 50,000, and a node 30,000 taints, so that not every pair can be looked at.
    ``compare_numbers`` of its methods is as of ``tolerates``. ``size_bytes``: about how much memory
    it takes.
    """

    __slots__ = ("__weakref__", "_above", "_below", "_effects", "_equal", "_exists", "size_bytes")

    def __init__(self, tolerations: Iterable[Toleration], size_bytes: int = 0) -> None:
        self.size_bytes = size_bytes
        # A key or an effect of "" matches all of them.
        self._exists: set[tuple[str, str]] = set()
        self._equal: set[tuple[str, str, str]] = set()
        self._above: dict[tuple[str, str], int] = {}
        """The lowest bound of the tolerations with Gt."""
        self._below: dict[tuple[str, str], int] = {}
        self._effects: set[str] = set()
        """The effects of which all taints are tolerated."""
        exists, equal = self._exists, self._equal
        for one in tolerations:
            key, effect, operator = one.key, one.effect, one.operator
            if operator == "Exists":
                exists.add((key, effect))
                if not key:
                    self._effects.add(effect)
            elif operator in ("", "Equal"):
                equal.add((key, effect, one.value))
            elif operator in ("Gt", "Lt") and (bound := _canonical_int(one.value)) is not None:
                where = key, effect
                if operator == "Gt":
                    self._above[where] = min(bound, self._above.get(where, bound))
                else:
                    self._below[where] = max(bound, self._below.get(where, bound))

    def tolerates(self, taint: Taint, compare_numbers: bool = False) -> bool:
        """Return whether a toleration matches the taint."""
        compare_numbers = compare_numbers and bool(self._above or self._below)
        for where in product((taint.key, ""), (taint.effect, "")):
            if where in self._exists or (*where, taint.value) in self._equal:
                return True
            if compare_numbers and self._compares(where, taint.value):
                return True
        return False

    def _compares(self, where: tuple[str, str], value: str) -> bool:
        above, below = self._above.get(where), self._below.get(where)
        if above is None and below is None:
            return False
        number = _canonical_int(value)
        return number is not None and (
            (above is not None and number > above) or (below is not None and number < below)
        )

    def first_untolerated(
        self,
        taints: Iterable[Taint],
        effects: frozenset[str] = HARD_EFFECTS,
        compare_numbers: bool = False,
    ) -> Taint | None:
        """Return the first untolerated taint with one of the effects, or None."""
        if "" in self._effects:
            return None
        effects -= self._effects
        for taint in taints:
            if taint.effect in effects and not self.tolerates(taint, compare_numbers):
                return taint
        return None


def first_untolerated(
    taints: Iterable[Taint],
    tolerations: tuple[Toleration, ...],
    effects: frozenset[str] = HARD_EFFECTS,
) -> Taint | None:
    """Return the first untolerated taint with one of the effects, or None."""
    return TolerationIndex(tolerations).first_untolerated(taints, effects)
