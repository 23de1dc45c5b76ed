"""What HTTP extenders returned in one attempt, for the record of decisions."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from proreus.framework.verdicts import IntArray


class FilterAnswer(Struct):
    """One extender's answer to a filter request. ``accepted``: how many nodes it let through.

    ``failed`` and ``unresolvable``: messages by node, the latter where preemption does not help.
    ``error``: why there was no answer.
    """

    url: str
    accepted: int = 0
    failed: Mapping[str, str] = field(default_factory=dict)
    unresolvable: Mapping[str, str] = field(default_factory=dict)
    error: str = ""


class ExtenderAnswers(Struct):
    """All answers of one attempt, in the order of the extenders.

    ``scores``: URL, and what is added to the total of each node (already weighted). ``errors``: of
    prioritize requests, by URL. ``totals``: of plugins and extenders together, by feasible node.
    """

    filters: list[FilterAnswer] = field(default_factory=list)
    scores: list[tuple[str, Mapping[str, int]]] = field(default_factory=list)
    errors: dict[str, str] = field(default_factory=dict)
    totals: IntArray | None = None
