"""Divides one resource among sibling queues: deserved amounts first, then the rest by weight.

Sources: KAI's proportion plugin (rounds by priority and weight, decayed usage), Koordinator's
runtime quota (what a quota lends), Volcano's capacity plugin (guarantees that are not lent). The
three agree where they overlap, so that one function serves them all.

Worked example: 10 units; two queues deserve 2 each and request 10 and 3, with equal weights. Both
are given 2. Of the 6 that are left each is offered 3; the second needs 1 only, so that the 2 it
leaves are offered once more: 7 and 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import floor

_TOLERANCE = 1e-9
"""Relative: weights are fractions, amounts are not."""


@dataclass(frozen=True)
class ShareClaim:
    """The claim of one queue on one resource.

    ``deserved``: what it is given before anybody has more; ``request``: what its pods ask for,
    running ones included, limited by the queue's limit; ``guarantee``: what it is given even if it
    asks for less. ``weight`` and ``priority``: of the rest. ``usage``: its decayed share of the
    capacity in the past, 0..1.
    """

    name: str
    deserved: int
    request: int
    weight: float = 1.0
    priority: int = 0
    usage: float = 0.0
    guarantee: int = 0


def fair_shares(amount: int, claims: Iterable[ShareClaim], k: float = 0.0) -> dict[str, int]:
    """Return the share of each claimant in an amount; the sum never exceeds it.

    ``k``: the part of the difference between a queue's weight and its ``usage`` that is made good.
    """
    claims = list(claims)
    first = {one.name: max(min(one.deserved, one.request), one.guarantee) for one in claims}
    given = first if sum(first.values()) <= amount else scaled(first, amount)
    left = amount - sum(given.values())
    for priority in sorted({one.priority for one in claims}, reverse=True):
        asking = [one for one in claims if one.priority == priority]
        left = _divide(left, asking, given, k)
    return given


def _divide(left: int, claims: Sequence[ShareClaim], given: dict[str, int], k: float) -> int:
    """Divide an amount among claims of one priority; return the rest."""
    remainders: dict[str, float] = {}
    while left > 0:
        asking = [one for one in claims if one.request > given[one.name] and one.weight > 0]
        weights = _weights(asking, k)
        total, offered, satisfied = sum(weights), left, False
        remainders = {}
        for one, weight in zip(asking, weights, strict=True):
            share, missing = offered * weight / total, one.request - given[one.name]
            if missing <= share * (1 + _TOLERANCE):
                satisfied, more = True, missing
            else:
                more = floor(share * (1 + _TOLERANCE))
                remainders[one.name] = share - more
            more = min(more, left)
            given[one.name] += more
            left -= more
        if not satisfied:
            break
    by_name = {one.name: one for one in claims}
    for name in sorted(remainders, key=lambda n: (-remainders[n], -by_name[n].weight, n)):
        if left > 0 and given[name] < by_name[name].request:
            given[name] += 1
            left -= 1
    return left


def _weights(claims: Sequence[ShareClaim], k: float) -> list[float]:
    total = sum(one.weight for one in claims)
    normal = [one.weight / total for one in claims]
    weights = [max(0.0, n + k * (n - one.usage)) for n, one in zip(normal, claims, strict=True)]
    # All of them had more than their weights: free capacity is divided all the same.
    return weights if any(weights) else normal


def scaled(amounts: dict[str, int], total: int) -> dict[str, int]:
    """Return amounts reduced in proportion so that their sum is ``total``, by largest remainders.

    Amounts whose sum is not larger are returned as they are.
    """
    whole = sum(amounts.values())
    if whole <= total:
        return amounts
    parts = {name: divmod(amount * total, whole) for name, amount in amounts.items()}
    found = {name: quotient for name, (quotient, _) in parts.items()}
    missing = total - sum(found.values())
    for name in sorted(parts, key=lambda n: (-parts[n][1], n))[:missing]:
        found[name] += 1
    return found
