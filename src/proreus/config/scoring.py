"""What the arguments of resource-scoring plugins are made of: weighted resources, score shapes."""

from __future__ import annotations

from collections.abc import Iterator

from proreus.config.field_errors import child, invalid, item, required
from proreus.config.fields import ConfigModel, Int32, Int64, Text

MAX_UTILIZATION = 100
MAX_CUSTOM_SCORE = 10


class ResourceSpec(ConfigModel):
    """A resource that a score looks at, and how much it counts."""

    go_type = "v1.ResourceSpec"

    name: Text = ""
    weight: Int64 = 0


class UtilizationShapePoint(ConfigModel):
    """A point of a score function: utilization 0 to 100, score 0 to 10."""

    go_type = "v1.UtilizationShapePoint"

    utilization: Int32 = 0
    score: Int32 = 0


def weighted(resources: tuple[ResourceSpec, ...]) -> tuple[ResourceSpec, ...]:
    """Return cpu and memory where nothing is said; weight 0 means 1."""
    specs = resources or (ResourceSpec(name="cpu"), ResourceSpec(name="memory"))
    return tuple(spec.model_copy(update={"weight": spec.weight or 1}) for spec in specs)


def shape_problems(shape: tuple[UtilizationShapePoint, ...], path: str) -> Iterator[str]:
    """Yield what is wrong with a score function; it needs a point, and rising utilizations."""
    if not shape:
        yield required(path, "at least one point must be specified")
    for index in range(1, len(shape)):
        utilization = shape[index].utilization
        if shape[index - 1].utilization >= utilization:
            where = child(item(path, index), "utilization")
            yield invalid(where, utilization, "values must be sorted in increasing order")
            break
    for index, point in enumerate(shape):
        if not 0 <= point.utilization <= MAX_UTILIZATION:
            where = child(item(path, index), "utilization")
            yield invalid(where, point.utilization, "not in valid range [0, 100]")
        if not 0 <= point.score <= MAX_CUSTOM_SCORE:
            where = child(item(path, index), "score")
            yield invalid(where, point.score, "not in valid range [0, 10]")
