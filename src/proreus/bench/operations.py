"""The operations of a workload, field by field as scheduler_perf has them.

Numbers and the like may be parameters of the workload: ``countParam: $initNodes`` fills ``count``.
Paths are relative to the file that names them. What an operation does is in ``executor``; what is
here only says how it is written, and what is allowed.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator
from pydantic.alias_generators import to_camel

from proreus.config.durations import parse_duration


class StrictModel(BaseModel):
    """A piece of a workload file: camelCase there, nothing that is not known, nothing bent."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, alias_generator=to_camel, validate_by_name=True
    )


Count = Annotated[int, Field(ge=0)]
Parameter = Annotated[str, Field(pattern=r"^\$.", description="the name of a parameter: $name")]


def _seconds(value: object) -> object:
    return parse_duration(value) if isinstance(value, str) else value


Seconds = Annotated[float, BeforeValidator(_seconds)]
"""Written as Go writes durations: ``10s``, ``1m30s``."""


class Operation(StrictModel):
    """What all operations share."""

    opcode: str
    parameters: ClassVar[dict[str, str]] = {"count_param": "count"}
    """Which fields name a parameter, and which field its value is for."""

    @property
    def collects(self) -> bool:
        """Whether measures are taken by it, or end with it."""
        return False


class _LabelNodes(StrictModel):
    label_key: str
    label_values: list[str] = Field(min_length=1)


class _UniqueNodeLabel(StrictModel):
    label_key: str


class _VolumeNodeResources(StrictModel):
    count: int


class _NodeAllocatable(StrictModel):
    node_allocatable: dict[str, str] = {}
    csi_node_allocatable: dict[str, _VolumeNodeResources] = {}
    migrated_plugins: list[str] = []


class CreateNodes(Operation):
    """Nodes of a template or of 4 CPUs, 32Gi and 110 pods; labels and CSINodes by a strategy."""

    opcode: Literal["createNodes"]
    count: Count = 0
    count_param: Parameter | None = None
    node_template_path: str | None = None
    node_allocatable_strategy: _NodeAllocatable | None = None
    label_node_prepare_strategy: _LabelNodes | None = None
    unique_node_label_strategy: _UniqueNodeLabel | None = None


class CreateNamespaces(Operation):
    """Namespaces ``<prefix>-0``, ``<prefix>-1`` …"""

    opcode: Literal["createNamespaces"]
    prefix: str
    count: Count = 0
    count_param: Parameter | None = None
    namespace_template_path: str | None = None


class CreatePods(Operation):
    """Pods, as fast as they can be created; waits until they are bound unless told not to.

    ``steadyState``: so many pods again and again, deleted once they are bound, for ``duration``.
    """

    opcode: Literal["createPods"]
    count: Count = 0
    count_param: Parameter | None = None
    steady_state: bool = False
    steady_state_param: Parameter | None = None
    duration: Seconds = 0.0
    duration_param: Parameter | None = None
    collect_metrics: bool = False
    namespace: str | None = None
    pod_template_path: str | None = None
    skip_wait_to_completion: bool = False
    persistent_volume_template_path: str | None = None
    persistent_volume_claim_template_path: str | None = None
    parameters: ClassVar[dict[str, str]] = {
        "count_param": "count",
        "steady_state_param": "steady_state",
        "duration_param": "duration",
    }

    @model_validator(mode="after")
    def _consistent(self) -> CreatePods:
        if self.skip_wait_to_completion and self.collect_metrics:
            raise ValueError("collectMetrics and skipWaitToCompletion cannot both be true")
        if self.skip_wait_to_completion and self.steady_state:
            raise ValueError("skipWaitToCompletion and steadyState cannot both be true")
        if self.steady_state and not self.duration_param and self.duration <= 0:
            raise ValueError("duration must be positive in a steady state")
        if bool(self.persistent_volume_template_path) != bool(
            self.persistent_volume_claim_template_path
        ):
            raise ValueError(
                "persistentVolumeTemplatePath and persistentVolumeClaimTemplatePath go together"
            )
        return self

    @property
    def collects(self) -> bool:
        """Whether measures are taken by it, or end with it."""
        return self.collect_metrics


class CreatePodSets(Operation):
    """The same createPods in each of the namespaces ``<namespacePrefix>-0`` …"""

    opcode: Literal["createPodSets"]
    count: Count = 0
    count_param: Parameter | None = None
    namespace_prefix: str
    create_pods_op: CreatePods

    @property
    def collects(self) -> bool:
        """Whether measures are taken by it, or end with it."""
        return self.create_pods_op.collects


class DeletePods(Operation):
    """Delete a namespace's pods (with these labels), at once or so many a second."""

    opcode: Literal["deletePods"]
    namespace: str
    label_selector: dict[str, str] = {}
    skip_wait_to_completion: bool = False
    delete_pods_per_second: Count = 0


class Churn(Operation):
    """In the background: objects of all templates every so often, to the end of the workload.

    ``create``: ``number`` times (0: without end). ``recreate``: ``number`` of them are created,
    then deleted, and so on.
    """

    opcode: Literal["churn"]
    mode: Literal["create", "recreate"]
    number: Count = 0
    interval_milliseconds: Annotated[int, Field(ge=1)] = 500
    namespace: str | None = None
    template_paths: list[str] = Field(min_length=1)

    @model_validator(mode="after")
    def _number_of_recreate(self) -> Churn:
        if self.mode == "recreate" and self.number == 0:
            raise ValueError("number must be positive in mode recreate")
        return self


class Barrier(Operation):
    """Wait until the pods of these namespaces (default: all) are bound, or were tried at least."""

    opcode: Literal["barrier"]
    namespaces: list[str] = []
    label_selector: dict[str, str] = {}
    stage_requirement: Literal["Scheduled", "Attempted"] = "Scheduled"

    @field_validator("stage_requirement", mode="before")
    @classmethod
    def _empty_is_scheduled(cls, value: Any) -> Any:
        return value or "Scheduled"


class Sleep(Operation):
    """Wait."""

    opcode: Literal["sleep"]
    duration: Seconds = 0.0
    duration_param: Parameter | None = None
    parameters: ClassVar[dict[str, str]] = {"duration_param": "duration"}


class StartCollectingMetrics(Operation):
    """Begin to measure the pods of these namespaces (with these labels)."""

    opcode: Literal["startCollectingMetrics"]
    name: str = ""
    namespaces: list[str] = Field(min_length=1)
    label_selector: dict[str, str] = {}


class StopCollectingMetrics(Operation):
    """Stop to measure."""

    opcode: Literal["stopCollectingMetrics"]

    @property
    def collects(self) -> bool:
        """Whether measures are taken by it, or end with it."""
        return True


class CreateAny(Operation):
    """Objects of any kind; their template may use .Index and .Count."""

    opcode: Literal["createAny"]
    namespace: str = ""
    template_path: str = Field(min_length=1)
    count: Count = 1
    count_param: Parameter | None = None


class UpdateAny(Operation):
    """Replace objects of any kind and their status, at once or so many a second."""

    opcode: Literal["updateAny"]
    namespace: str = ""
    template_path: str = Field(min_length=1)
    count: Count = 1
    count_param: Parameter | None = None
    update_per_second: Count = 0
    subresources: list[str] = []


class CreateResourceClaims(Operation):
    """ResourceClaims of one template."""

    opcode: Literal["createResourceClaims"]
    count: Count = 0
    count_param: Parameter | None = None
    namespace: str = Field(min_length=1)
    template_path: str = Field(min_length=1)


class CreateResourceDriver(Operation):
    """A ResourceSlice of so many devices for each node whose name matches the glob ``nodes``."""

    opcode: Literal["createResourceDriver"]
    driver_name: str = Field(min_length=1)
    max_claims_per_node: Count = 0
    max_claims_per_node_param: Parameter | None = None
    nodes: str = Field(min_length=1)
    parameters: ClassVar[dict[str, str]] = {"max_claims_per_node_param": "max_claims_per_node"}


class AllocResourceClaims(Operation):
    """Allocate the claims of a namespace (default: all) without pods, on random nodes."""

    opcode: Literal["allocResourceClaims"]
    namespace: str = ""


AnyOperation = Annotated[
    CreateNodes
    | CreateNamespaces
    | CreatePods
    | CreatePodSets
    | DeletePods
    | Churn
    | Barrier
    | Sleep
    | StartCollectingMetrics
    | StopCollectingMetrics
    | CreateAny
    | UpdateAny
    | CreateResourceClaims
    | CreateResourceDriver
    | AllocResourceClaims,
    Field(discriminator="opcode"),
]
