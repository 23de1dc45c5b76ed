"""Workload files: parsing, validation, and the texts of errors."""

import re
from pathlib import Path

import pytest

from proreus.base.errors import ConfigError
from proreus.workbench.bench import operations, workloads

OURS = sorted((Path(__file__).parents[3] / "bench" / "workloads").glob("*.yaml"))

BASIC = """
- name: Basic
  featureGates: {DRAExtendedResource: true, SchedulerQueueingHints: false}
  defaultPodTemplatePath: ../templates/pod.yaml
  workloadTemplate:
  - opcode: createNodes
    countParam: $nodes
    labelNodePrepareStrategy: {labelKey: zone, labelValues: [a, b]}
  - opcode: createPodSets
    countParam: $sets
    namespacePrefix: init
    createPodsOp: {opcode: createPods, countParam: $pods, skipWaitToCompletion: true}
  - opcode: barrier
  - opcode: sleep
    duration: 1m30s
  - opcode: createPods
    countParam: $pods
    collectMetrics: true
  workloads:
  - name: small
    labels: [short]
    threshold: {dra: 40}
    featureGates: {SchedulerQueueingHints: true}
    params: {nodes: 5, sets: 2, pods: 10}
  - name: large
    threshold: 270
    params: {nodes: 5000, sets: 2, pods: 10000}
"""


def load(tmp_path: Path, text: str) -> list[workloads.TestCase]:
    path = tmp_path / "performance-config.yaml"
    path.write_text(text)
    return workloads.load(path)


def refusal(tmp_path: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    return str(caught.value).replace(f"{tmp_path}/performance-config.yaml: ", "")


def test_parameters_are_substituted_and_pod_sets_unrolled(tmp_path: Path) -> None:
    plan = workloads.plan(load(tmp_path, BASIC), "Basic/small", tmp_path)
    nodes, *sets, _barrier, sleep, measured = plan.operations
    assert isinstance(nodes, operations.CreateNodes)
    assert nodes.count == 5
    assert [(one.namespace, one.count) for one in sets] == [("init-0", 10), ("init-1", 10)]
    assert all(one.skip_wait_to_completion for one in sets)
    assert sleep.duration == 90
    assert (measured.count, measured.collects, measured.namespace) == (10, True, None)
    assert plan.feature_gates == {"DRAExtendedResource": True, "SchedulerQueueingHints": True}
    assert plan.path("../templates/pod.yaml") == tmp_path / "../templates/pod.yaml"
    assert plan.notes == ()


def test_only_known_parameters_can_be_overridden(tmp_path: Path) -> None:
    cases = load(tmp_path, BASIC)
    plan = workloads.plan(cases, "Basic/large", tmp_path, {"pods": 7})
    assert plan.operations[-1].count == 7
    with pytest.raises(ConfigError, match="no parameter podz; it has nodes, pods, sets"):
        workloads.plan(cases, "Basic/large", tmp_path, {"podz": 7})


def test_steady_state_and_duration_can_be_parameters(tmp_path: Path) -> None:
    text = """
- name: Steady
  workloadTemplate:
  - opcode: createPods
    count: 10
    steadyStateParam: $steady
    durationParam: $duration
    collectMetrics: true
  workloads:
  - name: short
    params: {steady: true, duration: 10s}
"""
    [pods] = workloads.plan(load(tmp_path, text), "Steady/short", tmp_path).operations
    assert (pods.steady_state, pods.duration) == (True, 10.0)


GROUPS = """
- name: Groups
  workloadTemplate:
  - opcode: createPodGroups
    namespace: groups
    countParam: $groups
    templatePath: group.yaml
    templateParams: {size: $size, kind: plain, more: "$more|[1, x]", none: $none|, both: $size|9}
  - opcode: createPods
    countParam: $groups
    countMultiplierParam: $size
    signatureBatchSizeParam: $batch
    templateParams: {size: $size}
    collectMetrics: true
  workloads:
  - name: small
    params: {groups: 4, size: 3, batch: 2}
  - name: odd
    params: {groups: 4, size: three, batch: 2}
  - name: full
    params: {groups: 1, size: 3, batch: 0, more: {a: [null]}, none: x}
"""


def test_parameters_of_templates_and_products(tmp_path: Path) -> None:
    plan = workloads.plan(load(tmp_path, GROUPS), "Groups/small", tmp_path)
    groups, pods = plan.operations
    assert isinstance(groups, operations.CreatePodGroups)
    given = {"size": 3, "kind": "plain", "more": [1, "x"], "none": None, "both": 3}
    assert (groups.count, groups.template_params) == (4, given)
    assert isinstance(pods, operations.CreatePods)
    assert (pods.count, pods.signature_batch_size, pods.template_params) == (12, 2, {"size": 3})
    assert plan.notes == ()


TREES = """
- name: Trees
  workloadTemplate:
  - opcode: createCompositePodGroups
    namespace: trees
    rootCountParam: $roots
    depth: 3
    childrenCompositePodGroupsPerCPGParam: $composites
    childrenPodGroupsPerCPG: 4
    templatePath: composite.yaml
  - opcode: createPodGroups
    namespace: trees
    countParam: $podGroupsCount
    templatePath: group.yaml
    templateParams: {level: $parentLevel}
  - opcode: createPods
    count: 1
    collectMetrics: true
  - opcode: barrier
    stageRequirement: $stage|Attempted
  workloads:
  - name: small
    params: {roots: 2, composites: 3}
  - name: scheduled
    params: {roots: 2, composites: 3, stage: Scheduled}
"""


def test_trees_tell_the_next_operations_how_many_groups_they_need(tmp_path: Path) -> None:
    plan = workloads.plan(load(tmp_path, TREES), "Trees/small", tmp_path)
    trees, groups, *_ = plan.operations
    assert isinstance(trees, operations.CreateCompositePodGroups)
    assert trees.levels == [(2, 3), (6, 4)]
    assert isinstance(groups, operations.CreatePodGroups)
    assert (groups.count, groups.template_params) == (24, {"level": 2})
    assert plan.notes == ()


@pytest.mark.parametrize(("name", "stage"), [("small", "Attempted"), ("scheduled", "Scheduled")])
def test_the_stage_of_a_barrier_may_be_a_parameter(tmp_path: Path, name: str, stage: str) -> None:
    barrier = workloads.plan(load(tmp_path, TREES), f"Trees/{name}", tmp_path).operations[-1]
    assert isinstance(barrier, operations.Barrier)
    assert barrier.stage_requirement == stage


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("depth: 3", "depth: 2", "childrenCompositePodGroupsPerCPG needs a depth greater than 2"),
        ("depth: 3", "depth: 5", "less than or equal to 4"),
        ("rootCountParam: $roots", "rootCount: 0", "rootCount must be positive"),
        ("childrenPodGroupsPerCPG: 4", "", "childrenPodGroupsPerCPG must be positive"),
        ("$stage|Attempted", "Bound", "must be Scheduled, Attempted or the name of a parameter"),
    ],
)
def test_refuses_trees_and_stages_that_cannot_be(
    tmp_path: Path, old: str, new: str, problem: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(problem)):
        load(tmp_path, TREES.replace(old, new))


def test_a_parameter_may_be_any_value_in_a_template_but_a_count_only_a_number(
    tmp_path: Path,
) -> None:
    cases = load(tmp_path, GROUPS)
    groups, _ = workloads.plan(cases, "Groups/full", tmp_path).operations
    assert groups.template_params["more"] == {"a": [None]}
    assert groups.template_params["none"] == "x"
    with pytest.raises(
        ConfigError, match=r"workloadTemplate\[1\].count: Input should be a valid i"
    ):
        workloads.plan(cases, "Groups/odd", tmp_path)


def test_a_template_parameter_without_value_and_default(tmp_path: Path) -> None:
    cases = load(tmp_path, GROUPS.replace("kind: plain", "kind: $kind"))
    with pytest.raises(ConfigError, match="there is no parameter kind; there are: batch, groups"):
        workloads.plan(cases, "Groups/small", tmp_path)


def test_the_first_ten_errors_have_a_line_each(tmp_path: Path) -> None:
    flaws = "".join(f"  - {{opcode: sleep, flaw: {number}}}\n" for number in range(12))
    text = BASIC.replace("  - opcode: barrier\n", flaws)
    lines = refusal(tmp_path, text).splitlines()
    assert len(lines) == 11
    assert lines[0].startswith("[0].workloadTemplate[2].flaw: unknown field; allowed are dur")
    assert lines[9].startswith("[0].workloadTemplate[11].flaw: ")
    assert lines[10] == "and 2 more"
    assert refusal(tmp_path, BASIC.replace("name: large", "nome: large")).count("\n") == 1


def test_a_parameter_that_nothing_uses_is_noted(tmp_path: Path) -> None:
    text = BASIC.replace("sets: 2, pods: 10}", "sets: 2, pods: 10, extra: 1}")
    plan = workloads.plan(load(tmp_path, text), "Basic/small", tmp_path)
    assert plan.notes == ("no operation uses extra",)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            "opcode: barrier",
            "opcode: barier",
            "[0].workloadTemplate[2].opcode: barier is unknown; allowed are createNodes, ",
        ),
        (
            "labelNodePrepareStrategy: {labelKey",
            "labelNodePrepareStrategy: {labelKay",
            "[0].workloadTemplate[0].labelNodePrepareStrategy.labelKay: unknown field; "
            "allowed are labelKey, labelValues",
        ),
        (
            "    collectMetrics: true",
            "    collectMetric: true",
            "[0].workloadTemplate[4].collectMetric: unknown field; allowed are collectMetrics, ",
        ),
        (
            "countParam: $nodes",
            "countParam: nodes",
            "[0].workloadTemplate[0].countParam: 'nodes' must be a parameter's name, like $",
        ),
        ("countParam: $nodes", "count: -1", "[0].workloadTemplate[0].count: Input should be"),
        ("duration: 1m30s", "duration: 90x", 'unknown unit "x" in duration "90x"'),
        (
            "collectMetrics: true",
            "collectMetrics: true\n    skipWaitToCompletion: true",
            "collectMetrics and skipWaitToCompletion cannot both be true",
        ),
        ("    collectMetrics: true", "", "[0].workloadTemplate: nothing is measured"),
        ("- name: large", "- name: small", "[0].workloads: small is there twice"),
        ("  - opcode: sleep", "  - opcode: sleep\n    opcode: sleep", 'key "opcode" already set'),
    ],
)
def test_errors_name_the_field_and_what_is_allowed(
    tmp_path: Path, old: str, new: str, words: str
) -> None:
    assert old in BASIC
    assert words in refusal(tmp_path, BASIC.replace(old, new, 1))


def test_an_undefined_parameter_lists_the_defined_ones(tmp_path: Path) -> None:
    cases = load(tmp_path, BASIC.replace("$nodes", "$hosts"))
    with pytest.raises(
        ConfigError,
        match=r"workloadTemplate\[0\]: there is no parameter hosts; there are: nodes, pods, sets",
    ):
        workloads.plan(cases, "Basic/small", tmp_path)


def test_an_unknown_workload_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no workload Basic/tiny; there are: Basic/small, Basic"):
        workloads.plan(load(tmp_path, BASIC), "Basic/tiny", tmp_path)


def test_bundled_workloads_exist() -> None:
    cases = [case.name for path in OURS for case in workloads.load(path)]
    assert len(cases) == len(set(cases)) >= 25


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.stem)
def test_each_bundled_workload_can_be_planned(path: Path) -> None:
    cases = workloads.load(path)
    for name in workloads.names(cases):
        plan = workloads.plan(cases, name, path.parent)
        assert plan.notes == ()
        for operation in plan.operations:
            for template in _templates(operation):
                assert plan.path(template).is_file()


def _templates(operation: operations.Operation) -> list[str]:
    fields = operation.model_dump()
    named = [value for field, value in fields.items() if field.endswith("template_path") and value]
    return named + fields.get("template_paths", [])
