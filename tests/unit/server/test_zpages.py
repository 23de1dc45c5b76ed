import json

import pytest
import yaml

from proreus.base.clock import FakeClock
from proreus.server.zpages import ZPages

STRUCTURED = "application/{};v={};g=config.k8s.io;as={}"
START = 1795228371.0  # Sat Nov 21 02:32:51 UTC 2026


@pytest.fixture
def clock():
    return FakeClock(START)


@pytest.fixture
def pages(clock):
    return ZPages(
        "kube-scheduler",
        {"v": "2", "config": "/etc/c.yaml"},
        "1.36",
        "1.35",
        ("/healthz", "/metrics"),
        clock=clock,
        delimiter=": ",
    )


def test_statusz_as_text(pages, clock):
    clock.advance(3661)
    lines = pages.statusz("").text.splitlines()
    assert lines[:2] == ["", "kube-scheduler statusz"]
    assert lines[2].startswith("Warning: This endpoint is not meant to be machine parseable")
    assert lines[3:6] == ["", "Started: Sat Nov 21 02:32:51 UTC 2026", "Up: 1 hr 01 min 01 sec"]
    assert lines[7:] == [
        "Binary version: 1.36",
        "Emulation version: 1.35",
        "Paths: /healthz /metrics",
    ]


def test_flagz_as_text_is_sorted(pages):
    lines = pages.flagz("text/html, */*;q=0.8").text.splitlines()
    assert lines[1] == "kube-scheduler flagz"
    assert lines[3:] == ["config: /etc/c.yaml", "v: 2"]


def test_statusz_in_its_exact_version(pages, clock):
    clock.advance(5)
    answer = pages.statusz(STRUCTURED.format("json", "v1beta1", "Statusz"))
    content = json.loads(answer.body)
    assert content.pop("goVersion").startswith("CPython")
    assert content == {
        "kind": "Statusz",
        "apiVersion": "config.k8s.io/v1beta1",
        "metadata": {"name": "kube-scheduler"},
        "startTime": "2026-11-21T02:32:51Z",
        "uptimeSeconds": 5,
        "binaryVersion": "1.36",
        "emulationVersion": "1.35",
        "paths": ["/healthz", "/metrics"],
    }
    assert "Warning" not in answer.headers


def test_flagz_as_yaml_in_the_old_version_warns(pages):
    answer = pages.flagz(STRUCTURED.format("yaml", "v1alpha1", "Flagz"))
    assert yaml.safe_load(answer.text)["flags"] == {"config": "/etc/c.yaml", "v": "2"}
    assert "deprecated" in answer.headers["Warning"]


@pytest.mark.parametrize(
    "accept", ["application/json", STRUCTURED.format("json", "v1", "Flagz"), "image/png"]
)
def test_anything_else_is_not_acceptable(pages, accept):
    answer = pages.flagz(accept)
    assert answer.status == 406
    assert json.loads(answer.body)["message"] == (
        "only the following media types are accepted: "
        "application/json, application/yaml, text/plain"
    )
