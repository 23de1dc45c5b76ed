"""Workload files: reading, validation, selection, and substitution of parameters.

The format is that of scheduler_perf's ``performance-config.yaml``: a list of test cases, each with
the operations of all its workloads (``workloadTemplate``) and the workloads' parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import BaseModel, Field, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from proreus.base.errors import ConfigError
from proreus.config.durations import DurationError
from proreus.config.reading import read
from proreus.workbench.bench.operations import (
    AnyOperation,
    CreatePods,
    CreatePodSets,
    Operation,
    StrictModel,
)

Parameters = dict[str, Any]
"""The values of parameters. Templates take any; fields of operations are checked as such."""

_SHOWN_PROBLEMS = 10


class InvalidWorkloads(ConfigError):
    """A file of workloads with errors: its text has the first ten, a line each."""

    def __init__(self, path: Path, problems: Iterable[str]) -> None:
        super().__init__(*(f"{path}: {problem}" for problem in problems))

    def __str__(self) -> str:
        lines = list(self.problems[:_SHOWN_PROBLEMS])
        if (more := len(self.problems) - len(lines)) > 0:
            lines.append(f"and {more} more")
        return "\n".join(lines)


class _ThresholdMetric(StrictModel):
    name: str = ""
    labels: dict[str, str] = {}
    data_bucket: str = ""
    expect_lower: bool = False


class _Collected(StrictModel):
    metrics: dict[str, Any] = {}


class Workload(StrictModel):
    """One size of a test case. Thresholds are accepted but not enforced."""

    name: str = Field(min_length=1)
    params: Parameters = {}
    labels: list[str] = []
    threshold: float | dict[str, float] = 0
    threshold_metric_selector: _ThresholdMetric | None = None
    feature_gates: dict[str, bool] = {}


class TestCase(StrictModel):
    """One scenario: operations, and the workloads that give their parameters."""

    __test__ = False  # keeps pytest from collecting it by its name

    name: str = Field(min_length=1)
    feature_gates: dict[str, bool] = {}
    metrics_collector_config: _Collected | None = None
    workload_template: list[AnyOperation] = Field(min_length=1)
    workloads: list[Workload] = Field(min_length=1)
    scheduler_config_path: str = ""
    default_pod_template_path: str | None = None
    labels: list[str] = []
    default_threshold_metric_selector: _ThresholdMetric | None = None


_TEST_CASES: TypeAdapter[list[TestCase]] = TypeAdapter(
    Annotated[list[TestCase], Field(min_length=1)]
)


@dataclass(frozen=True)
class ResolvedWorkload:
    """One workload with its parameters substituted in the operations."""

    test_case: TestCase
    workload: Workload
    operations: tuple[Operation, ...]
    folder: Path
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name for ``--workload``: test case and workload."""
        return f"{self.test_case.name}/{self.workload.name}"

    @property
    def feature_gates(self) -> dict[str, bool]:
        """The feature gates to set; gates of the workload override gates of the test case."""
        return {**self.test_case.feature_gates, **self.workload.feature_gates}

    def path(self, name: str) -> Path:
        """Return the absolute form of a path in the file."""
        return self.folder / name


def load(path: Path) -> list[TestCase]:
    """Read a file of test cases; raises ``ConfigError`` with all errors and their fields."""
    try:
        document = read(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except ConfigError as error:
        raise InvalidWorkloads(path, error.problems) from None
    if document.strict_errors:
        raise InvalidWorkloads(path, document.strict_errors)
    try:
        cases = _TEST_CASES.validate_python(document.data)
    except ValidationError as error:
        details = error.errors(include_url=False)
        raise InvalidWorkloads(path, map(_text, details)) from None
    except DurationError as error:
        raise InvalidWorkloads(path, [str(error)]) from None
    if problems := list(_inconsistencies(cases)):
        raise InvalidWorkloads(path, problems)
    return cases


def names(cases: list[TestCase]) -> list[str]:
    """Return the names of all workloads, as ``CASE/WORKLOAD``."""
    return [f"{case.name}/{workload.name}" for case in cases for workload in case.workloads]


def plan(
    cases: list[TestCase], name: str, folder: Path, overrides: Mapping[str, Any] | None = None
) -> ResolvedWorkload:
    """Return the workload ``CASE/WORKLOAD`` with its parameters, or ``overrides``, substituted.

    Raises ``ConfigError`` for an unknown name or parameter. A parameter that no operation uses is
    only noted, since some of scheduler_perf's are used by its Go code.
    """
    case, workload = _find(cases, name)
    if overrides:
        if unknown := sorted(set(overrides) - set(workload.params)):
            raise ConfigError(
                f"{name} has no parameter {', '.join(unknown)}; it has {', '.join(workload.params)}"
            )
        workload = workload.model_copy(update={"params": {**workload.params, **overrides}})
    used: set[str] = set()
    operations: list[Operation] = []
    known = workload
    for index, template in enumerate(case.workload_template):
        where = f"{name}: workloadTemplate[{index}]"
        filled = _filled(template, known, used, where)
        operations += _unrolled(filled, known, used, f"{where}.createPodsOp")
        known = known.model_copy(update={"params": known.params | filled.results})
    unused = sorted(set(workload.params) - used)
    notes = (f"no operation uses {', '.join(unused)}",) if unused else ()
    return ResolvedWorkload(case, workload, tuple(operations), folder, notes)


def _find(cases: list[TestCase], name: str) -> tuple[TestCase, Workload]:
    for case in cases:
        for workload in case.workloads:
            if f"{case.name}/{workload.name}" == name:
                return case, workload
    near = [each for each in names(cases) if each.startswith(name.partition("/")[0] + "/")]
    raise ConfigError(f"no workload {name}; there are: {', '.join(near or names(cases))}")


def _filled(operation: Operation, workload: Workload, used: set[str], where: str) -> Operation:
    """Return the operation with the workload's parameters substituted; adds them to ``used``."""

    def value_of(reference: str) -> Any:
        name = reference[1:]
        if name not in workload.params:
            allowed = ", ".join(workload.params) or "none"
            raise ConfigError(f"{where}: there is no parameter {name}; there are: {allowed}")
        used.add(name)
        return workload.params[name]

    values: dict[str, Any] = {
        field: value_of(reference)
        for parameter_field, field in operation.parameters.items()
        if (reference := getattr(operation, parameter_field, None)) is not None
    }
    for parameter_field, field in operation.multipliers.items():
        if (reference := getattr(operation, parameter_field)) is not None:
            values[field] = _product(
                values.get(field, getattr(operation, field)), value_of(reference)
            )
    if given := getattr(operation, "template_params", None):
        values["template_params"] = {
            name: _template_value(value, workload, value_of) for name, value in given.items()
        }
    for field in operation.references:
        given = getattr(operation, field)
        if given.startswith("$"):
            values[field] = _template_value(given, workload, value_of)
    if not values:
        return operation
    # validate again, since parameters may have any type
    fields = {name: getattr(operation, name) for name in operation.model_fields_set}
    for parameter_field in (*operation.parameters, *operation.multipliers):
        fields.pop(parameter_field, None)
    try:
        return type(operation).model_validate(fields | values)
    except ValidationError as error:
        details = error.errors(include_url=False)
        raise ConfigError(
            *(f"{where}.{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in details)
        ) from None
    except DurationError as error:
        raise ConfigError(f"{where}: {error}") from None


def _product(value: Any, factor: Any) -> Any:
    """Return a product of numbers; another value is returned as it is, and refused with its
    field.
    """
    for part in (value, factor):
        if not isinstance(part, int):
            return part
    return value * factor


def _template_value(value: Any, workload: Workload, value_of: Callable[[str], Any]) -> Any:
    """Return the value that a template gets: itself, a parameter's, or the default after ``|``."""
    if not isinstance(value, str) or not value.startswith("$"):
        return value
    reference, bar, default = value.partition("|")
    if bar and reference[1:] not in workload.params:
        return read(default).data
    return value_of(reference)


def _unrolled(
    operation: Operation, workload: Workload, used: set[str], where: str
) -> Iterator[Operation]:
    """Yield the operation; a createPodSets as its createPods, one for each namespace."""
    if not isinstance(operation, CreatePodSets):
        yield operation
        return
    create = _filled(operation.create_pods_op, workload, used, where)
    assert isinstance(create, CreatePods)
    for index in range(operation.count):
        yield create.model_copy(update={"namespace": f"{operation.namespace_prefix}-{index}"})


def _inconsistencies(cases: list[TestCase]) -> Iterator[str]:
    seen: set[str] = set()
    for index, case in enumerate(cases):
        if case.name in seen:
            yield f"[{index}].name: {case.name} is there twice"
        seen.add(case.name)
        in_case = [workload.name for workload in case.workloads]
        for name in dict.fromkeys(name for name in in_case if in_case.count(name) > 1):
            yield f"[{index}].workloads: {name} is there twice"
        if not any(operation.collects for operation in case.workload_template):
            yield (
                f"[{index}].workloadTemplate: nothing is measured; set collectMetrics on a "
                "createPods, or use startCollectingMetrics and stopCollectingMetrics"
            )


def _text(detail: ErrorDetails) -> str:
    """Return an error's text: the field's path, and the values allowed there."""
    path, model = _path_and_model(detail["loc"])
    match detail["type"]:
        case "extra_forbidden":
            allowed = sorted(str(field.alias) for field in model.model_fields.values())
            return f"{path}: unknown field; allowed are {', '.join(allowed)}"
        case "union_tag_invalid":
            return f"{path}.opcode: {detail['ctx']['tag']} is unknown; allowed are " + str(
                detail["ctx"]["expected_tags"]
            ).replace("'", "")
        case "union_tag_not_found":
            return f"{path}.opcode: is missing"
        case "missing":
            return f"{path}: is missing"
        case "string_pattern_mismatch":
            return f"{path}: {detail['input']!r} must be a parameter's name, like $initNodes"
    return f"{path}: {detail['msg']}, not {detail['input']!r}"


def _path_and_model(location: tuple[int | str, ...]) -> tuple[str, type[BaseModel]]:
    """Return a location as a path in the file, and the model that it is in.

    Pydantic's steps that do not occur in the file (the opcode of a union) are dropped.
    """
    path = ""
    model: type[BaseModel] = TestCase
    kinds = get_args(get_args(AnyOperation)[0])
    operations = {get_args(each.model_fields["opcode"].annotation)[0]: each for each in kinds}
    for step in location:
        if isinstance(step, int):
            path += f"[{step}]"
            continue
        if step in operations:
            model = operations[step]
            continue
        path += f".{step}" if path else step
        found = next((f for f in model.model_fields.values() if f.alias == step), None)
        inner = _model_in(found.annotation) if found else None
        model = inner or model
    return path, model


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for part in get_args(annotation):
        if (found := _model_in(part)) is not None:
            return found
    return None
