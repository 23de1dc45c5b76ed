"""Which gates of a workload can be set in the apiserver's version, and with which APIs."""

import asyncio
from pathlib import Path

import pytest

from proreus.base.errors import ProreusError
from proreus.base.kubernetes_version import V1_36, V1_37, V1_38, KubernetesVersion
from proreus.workbench.bench.comparison import _apiserver_flags, version_of_apiserver
from proreus.workbench.bench.schedulers import nearest_supported, settable_gates

GATES = {
    "SchedulerQueueingHints": False,
    "DRAExtendedResource": False,
    "InterPodAffinityHostnameFastPath": True,
    "SchedulerAsyncAPICalls": False,
    "GateOfAnotherWorld": True,
}


@pytest.mark.parametrize(
    ("version", "free", "notes"),
    [
        (
            V1_36,
            {"DRAExtendedResource", "SchedulerAsyncAPICalls", "GateOfAnotherWorld"},
            [
                "SchedulerQueueingHints=false is not set: the gate is locked in 1.36",
                "InterPodAffinityHostnameFastPath=true is not set: 1.36 has no such gate",
            ],
        ),
        (
            V1_37,
            {"InterPodAffinityHostnameFastPath", "SchedulerAsyncAPICalls", "GateOfAnotherWorld"},
            [
                "SchedulerQueueingHints=false is not set: 1.37 has no such gate",
                "DRAExtendedResource=false is not set: the gate is locked in 1.37",
            ],
        ),
    ],
)
def test_gates_that_a_version_does_not_let_one_set(
    version: KubernetesVersion, free: set[str], notes: list[str]
) -> None:
    assert settable_gates(GATES, version) == (
        {name: GATES[name] for name in GATES if name in free},
        notes,
    )


def test_pod_groups_are_served_in_the_version_that_the_scheduler_reads() -> None:
    gates = {"GenericWorkload": True, "CompositePodGroup": True}
    assert _apiserver_flags({"GenericWorkload": True}, V1_36) == [
        "--feature-gates=GenericWorkload=true",
        "--runtime-config=scheduling.k8s.io/v1alpha2=true",
    ]
    assert _apiserver_flags(gates, V1_37) == [
        "--feature-gates=GenericWorkload=true,CompositePodGroup=true",
        "--runtime-config=scheduling.k8s.io/v1beta1=true,scheduling.k8s.io/v1alpha3=true",
    ]
    assert _apiserver_flags(gates, V1_38)[1] == "--runtime-config=scheduling.k8s.io/v1beta1=true"
    assert _apiserver_flags({}, V1_37) == []


def test_other_versions_count_as_the_nearest_one() -> None:
    told = [KubernetesVersion(1, minor) for minor in (30, 36, 37, 40)]
    assert [nearest_supported(one) for one in told] == [V1_36, V1_36, V1_37, V1_37]


def test_a_program_tells_its_version(tmp_path: Path) -> None:
    def version_told_by(script: str) -> str:
        program = tmp_path / "kube-apiserver"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        return asyncio.run(version_of_apiserver({"kube-apiserver": program}, None))

    assert version_told_by('[ "$1" = --version ] && echo Kubernetes v1.37.1') == "v1.37.1"
    with pytest.raises(ProreusError, match="does not tell its version"):
        version_told_by("true")
