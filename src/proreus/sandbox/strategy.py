"""The hooks by which a kind differs from the others."""

from typing import TYPE_CHECKING, Any

from proreus.sandbox.resources import Served

if TYPE_CHECKING:
    from proreus.sandbox.store import Store

JsonObject = dict[str, Any]


class Strategy:
    """Nothing special. Hooks may alter ``obj`` (``new``) in place and raise ``Refusal``."""

    keeps_status_at_create = False

    def prepare_create(self, store: "Store", served: Served, obj: JsonObject) -> None:
        """Default and check a new object; its metadata is ready."""

    def prepare_update(
        self, store: "Store", served: Served, new: JsonObject, old: JsonObject, subresource: str
    ) -> None:
        """Check an update, and undo what it may not change."""

    def grace_seconds(self, obj: JsonObject, wanted: int | None) -> int:
        """Return how long an object that is deleted stays; 0: not at all."""
        return 0

    def after_write(self, store: "Store", served: Served, obj: JsonObject) -> None:
        """React to an object that was created or updated."""

    def after_remove(self, store: "Store", served: Served, obj: JsonObject) -> None:
        """React to an object that is gone."""
