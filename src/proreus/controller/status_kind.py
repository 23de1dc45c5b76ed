"""What a kind of objects has to say for its statuses to be written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from proreus.objects import Pod, Resource
from proreus.objects.meta import ApiObject

T = TypeVar("T", bound=ApiObject)


@dataclass(frozen=True)
class WithStatus(Generic[T]):
    """An object as it is decoded, and its status as JSON."""

    obj: T
    status: Mapping[str, Any]


class StatusKind(Protocol):
    """A kind of objects, and their statuses as computed from pods.

    All methods are sync and return the keys of objects whose status may be another now.
    """

    @property
    def resource(self) -> Resource[Any]:
        """What is watched."""
        ...

    def put(self, key: str, obj: WithStatus[Any]) -> Iterable[str]:
        """Note an object that is new or has changed."""
        ...

    def remove(self, key: str) -> Iterable[str]:
        """Note that an object is gone."""
        ...

    def put_pod(self, pod: Pod) -> Iterable[str]:
        """Note a pod that is new or has changed."""
        ...

    def remove_pod(self, pod: Pod) -> Iterable[str]:
        """Note that a pod is gone."""
        ...

    def keys(self) -> Iterable[str]:
        """Return the keys of all objects."""
        ...

    def get(self, key: str) -> WithStatus[Any] | None:
        """Return an object as it was seen last."""
        ...

    def status(self, key: str, now: float) -> dict[str, Any]:
        """Return the fields of an object's status as they should be; ``now``: Unix seconds."""
        ...
