"""Koordinator's annotations of a gang beyond its size, on its pods or its PodGroup."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Self

from proreus.objects.codec import UNDECODABLE

KOORDINATOR = "gang.scheduling.koordinator.sh"
NOT_STRICT = "NonStrict"
"""The mode in which pods go on waiting at Permit when one of their gang fails."""


class MatchPolicy(StrEnum):
    """The pods that count to a gang's minimum.

    ``ONLY_WAITING``: those without a node, so that its pods always start in groups of at least the
    minimum. ``WAITING_AND_RUNNING``: those with a node as well. ``ONCE_SATISFIED``: once the gang
    has had its minimum, any of its pods may start alone.
    """

    ONLY_WAITING = "only-waiting"
    WAITING_AND_RUNNING = "waiting-and-running"
    ONCE_SATISFIED = "once-satisfied"

    @classmethod
    def of(cls, text: str, default: Self) -> Self:
        """Return the policy of that name, ``default`` for any other text."""
        return next((one for one in cls if one == text), default)


def gangs_together(key: str, name: str, text: str) -> tuple[str, ...]:
    """Return the keys of the gangs that start together with the gang ``key``, which is called
    ``name``; () if it starts by itself.

    ``text``: a list in JSON of ``namespace/name``. Gangs of other namespaces are left out: who may
    write to one namespace does not hold up the pods of another.
    """
    try:
        listed = json.loads(text) if text else []
    except UNDECODABLE:
        return ()
    if not isinstance(listed, list):
        return ()
    prefix, namespace = key.removesuffix(name), key.partition("/")[0]
    keys = {key}
    for one in listed:
        of_namespace, _, of_name = one.partition("/") if isinstance(one, str) else ("", "", "")
        if of_namespace == namespace and of_name:
            keys.add(prefix + of_name)
    return tuple(sorted(keys)) if len(keys) > 1 else ()
