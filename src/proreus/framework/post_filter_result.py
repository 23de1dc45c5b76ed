"""Results of PostFilter: a status, a nomination to set or clear, and the victims on a node."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import force_setattr

from proreus.base.utf8 import valid_text
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Status, checked


class NominatingInfo(Struct, frozen=True):
    """Sets the pod's nominated node to ``node_name``; the empty name clears it.

    No info at all (None) leaves ``status.nominatedNodeName`` as it is.
    """

    node_name: str

    def __post_init__(self) -> None:
        """Raise ``TypeError`` for a name that is no text."""
        force_setattr(self, "node_name", valid_text("node_name", self.node_name))


CLEAR_NOMINATION = NominatingInfo("")


class Victims(NamedTuple):
    """The ``pods`` to be evicted from one node, the most important first.

    ``pdb_violations``: how many of them violate a PodDisruptionBudget.
    """

    pods: tuple[PodInfo, ...]
    pdb_violations: int


class PostFilterResult(Struct, frozen=True):
    """``status`` None is success; ``nominating`` None leaves the nomination alone.

    The reasons of a ``Status.success`` are told with the failed attempt. ``victims``: the pods that
    are evicted for the pod, to be told to whoever asks why it waits.
    """

    status: Status | None = None
    nominating: NominatingInfo | None = None
    victims: Victims | None = None

    def __post_init__(self) -> None:
        """Raise ``TypeError`` for fields of the wrong type."""
        # Here the traceback ends in the plugin's line.
        kinds = {"status": Status, "nominating": NominatingInfo, "victims": Victims}
        for name, kind in kinds.items():
            value: object = getattr(self, name)
            if value is not None and not isinstance(value, kind):
                raise TypeError(f"{name} must be a {kind.__name__} or None, not {value!r}")
        if self.status is not None:
            force_setattr(self, "status", checked(self.status))
