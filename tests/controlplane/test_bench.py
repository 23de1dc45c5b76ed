"""``proreus bench`` on a control plane that it starts itself, with both schedulers."""

import json
import os
import subprocess
import sys
from pathlib import Path

from envtest.binaries import emulated_version

WORKLOADS = Path(__file__).parents[1] / "bench" / "workloads"

NO_HINTS = {"1.36": "the gate is locked in 1.36", "1.37": "1.37 has no such gate"}

MIXED = """
- name: Mixed
  featureGates: {DynamicResourceAllocation: true, SchedulerQueueingHints: false}
  workloadTemplate:
  - opcode: createNodes
    count: 10
    nodeTemplatePath: templates/node-with-devices.yaml
    nodeAllocatableStrategy:
      csiNodeAllocatable: {ebs.csi.aws.com: {count: 39}}
  - opcode: createResourceDriver
    driverName: test-driver.cdi.k8s.io
    nodes: scheduler-perf-dra-*
    maxClaimsPerNode: 4
  - opcode: createAny
    templatePath: templates/device-class.yaml
  - opcode: createAny
    templatePath: templates/claim-template.yaml
    namespace: devices
  - opcode: createPods
    count: 10
    podTemplatePath: templates/low-priority-pod.yaml
    persistentVolumeTemplatePath: templates/volume-csi.yaml
    persistentVolumeClaimTemplatePath: templates/volume-claim.yaml
  - opcode: churn
    mode: create
    number: 3
    intervalMilliseconds: 50
    templatePaths: [templates/high-priority-pod.yaml]
  - opcode: createPods
    count: 20
    namespace: devices
    podTemplatePath: templates/pod-with-claim-template.yaml
    collectMetrics: true
  - opcode: createAny
    templatePath: templates/claim-template.yaml
    namespace: steady
  - opcode: createPods
    count: 4
    namespace: steady
    podTemplatePath: templates/pod-with-claim-template.yaml
    steadyState: true
    duration: 2s
    collectMetrics: true
  workloads:
  - name: small
"""


def test_both_schedulers_run_the_same_workload(binaries: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(MIXED)
    (tmp_path / "templates").symlink_to(WORKLOADS / "templates")
    figures = tmp_path / "figures.json"
    search = os.pathsep.join({str(path.parent) for path in binaries.values()})
    done = subprocess.run(
        [
            *(sys.executable, "-m", "proreus", "bench", "--bare", "--timeout=30"),
            *(f"--config={tmp_path / 'config.yaml'}", "--workload=Mixed/small"),
            f"--json={figures}",
        ],
        capture_output=True,
        text=True,
        timeout=240,
        env=os.environ | {"PATH": f"{search}{os.pathsep}{os.environ['PATH']}"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"SchedulerQueueingHints=false is not set: {NO_HINTS[emulated_version()]}" in done.stderr
    [report] = json.loads(figures.read_text())
    passes = {one["scheduler"]: one for one in report["passes"]}
    assert set(passes) == {"kube-scheduler", "proreus", "bare"}
    for one in passes.values():
        burst, steady = one["periods"]
        assert burst["pods"] == 20
        assert steady["pods"] >= 4
        assert set(one["peak_rss_bytes"]) == {"scheduler", "apiserver", "etcd"}
        assert all(value > 0 for value in one["peak_rss_bytes"].values())
        assert one["log_errors"] == []
    assert report["ratio"]["pods_per_second"] > 0
    assert report["ratio"]["algorithm_mean_ms"] > 0
