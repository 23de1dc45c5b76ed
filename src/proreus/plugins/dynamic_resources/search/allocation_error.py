"""The error of an allocation: a template, since a result is shared by claims with other names."""

from __future__ import annotations

from collections.abc import Sequence

from proreus.base.errors import ProreusError
from proreus.objects.meta import key_of
from proreus.objects.resource_claims import ResourceClaim
from proreus.plugins.dynamic_resources.devices.pools import PoolView


class AllocationError(ProreusError):
    """An error of the allocator, which makes the whole scheduling attempt fail.

    ``text`` is a template with the fields ``{claim}`` and, for a pool or device of the node in
    question, ``{pool}``, ``{device}`` and ``{checked_device}``, which is the plain name where a
    request is for all devices; ``claim``, ``pool`` and ``device`` are positions. ``on_node``: it is
    the reason why one node is rejected, and no error.
    """

    def __init__(
        self, text: str, claim: int = 0, pool: int = 0, device: int = 0, *, on_node: bool = False
    ) -> None:
        super().__init__(text)
        # A result is shared by pods and nodes with other names, so names are filled in by
        # ``message``, for the pod and node at hand.
        self.text = text
        self.claim = claim
        self.pool = pool
        self.device = device
        self.plain_name = False
        self.on_node = on_node

    def at(self, pool: int, device: int, *, plain_name: bool = False) -> AllocationError:
        """Return the error for a device: an error found for its kind names no device yet."""
        found = AllocationError(self.text, self.claim, pool, device)
        found.plain_name = plain_name
        return found

    def message(self, claims: Sequence[ResourceClaim], views: Sequence[PoolView]) -> str:
        """Return the text for given claims and the pools of a given node."""
        message = {"claim": key_of(claims[self.claim])}
        if views:
            view = views[self.pool]
            message["pool"] = "/".join(view.key)
            if view.devices:
                name = view.devices[self.device].name
                message["device"] = f"{message['pool']}/{name}"
                message["checked_device"] = name if self.plain_name else message["device"]
        return self.text.format_map(message)


def quoted(text: str) -> str:
    """Escape a text for use in the template of an ``AllocationError``."""
    return text.replace("{", "{{").replace("}", "}}")
