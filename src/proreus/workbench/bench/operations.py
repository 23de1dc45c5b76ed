"""The operations of a workload, with scheduler_perf's fields.

Some values may be parameters of the workload: ``countParam: $initNodes`` sets ``count``. Paths are
relative to the workload file. This module only validates operations; ``executor`` runs them.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator
from pydantic.alias_generators import to_camel

from proreus.config.durations import parse_duration


class StrictModel(BaseModel):
    """A part of a workload file: camelCase, no unknown fields, no conversion of types."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, alias_generator=to_camel, validate_by_name=True
    )


Count = Annotated[int, Field(ge=0)]
Parameter = Annotated[str, Field(pattern=r"^\$.", description="the name of a parameter: $name")]


def _seconds(value: object) -> object:
    return parse_duration(value) if isinstance(value, str) else value


Seconds = Annotated[float, BeforeValidator(_seconds)]
"""A duration in Go's form: ``10s``, ``1m30s``."""


class Operation(StrictModel):
    """The base of all operations."""

    opcode: str
    parameters: ClassVar[dict[str, str]] = {"count_param": "count"}
    """Fields that name a parameter -> the field that gets its value."""
    multipliers: ClassVar[dict[str, str]] = {}
    """Fields that name a parameter -> the field that is multiplied by its value."""
    references: ClassVar[tuple[str, ...]] = ()
    """Fields whose value may itself be a parameter's name, with a default after ``|``."""

    @property
    def results(self) -> dict[str, Any]:
        """The parameters that it sets for the operations after it."""
        return {}

    @property
    def collects(self) -> bool:
        """Whether this operation yields a period of measurements."""
        return False


class _Counted(Operation):
    count: Count = 0
    count_param: Parameter | None = None


TemplateParameters = dict[str, Any]
"""The variables of a template besides .Index and .Count. A value that begins with ``$`` is that of
a parameter, or, after ``|``, a default value in YAML.
"""


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


class CreateNodes(_Counted):
    """Create nodes, by a template or with 4 CPUs, 32Gi and 110 pods, and apply strategies."""

    opcode: Literal["createNodes"]
    node_template_path: str | None = None
    node_allocatable_strategy: _NodeAllocatable | None = None
    label_node_prepare_strategy: _LabelNodes | None = None
    unique_node_label_strategy: _UniqueNodeLabel | None = None
    template_params: TemplateParameters = {}


class CreateNamespaces(_Counted):
    """Create the namespaces ``<prefix>-0``, ``<prefix>-1`` …"""

    opcode: Literal["createNamespaces"]
    prefix: str
    namespace_template_path: str | None = None


class CreatePods(_Counted):
    """Create pods as fast as possible, and wait until they are bound.

    ``skipWaitToCompletion``: do not wait. ``steadyState``: create ``count`` pods, delete them once
    they are bound, and start over, for ``duration``. ``signatureBatchSize``: that many successive
    pods have the same label ``signature``; without it pods get no such label.
    """

    opcode: Literal["createPods"]
    count_multiplier_param: Parameter | None = None
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
    template_params: TemplateParameters = {}
    signature_batch_size: Count = 0
    signature_batch_size_param: Parameter | None = None
    parameters: ClassVar[dict[str, str]] = {
        "count_param": "count",
        "steady_state_param": "steady_state",
        "duration_param": "duration",
        "signature_batch_size_param": "signature_batch_size",
    }
    multipliers: ClassVar[dict[str, str]] = {"count_multiplier_param": "count"}

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
        """Whether this operation yields a period of measurements."""
        return self.collect_metrics


class CreatePodSets(_Counted):
    """Run the same createPods in each of the namespaces ``<namespacePrefix>-0`` …"""

    opcode: Literal["createPodSets"]
    namespace_prefix: str
    create_pods_op: CreatePods

    @property
    def collects(self) -> bool:
        """Whether this operation yields a period of measurements."""
        return self.create_pods_op.collects


class DeletePods(Operation):
    """Delete a namespace's pods (with these labels), at once or at a rate per second."""

    opcode: Literal["deletePods"]
    namespace: str
    label_selector: dict[str, str] = {}
    skip_wait_to_completion: bool = False
    delete_pods_per_second: Count = 0


class Churn(Operation):
    """Create objects of all templates at an interval, in the background until the workload ends.

    ``create``: ``number`` times (0: without limit). ``recreate``: create ``number``, delete them,
    and start over.
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
    """Wait until the pods of these namespaces (by default all) are bound, or at least attempted."""

    opcode: Literal["barrier"]
    namespaces: list[str] = []
    label_selector: dict[str, str] = {}
    stage_requirement: str = "Scheduled"
    references: ClassVar[tuple[str, ...]] = ("stage_requirement",)

    @field_validator("stage_requirement")
    @classmethod
    def _known_stage(cls, value: str) -> str:
        if value not in ("", "Scheduled", "Attempted") and not value.startswith("$"):
            raise ValueError("must be Scheduled, Attempted or the name of a parameter")
        return value or "Scheduled"


class Sleep(Operation):
    """Wait for ``duration``."""

    opcode: Literal["sleep"]
    duration: Seconds = 0.0
    duration_param: Parameter | None = None
    parameters: ClassVar[dict[str, str]] = {"duration_param": "duration"}


class StartCollectingMetrics(Operation):
    """Start measuring the pods of these namespaces (with these labels)."""

    opcode: Literal["startCollectingMetrics"]
    name: str = ""
    namespaces: list[str] = Field(min_length=1)
    label_selector: dict[str, str] = {}


class StopCollectingMetrics(Operation):
    """Stop measuring."""

    opcode: Literal["stopCollectingMetrics"]

    @property
    def collects(self) -> bool:
        """Whether this operation yields a period of measurements."""
        return True


class CreateAny(_Counted):
    """Create objects of any kind; their template may use .Index, .Count and its parameters."""

    opcode: Literal["createAny"]
    namespace: str = ""
    template_path: str = Field(min_length=1)
    count: Count = 1
    template_params: TemplateParameters = {}


class CreatePodGroups(_Counted):
    """Create PodGroups, in the version of their API that kube-scheduler 1.37 reads (v1beta1)."""

    opcode: Literal["createPodGroups"]
    namespace: str = Field(min_length=1)
    template_path: str = Field(min_length=1)
    template_params: TemplateParameters = {}


class CreateCompositePodGroups(Operation):
    """Create ``rootCount`` trees of CompositePodGroups, ``depth - 1`` levels of them.

    Each has ``childrenCompositePodGroupsPerCPG`` children, those of the last level
    ``childrenPodGroupsPerCPG`` PodGroups, which the next operation creates: it finds their number
    in the parameter ``podGroupsCount``, and the level above them in ``parentLevel``.
    """

    opcode: Literal["createCompositePodGroups"]
    namespace: str = Field(min_length=1)
    template_path: str = Field(min_length=1)
    template_params: TemplateParameters = {}
    depth: Annotated[int, Field(ge=2, le=4)]
    root_count: Count = 0
    root_count_param: Parameter | None = None
    composites: Count = Field(0, alias="childrenCompositePodGroupsPerCPG")
    composites_param: Parameter | None = Field(None, alias="childrenCompositePodGroupsPerCPGParam")
    groups: Count = Field(0, alias="childrenPodGroupsPerCPG")
    groups_param: Parameter | None = Field(None, alias="childrenPodGroupsPerCPGParam")
    parameters: ClassVar[dict[str, str]] = {
        "root_count_param": "root_count",
        "composites_param": "composites",
        "groups_param": "groups",
    }

    @model_validator(mode="after")
    def _consistent(self) -> CreateCompositePodGroups:
        given = {
            "rootCount": self.root_count or self.root_count_param,
            "childrenPodGroupsPerCPG": self.groups or self.groups_param,
            "childrenCompositePodGroupsPerCPG": self.composites or self.composites_param,
        }
        if self.depth == 2 and given.pop("childrenCompositePodGroupsPerCPG"):
            raise ValueError("childrenCompositePodGroupsPerCPG needs a depth greater than 2")
        for name, count in given.items():
            if not count:
                raise ValueError(f"{name} must be positive")
        return self

    @property
    def levels(self) -> list[tuple[int, int]]:
        """The number of CompositePodGroups at each level, and of the children of each of them."""
        children = [self.composites] * (self.depth - 2) + [self.groups]
        return [
            (self.root_count * self.composites**level, below)
            for level, below in enumerate(children)
        ]

    @property
    def results(self) -> dict[str, Any]:
        """The number of PodGroups to create, and the level of their parents."""
        parents, children = self.levels[-1]
        return {"podGroupsCount": parents * children, "parentLevel": self.depth - 1}


class UpdateAny(_Counted):
    """Replace objects of any kind and their status, at once or at a rate per second."""

    opcode: Literal["updateAny"]
    namespace: str = ""
    template_path: str = Field(min_length=1)
    count: Count = 1
    update_per_second: Count = 0
    subresources: list[str] = []


class CreateResourceDriver(Operation):
    """Create a ResourceSlice for each node whose name matches the glob ``nodes``."""

    opcode: Literal["createResourceDriver"]
    driver_name: str = Field(min_length=1)
    max_claims_per_node: Count = 0
    max_claims_per_node_param: Parameter | None = None
    nodes: str = Field(min_length=1)
    parameters: ClassVar[dict[str, str]] = {"max_claims_per_node_param": "max_claims_per_node"}


class AllocResourceClaims(Operation):
    """Allocate the claims of a namespace (by default all) on random nodes, without pods."""

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
    | CreatePodGroups
    | CreateCompositePodGroups
    | UpdateAny
    | CreateResourceDriver
    | AllocResourceClaims,
    Field(discriminator="opcode"),
]
