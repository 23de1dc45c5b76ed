"""``proreus bench`` end to end, on the embedded cluster: an existing apiserver."""

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from proreus.workbench.sandbox import KubeletOptions, Sandbox

WORKLOADS = Path(__file__).parents[3] / "bench" / "workloads"

CHANGING = """
- name: Changing
  workloadTemplate:
  - opcode: createNodes
    count: 3
    uniqueNodeLabelStrategy: {labelKey: number}
  - opcode: createNamespaces
    prefix: team
    count: 2
  - opcode: createAny
    templatePath: service.yaml
    namespace: team-0
    count: 2
  - opcode: startCollectingMetrics
    namespaces: [team-0, team-1]
    name: both
  - opcode: createPodSets
    count: 2
    namespacePrefix: team
    createPodsOp: {opcode: createPods, countParam: $pods, skipWaitToCompletion: true}
  - opcode: churn
    mode: recreate
    number: 1
    intervalMilliseconds: 20
    templatePaths: [service.yaml, high.yaml]
  - opcode: barrier
  - opcode: stopCollectingMetrics
  - opcode: deletePods
    namespace: team-0
  workloads:
  - name: small
    params: {pods: 20}
"""
HIGH = """
apiVersion: v1
kind: Pod
metadata: {generateName: high-}
spec:
  priority: 10
  containers: [{name: pause, image: pause}]
"""
SERVICE = """
apiVersion: v1
kind: Service
metadata: {generateName: service-}
spec: {ports: [{port: 80}]}
"""


def bench(sandbox: Sandbox, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command against the sandbox in a thread, so that the sandbox can serve meanwhile."""
    kubeconfig = sandbox.write_kubeconfig(folder / "kubeconfig")
    command = [sys.executable, "-m", "proreus", "bench", f"--kubeconfig={kubeconfig}"]
    return subprocess.run(
        [*command, "--timeout=20", *arguments], capture_output=True, text=True, timeout=120
    )


async def run(folder: Path, *arguments: str) -> tuple[subprocess.CompletedProcess[str], Sandbox]:
    async with Sandbox(kubelet=KubeletOptions()) as sandbox:
        return await asyncio.to_thread(bench, sandbox, folder, *arguments), sandbox


@pytest.mark.parametrize("mode", [[], ["--backlog"]], ids=["live", "backlog"])
async def test_a_small_workload_is_measured_and_cleaned_up(tmp_path: Path, mode: list[str]) -> None:
    figures, drawing = tmp_path / "figures.json", tmp_path / "plot.svg"
    done, sandbox = await run(
        tmp_path,
        f"--config={WORKLOADS / 'basic.yaml'}",
        "--workload=SchedulingBasic/50Nodes",
        "--scheduler=proreus",
        "--bare",
        f"--json={figures}",
        f"--plot={drawing}",
        *mode,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    [report] = json.loads(figures.read_text())
    assert report["workload"] == "SchedulingBasic/50Nodes"
    passes = {one["scheduler"]: one for one in report["passes"]}
    assert list(passes) == ["proreus", "bare"]
    for one in passes.values():
        [period] = one["periods"]
        assert period["pods"] == 100 == sum(period["each_second"])
        assert 0 < period["latency_p50"] <= period["latency_p99"]
        assert one["log_errors"] == []
        assert one["peak_rss_bytes"]["scheduler"] > 2**20
    assert passes["proreus"]["periods"][0]["algorithm_mean_ms"] > 0
    assert report["median"]["bare"]["algorithm_mean_ms"] is None
    assert drawing.read_text().lstrip().startswith("<?xml")
    assert sandbox.store.list("pods") == []
    assert sandbox.store.list("nodes") == []


async def test_namespaces_churn_and_measuring_periods(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(CHANGING)
    (tmp_path / "service.yaml").write_text(SERVICE)
    (tmp_path / "high.yaml").write_text(HIGH)
    figures = tmp_path / "figures.json"
    done, _ = await run(
        tmp_path,
        f"--config={tmp_path / 'config.yaml'}",
        "--workload=Changing/small",
        "--scheduler=proreus",
        f"--json={figures}",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    [period] = json.loads(figures.read_text())[0]["passes"][0]["periods"]
    assert (period["name"], period["pods"]) == ("both", 40)


async def test_pods_that_never_fit_are_an_error(tmp_path: Path) -> None:
    config = CHANGING.replace(
        "countParam: $pods,", "countParam: $pods, podTemplatePath: huge.yaml,"
    )
    (tmp_path / "config.yaml").write_text(config)
    (tmp_path / "service.yaml").write_text(SERVICE)
    (tmp_path / "high.yaml").write_text(HIGH)
    huge = WORKLOADS / "templates" / "huge-pod.yaml"
    (tmp_path / "huge.yaml").write_text(huge.read_text())
    done, _ = await run(
        tmp_path,
        f"--config={tmp_path / 'config.yaml'}",
        "--workload=Changing/small",
        "--scheduler=proreus",
        "--timeout=2",
    )
    assert done.returncode == 1
    shown = " ".join(done.stdout.split())
    assert "20 of 20 pods in team-0 were not scheduled" in shown
    assert "3 Insufficient cpu" in shown


async def test_an_interrupt_ends_the_scheduler_and_cleans_up(tmp_path: Path) -> None:
    config = CHANGING.replace(
        "countParam: $pods,", "countParam: $pods, podTemplatePath: huge.yaml,"
    )
    (tmp_path / "config.yaml").write_text(config)
    (tmp_path / "service.yaml").write_text(SERVICE)
    (tmp_path / "high.yaml").write_text(HIGH)
    huge = WORKLOADS / "templates" / "huge-pod.yaml"
    (tmp_path / "huge.yaml").write_text(huge.read_text())
    async with Sandbox(kubelet=KubeletOptions()) as sandbox:
        kubeconfig = sandbox.write_kubeconfig(tmp_path / "kubeconfig")
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "proreus", "bench", f"--kubeconfig={kubeconfig}"),
            *(f"--config={tmp_path / 'config.yaml'}", "--workload=Changing/small"),
            "--scheduler=proreus",
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        for _ in range(600):
            if len(sandbox.store.list("pods", "team-1")) == 20:
                break
            await asyncio.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        shown, _ = await asyncio.wait_for(process.communicate(), 60)
        assert process.returncode == 130
        assert b"Changing/small" in shown
        assert sandbox.store.list("pods") == []
        assert sandbox.store.list("nodes") == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "--workload: name what to run; --list shows what there is"),
        (["--workload=Nothing/here"], "no workload Nothing/here; there are: SchedulingBasic/50"),
        (
            ["--workload=SchedulingBasic/50Nodes", "--scheduler=nobody"],
            "--scheduler nobody: must be proreus, both, or the path of a kube-scheduler binary",
        ),
        (
            ["--workload=SchedulingBasic/50Nodes", "--plot=plot.gif"],
            "--plot plot.gif: must end in .svg or .png",
        ),
        (
            ["--workload=SchedulingBasic/50Nodes", "--set=initNodes"],
            "--set initNodes: must be PARAMETER=VALUE",
        ),
    ],
)
async def test_errors_of_arguments_name_what_is_allowed(
    tmp_path: Path, arguments: list[str], words: str
) -> None:
    done, _ = await run(tmp_path, f"--config={WORKLOADS / 'basic.yaml'}", *arguments)
    assert done.returncode == 1
    assert words in " ".join(done.stderr.split())
