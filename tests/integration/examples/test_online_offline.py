"""The example of two profiles: services spread, gangs are placed as a whole and packed."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from proreus.addons.coscheduling import Coscheduling
from proreus.testing import Harness

HERE = Path(__file__).resolve().parents[3] / "examples" / "online-offline"


@pytest.fixture
def cluster() -> Harness:
    made = Harness([Coscheduling], config=HERE / "config.yaml")
    for obj in yaml.safe_load_all((HERE / "cluster.yaml").read_text()):
        if obj["kind"] == "Node":
            obj["status"]["allocatable"] = obj["status"]["capacity"]
        made.add(obj)
    made.schedule_all()
    return made


def nodes_of(cluster: Harness, name: str, count: int) -> list[str]:
    return [cluster.outcome(f"{name}-{number}").node for number in range(count)]


def test_the_pods_of_a_service_get_a_node_each(cluster) -> None:
    assert {*nodes_of(cluster, "web", 4)} == {"node-0", "node-1", "node-2", "node-3"}


def test_a_gang_fills_one_node(cluster) -> None:
    (node,) = {*nodes_of(cluster, "train", 3)}
    assert node


def test_a_gang_without_room_for_all_gets_no_node(cluster) -> None:
    assert nodes_of(cluster, "huge", 5) == [""] * 5
    assert "5 pods are needed together, " in cluster.outcome("huge-0").message
