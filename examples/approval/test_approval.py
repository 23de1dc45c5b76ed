from __future__ import annotations

import pytest

from proreus.framework import ApiError, PodInfo
from proreus.testing import Harness, make_pod

ANSWER, NODE = "example.com/approval", "example.com/proposed-node"


def asking(name: str = "p", **annotations: str) -> PodInfo:
    labels = {"example.com/needs-approval": ""}
    return make_pod(name, cpu="3", labels=labels, metadata={"annotations": annotations})


def answer(cluster: Harness, text: str) -> None:
    cluster.patch("Pod", "p", {"metadata": {"annotations": {ANSWER: text}}})


@pytest.fixture
def cluster(plugin, config) -> Harness:
    return Harness([plugin], ["n"], config=config)


def test_the_controller_reads_the_node_and_grants_it(cluster) -> None:
    assert cluster.schedule(asking()).state == "waiting"
    cluster.wait_until(lambda: cluster.pod("p").metadata.annotations.get(NODE) == "n")
    answer(cluster, "granted")
    cluster.wait_until(lambda: cluster.outcome("p").bound)


def test_a_denied_pod_gives_its_node_back_and_waits_for_another_answer(cluster) -> None:
    cluster.schedule(asking())
    answer(cluster, "denied")
    cluster.wait_until(lambda: cluster.outcome("p").state == "unschedulable")
    assert "the controller denied it" in cluster.outcome("p").message
    assert cluster.schedule(make_pod("other", cpu="3")).bound

    cluster.remove("Pod", "other")
    answer(cluster, "granted")
    cluster.advance(2)
    assert cluster.schedule("p").bound


def test_without_an_answer_a_pod_gives_its_node_back(cluster) -> None:
    cluster.schedule(asking())
    cluster.advance(301)
    assert cluster.outcome("p").state != "waiting"
    assert cluster.schedule(make_pod("other", cpu="3")).bound


def test_a_pod_with_an_answer_does_not_wait(cluster) -> None:
    assert cluster.schedule(make_pod("plain")).bound
    assert cluster.schedule(asking("granted", **{ANSWER: "granted"})).bound
    assert cluster.schedule(asking("denied", **{ANSWER: "denied"})).state == "unschedulable"


def test_a_question_that_cannot_be_written_rejects_the_pod(cluster, monkeypatch) -> None:
    async def fail(*_: object) -> None:
        raise ApiError(403, "Forbidden", "no right to patch pods")

    monkeypatch.setattr(cluster.api, "patch", fail)
    cluster.schedule(asking())
    cluster.wait_until(lambda: cluster.outcome("p").state == "unschedulable")
    assert "no right to patch pods" in cluster.outcome("p").message
