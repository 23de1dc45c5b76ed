"""The arguments: levels of locality, and how long a pod waits at each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from proreus.framework import ConfigModel, FeatureGates, PluginArgs, field_errors
from proreus.objects import LABEL_ZONE

NODE_NAME = "nodeName"
"""The key of a level that is a single node; any other key is that of a node label."""
SYSTEM_CRITICAL = 2_000_000_000
"""The lowest priority of Kubernetes' own system classes."""

Source = Literal["annotation", "image", "pvc", "siblings"]


class LocalityLevel(ConfigModel):
    """Nodes with the same value of a label are in one place; ``nodeName``: each by itself."""

    name: str = Field(min_length=1)
    key: str = Field(min_length=1)


class DelaySchedulingArgs(PluginArgs):
    """The tightest level first.

    ``skips``, ``wait_seconds``: by level, the number of opportunities that a group of pods lets
    pass there, and the time; whichever ends first ends the wait. One of them may be empty.
    """

    levels: tuple[LocalityLevel, ...] = Field(
        (
            LocalityLevel(name="node", key=NODE_NAME),
            LocalityLevel(name="zone", key=LABEL_ZONE),
        ),
        min_length=1,
    )
    skips: tuple[Annotated[int, Field(ge=0)], ...] = (40, 40)
    wait_seconds: tuple[Annotated[float, Field(ge=0)], ...] = (3.0, 3.0)
    max_total_seconds: float = Field(30.0, gt=0)
    only_when_preferred_may_free: bool = True
    default_source: Source = "annotation"
    soft: bool = False
    exempt_priority: int = SYSTEM_CRITICAL

    def problems(self, path: str, gates: FeatureGates) -> Iterator[str]:
        """Check that each level has a name of its own and a budget."""
        names = [level.name for level in self.levels]
        for index, name in enumerate(names):
            if name in names[:index]:
                where = field_errors.item(field_errors.child(path, "levels"), index)
                yield field_errors.invalid(
                    field_errors.child(where, "name"), name, "must be unique"
                )
        budgets = (("skips", self.skips), ("waitSeconds", self.wait_seconds))
        for field, values in budgets:
            where = field_errors.child(path, field)
            if values and len(values) != len(names):
                yield field_errors.invalid(where, list(values), "must have one entry a level")
        if not self.skips and not self.wait_seconds:
            where = field_errors.child(path, "skips")
            yield field_errors.invalid(where, [], "must be set where waitSeconds is empty")
