"""A fault run is judged once its own controllers have nothing left to do (no control plane)."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from envtest import fake_storage
from envtest.kube_client import ApiFailure
from fault_run.judge import NODES, PODS, VOLUME_CLAIMS, VOLUMES, Judge
from fault_run.load import create_cluster
from fault_run.pod_kinds import LOCAL, POD_KINDS
from fault_run.pod_kinds import PODS as POD_PATH
from fault_run.run import FaultRun

Json = dict[str, Any]

NOTICED_SECONDS = 1.0
"""Several rounds of the controllers."""


class ApiserverInMemory:
    """Takes the writes of load and controllers, and tells the judge at once what they changed."""

    def __init__(self) -> None:
        self.judge: Judge | None = None
        self.claim_deleted = threading.Event()
        self._kinds = {
            POD_PATH: PODS,
            "/api/v1/nodes": NODES,
            fake_storage.CLAIMS: VOLUME_CLAIMS,
            fake_storage.VOLUMES: VOLUMES,
        }
        self._uids = itertools.count()
        self._lock = threading.Lock()

    def create(self, path: str, body: Json) -> Json:
        body["metadata"]["uid"] = f"uid-{next(self._uids)}"
        self._tell(path, "ADDED", body)
        return body

    def patch(self, path: str, body: Json) -> None:
        """Change nothing: finalizers and phases are of no importance here."""

    def delete(self, path: str, body: Json | None = None) -> None:
        collection, _, name = path.rpartition("/")
        assert self.judge is not None
        with self._lock:
            listed = self.judge.listed(self._kinds[collection])
            found = [one for one in listed.values() if one["metadata"]["name"] == name]
            if not found:
                raise ApiFailure(404, "DELETE", path, {})
            self._tell(collection, "DELETED", found[0])
        if collection == fake_storage.CLAIMS:
            self.claim_deleted.set()

    def _tell(self, collection: str, event: str, obj: Json) -> None:
        if self.judge is not None and collection in self._kinds:
            self.judge.observe(self._kinds[collection], event, obj, time.monotonic())


@pytest.fixture
def apiserver() -> ApiserverInMemory:
    return ApiserverInMemory()


@pytest.fixture
def run(apiserver: ApiserverInMemory, tmp_path: Path) -> FaultRun:
    """A run at its end: its pods with volumes are bound, as many as there may be."""
    plane: Any = SimpleNamespace(client=apiserver, binds_by_pod=dict)
    made = FaultRun(plane, None, tmp_path, kind="proreus", seed=1, seconds=0.0)  # type: ignore[arg-type]
    apiserver.judge = made._judge
    create_cluster(apiserver)  # type: ignore[arg-type]
    made._load.active = False
    for _ in range(POD_KINDS["volume"].at_most):
        made._load.create_one("volume")
    volumes = made._judge.listed(VOLUMES).values()
    claims = made._judge.listed(VOLUME_CLAIMS).values()
    for volume, claim, pod in zip(volumes, claims, made._judge.pods(), strict=False):
        reference = {key: claim["metadata"][key] for key in ("name", "uid")}
        volume["spec"]["claimRef"] = reference
        claim["spec"]["volumeName"] = volume["metadata"]["name"]
        [term] = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
        pod["spec"]["nodeName"] = term["matchExpressions"][0]["values"][0]
        pod["status"] = {}
        made._judge.observe(PODS, "MODIFIED", pod, 0.0)
    return made


def test_a_volume_that_is_about_to_be_replaced_is_no_violation(
    run: FaultRun, apiserver: ApiserverInMemory, tmp_path: Path
) -> None:
    def terminate() -> int:
        """End when the controllers are at work, if they are."""
        apiserver.claim_deleted.wait(NOTICED_SECONDS)
        return 0

    log = tmp_path / "scheduler.log"
    log.touch()
    process = SimpleNamespace(terminate=terminate, log=log)
    run._instances = {"a": SimpleNamespace(name="a", process=process, exits=Counter())}  # type: ignore[dict-item]
    assert not run._judge.final_violations()
    run._load.start()
    run._controllers.start()
    try:
        run._finish(SimpleNamespace(tick=lambda now, begin: None, done=Counter()))  # type: ignore[arg-type]
    finally:
        run._controllers.stop()
    assert run._figures.violations == []


def test_cleaned_up_is_what_ended_when_its_volume_is_replaced(
    run: FaultRun, apiserver: ApiserverInMemory
) -> None:
    controllers, judge = run._controllers, run._judge
    assert controllers.cleaned_up()
    pod, *_ = judge.pods()
    controllers.ended[pod["metadata"]["uid"]] = pod["metadata"]["name"]
    assert not controllers.cleaned_up(), "its deletion may have failed"
    controllers._end_terminating()
    assert pod not in judge.pods()
    assert not controllers.cleaned_up(), "its claim is still there"
    controllers._clean_up()
    assert apiserver.claim_deleted.is_set()
    assert not controllers.cleaned_up(), "its volume is still there"
    [violation] = judge.final_violations()
    assert "is kept for" in violation
    controllers._clean_up()
    assert controllers.cleaned_up()
    assert not judge.final_violations()
    free = [one for one in judge.listed(VOLUMES).values() if not one["spec"].get("claimRef")]
    assert all(one["spec"]["storageClassName"] == LOCAL for one in free)
