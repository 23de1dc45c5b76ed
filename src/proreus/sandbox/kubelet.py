"""Fake kubelets: one object for all nodes."""

from dataclasses import dataclass

from proreus.sandbox.store import Store


@dataclass(frozen=True)
class KubeletOptions:
    """How fast the fake kubelets are."""


class Kubelets:
    """All kubelets of the sandbox."""

    def __init__(self, store: Store, options: KubeletOptions) -> None:
        self._store = store
        self._options = options

    def start(self) -> None:
        """Begin to look after the nodes."""

    async def stop(self) -> None:
        """Stop at once."""
