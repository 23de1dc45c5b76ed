"""What cluster autoscalers see of a gang that lacks room, from ``proreus run`` on a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest
import yaml

from proreus.workbench.sandbox import ListenOptions, Sandbox
from proreus.workbench.sandbox.cluster import make_node

PODS = "/api/v1/namespaces/default/pods"
MEMBERS = 5


def node(number: int) -> dict[str, Any]:
    """Return a node with room for one member."""
    return make_node(f"node-{number}", capacity={"cpu": "4"})


@pytest.fixture
async def sandbox():
    options = ListenOptions(tls=False)
    async with Sandbox(
        nodes=[node(number) for number in range(MEMBERS - 2)], listen=options
    ) as made:
        yield made


def configuration(kubeconfig: str) -> dict[str, Any]:
    plugins = {
        "queueSort": {"enabled": [{"name": "Coscheduling"}], "disabled": [{"name": "*"}]},
        "multiPoint": {"enabled": [{"name": "Coscheduling"}]},
    }
    args = [{"name": "Coscheduling", "args": {"mode": "plan"}}]
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": kubeconfig},
        "leaderElection": {"leaderElect": False},
        "profiles": [{"plugins": plugins, "pluginConfig": args}],
    }


def member(number: int) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "3"}}}
    return {
        "metadata": {
            "name": f"train-{number}",
            "labels": {"kueue.x-k8s.io/pod-group-name": "train"},
            "annotations": {"kueue.x-k8s.io/pod-group-total-count": str(MEMBERS)},
        },
        "spec": {"containers": [container]},
    }


async def pods(http: aiohttp.ClientSession) -> list[dict[str, Any]]:
    async with http.get(PODS) as answer:
        listed: list[dict[str, Any]] = (await answer.json())["items"]
        return listed


async def becomes_true(
    http: aiohttp.ClientSession, condition: Callable[[list[dict[str, Any]]], bool]
) -> None:
    for _ in range(600):
        if condition(await pods(http)):
            return
        await asyncio.sleep(0.05)
    raise AssertionError(await pods(http))


def scheduled(pod: dict[str, Any]) -> tuple[str, str]:
    conditions = pod["status"].get("conditions", ())
    found = next((one for one in conditions if one["type"] == "PodScheduled"), {})
    return found.get("status", ""), found.get("reason", "")


async def test_every_pod_of_a_gang_that_lacks_room_is_unschedulable(
    sandbox, kubeconfig, start, tmp_path
):
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump(configuration(kubeconfig)))
    await start(f"--config={config}", "--secure-port=0")
    headers = {"Authorization": f"Bearer {sandbox.token}"}
    async with aiohttp.ClientSession(sandbox.url, headers=headers) as http:
        for number in range(MEMBERS):
            await http.post(PODS, json=member(number))
        waiting = {("False", "Unschedulable")}
        await becomes_true(http, lambda listed: {scheduled(one) for one in listed} == waiting)
        listed = await pods(http)
        assert len(listed) == MEMBERS
        assert not any(one["spec"].get("nodeName") for one in listed)
        # What an autoscaler does about it.
        for number in range(MEMBERS - 2, MEMBERS):
            await http.post("/api/v1/nodes", json=node(number))
        await becomes_true(http, lambda listed: all(one["spec"].get("nodeName") for one in listed))
