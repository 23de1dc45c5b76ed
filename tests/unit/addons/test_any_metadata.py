"""Whatever text labels and annotations of pods have, every add-on lets other pods be scheduled."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml

from proreus.process.loading.load import add_ons
from proreus.testing import Harness, make_node, make_pod
from unit.addons.test_pages import page_of

KOORDINATOR = "scheduling.koordinator.sh/"
ANNOTATIONS = (
    *(f"{KOORDINATOR}{name}" for name in ("device-allocated", "reservation-allocated")),
    *(f"{KOORDINATOR}{name}" for name in ("device-allocate-hint", "device-joint-allocate")),
    *(f"{KOORDINATOR}{name}" for name in ("gpu-partition-spec", "exact-match-reservation")),
    f"{KOORDINATOR}reservation-affinity",
    "volcano.sh/vgpu-ids-new",
    "volcano.sh/gpu-index",
    "volcano.sh/queue-name",
    "volcano.sh/preemptable",
    "hami.io/vgpu-devices-allocated",
    "gpu-fraction",
    "gpu-memory",
    "gpu-fraction-num-devices",
    "nvidia.com/use-gpuuuid",
    "gang.scheduling.koordinator.sh/name",
    "gang.scheduling.koordinator.sh/min-available",
    "gang.scheduling.koordinator.sh/groups",
    "gang.scheduling.koordinator.sh/waiting-time",
    "gang.scheduling.koordinator.sh/total-number",
    "scheduling.k8s.io/group-name",
    "proreus.dev/min-members",
    "load-aware.scheduling.koordinator.sh/estimated-scaling-factors",
    "kai.scheduler/topology",
)
LABELS = (
    "scheduling.x-k8s.io/pod-group",
    "pod-group.scheduling.sigs.k8s.io/name",
    "pod-group.scheduling.sigs.k8s.io/min-available",
    "kai.scheduler/queue",
    "quota.scheduling.koordinator.sh/name",
    "appgroup.diktyo.x-k8s.io",
    "scheduling.koordinator.sh/reservation-order",
)
LINE = json.dumps({"gpu": [{"minor": 99, "id": {"a": {}}, "resources": {"x": []}}], "uid": []})
TEXTS = (
    LINE,
    "[" * 100_000,
    '{"a":' * 50_000,
    "9" * 5_000,
    "-1",
    "1e999",
    "NaN",
    "",
    "null",
    '"x"',
    ":;,;:-,[,",
    "\u0000\uffff",
    '{"gpu": [{"minor": 9223372036854775808}]}',
)


def odd_pods(**more: Any) -> list[Any]:
    """Return a pod for each text, which has it in all annotations and, cut, in all labels."""
    found = []
    for number, text in enumerate(TEXTS):
        cut = re.sub(r"[^A-Za-z0-9]", "x", text)[:63]
        metadata = {
            "annotations": dict.fromkeys(ANNOTATIONS, text),
            "labels": dict.fromkeys(LABELS, cut),
        }
        kind = "there" if more.get("node_name") else "waits"
        resources = {"nvidia.com/gpu": 1} if number % 2 else None
        name = f"{kind}-{number}"
        made = make_pod(name, namespace="odd", metadata=metadata, resources=resources, **more)
        found.append(made)
    return found


@pytest.mark.parametrize("name", sorted(add_ons()))
def test_a_pod_of_another_namespace_is_scheduled(name: str) -> None:
    examples = re.findall(r"```yaml\n(.*?)```", page_of(name), re.S)
    config = next(
        yaml.safe_load(one)
        for one in examples
        if name in one and "KubeSchedulerConfiguration" in one
    )
    profile = config["profiles"][0].get("schedulerName", "default-scheduler")
    plugins = json.dumps(config["profiles"][0]["plugins"])
    enabled = [add_on() for one, add_on in add_ons().items() if f'"{one}"' in plugins]
    labels = {"nvidia.com/gpu.memory": "16384"}
    nodes = [make_node(one, "64", resources={"nvidia.com/gpu": 40}, labels=labels) for one in "ab"]
    cluster = Harness(enabled, nodes, config=config)
    cluster.add(*odd_pods(node_name="a", scheduler_name=profile))
    cluster.add(*odd_pods(scheduler_name=profile))
    cluster.schedule_all()
    usual = make_pod("usual", "1", resources={"nvidia.com/gpu": 1}, scheduler_name=profile)
    outcome = cluster.schedule(usual)
    assert "rror" not in outcome.message
    if name not in ("LoadAwareScheduling", "Colocation"):
        assert outcome.node, outcome.message
    # Their owner goes on: what they say later, and their end.
    for pod in odd_pods(node_name="a", scheduler_name=profile):
        changed = {"annotations": dict.fromkeys(ANNOTATIONS, LINE)}
        cluster.patch("Pod", pod.name, {"metadata": changed}, "odd")
        cluster.remove("Pod", pod.name, "odd")
    assert "rror" not in cluster.schedule(make_pod("later", scheduler_name=profile)).message
