"""Parts of the arguments of plugins that score resources: weighted resources and score shapes."""

from __future__ import annotations

from collections.abc import Iterator

from proreus.config.field_errors import child, invalid, item, required
from proreus.config.fields import ConfigModel, Int32, Int64, Text

MAX_UTILIZATION = 100
MAX_CUSTOM_SCORE = 10


class ResourceSpec(ConfigModel):
    """A resource that is scored, and its weight."""

    go_type = "v1.ResourceSpec"

    name: Text = ""
    weight: Int64 = 0


class UtilizationShapePoint(ConfigModel):
    """A point of a score function: utilization 0 to 100, score 0 to 10."""

    go_type = "v1.UtilizationShapePoint"

    utilization: Int32 = 0
    score: Int32 = 0


def weighted(resources: tuple[ResourceSpec, ...]) -> tuple[ResourceSpec, ...]:
    """Return the resources to score, cpu and memory by default; weight 0 becomes 1."""
    specs = resources or (ResourceSpec(name="cpu"), ResourceSpec(name="memory"))
    return tuple(spec.model_copy(update={"weight": spec.weight or 1}) for spec in specs)


def shape_problems(shape: tuple[UtilizationShapePoint, ...], path: str) -> Iterator[str]:
    """Yield the errors of a score shape: no point, utilizations not rising, values out of range."""
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
