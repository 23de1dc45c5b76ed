import json
from datetime import UTC, datetime
from typing import Any

from proreus.addons.capacity_scheduling.quotas import ElasticQuota, ElasticQuotaSpec
from proreus.addons.coscheduling.groups import Gang, GangSpec
from proreus.addons.reservation.objects import ReservationObject
from proreus.base.errors import ApiError, Conflict, NotFound
from proreus.controller.controller_metrics import ControllerMetrics
from proreus.controller.pod_group_status import PodGroupStatuses
from proreus.controller.quota_status import ElasticQuotaStatuses
from proreus.controller.reservation_status import ReservationStatuses
from proreus.controller.status_reconciler import WithStatus
from proreus.controller.status_writer import StatusWriter
from proreus.objects import ObjectMeta, Pod
from proreus.objects.codec import decoder_for

PATH = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/ns/podgroups/gang/status"


class Api:
    """An apiserver that keeps some fields of a status, or answers with an error."""

    def __init__(self, kept: set[str] | None = None) -> None:
        self.kept = kept
        self.error: ApiError | None = None
        self.requests: list[tuple[str, str, dict[str, Any]]] = []

    async def request(self, method: str, path: str, body: bytes, **_: Any) -> bytes:
        sent = json.loads(body)
        self.requests.append((method, path, sent))
        if self.error is not None:
            raise self.error
        status = sent.get("status", {})
        kept = {name: one for name, one in status.items() if not self.kept or name in self.kept}
        return json.dumps({"status": kept}).encode()


def writer_over(api: Api, now: float = 0.0) -> StatusWriter:
    return StatusWriter(api, [PodGroupStatuses()], ControllerMetrics(), lambda: now)  # type: ignore[arg-type]


def gang(status: dict[str, Any] | None = None, version: str = "7") -> WithStatus[Gang]:
    meta = ObjectMeta(name="gang", namespace="ns", uid="u", resource_version=version)
    return WithStatus(Gang(metadata=meta, spec=GangSpec(min_member=1)), status or {})


def member(phase: str) -> Pod:
    labels = {"scheduling.x-k8s.io/pod-group": "gang"}
    meta = {"name": "a", "namespace": "ns", "uid": "a", "labels": labels}
    return decoder_for(Pod).convert({"metadata": meta, "status": {"phase": phase}})


async def test_only_what_differs_is_written_and_against_the_version_that_was_seen() -> None:
    api = Api()
    writer = writer_over(api)
    writer.put(0, "ns/gang", gang({"running": 4}))
    assert await writer.write_due()
    version = {"uid": "u", "resourceVersion": "7"}
    assert api.requests == [
        ("PATCH", PATH, {"metadata": version, "status": {"phase": "Pending", "running": 0}})
    ]
    writer.put(0, "ns/gang", gang({"phase": "Pending", "running": 0}))
    assert await writer.write_due()
    assert len(api.requests) == 1


async def test_fields_that_the_definition_drops_are_not_written_again() -> None:
    api = Api(kept={"phase", "running"})
    writer = writer_over(api)
    writer.on_add(member("Running"))
    writer.put(0, "ns/gang", gang())
    await writer.write_due()
    assert "scheduleStartTime" in api.requests[0][2]["status"]
    writer.put(0, "ns/gang", gang({"phase": "Running", "running": 1}, "8"))
    await writer.write_due()
    assert len(api.requests) == 1


async def test_a_conflict_waits_for_its_event_and_an_error_is_tried_again() -> None:
    api = Api()
    writer = writer_over(api)
    writer.put(0, "ns/gang", gang())
    api.error = ApiError(0, "", "no answer")
    assert not await writer.write_due()
    api.error = Conflict(409, "Conflict", "somebody else has written")
    assert await writer.write_due()
    assert await writer.write_due()
    assert len(api.requests) == 2


async def test_an_object_that_is_gone_is_forgotten() -> None:
    api = Api()
    writer = writer_over(api)
    writer.put(0, "ns/gang", gang())
    api.error = NotFound(404, "NotFound", "gone")
    assert await writer.write_due()
    writer.on_update(member("Pending"), member("Running"))
    assert await writer.write_due()
    assert len(api.requests) == 1


async def test_a_group_that_never_starts_gets_one_event() -> None:
    api = Api()
    created = datetime(2026, 1, 1, tzinfo=UTC)
    writer = writer_over(api, created.timestamp() + 49 * 3600)
    meta = ObjectMeta(name="gang", namespace="ns", uid="u", creation_timestamp=created)
    writer.put(0, "ns/gang", WithStatus(Gang(metadata=meta), {"phase": "Pending"}))
    await writer.write_due()
    [(method, path, event)] = api.requests
    assert (method, path) == ("POST", "/api/v1/namespaces/ns/events")
    assert (event["reason"], event["metadata"]["name"]) == ("Timeout", "gang.u.timeout")


async def test_an_object_that_cannot_be_read_keeps_no_other_from_its_status() -> None:
    api = Api()
    writer = StatusWriter(api, [ElasticQuotaStatuses()], ControllerMetrics(), lambda: 0.0)  # type: ignore[arg-type]
    for name, least in (("odd", "a lot"), ("team", "1")):
        meta = ObjectMeta(name=name, namespace=name, uid=name, resource_version="1")
        quota = ElasticQuota(metadata=meta, spec=ElasticQuotaSpec(min={"cpu": least}))
        writer.put(0, f"{name}/{name}", WithStatus(quota, {}))
    assert await writer.write_due()
    assert [sent["metadata"]["uid"] for _, _, sent in api.requests] == ["team"]


async def test_a_reservation_with_an_odd_selector_keeps_no_other_from_its_status() -> None:
    api = Api()
    writer = StatusWriter(api, [ReservationStatuses()], ControllerMetrics(), lambda: 0.0)  # type: ignore[arg-type]
    status = {"phase": "Available", "nodeName": "n", "allocatable": {"cpu": "1"}}
    for name, operator in (("odd", "Near"), ("web", "Exists")):
        selector = {"matchExpressions": [{"key": "app", "operator": operator}]}
        meta = {"name": name, "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z"}
        obj = {"metadata": meta, "spec": {"owners": [{"labelSelector": selector}]}}
        found = decoder_for(ReservationObject).convert({**obj, "status": status})
        writer.put(0, name, WithStatus(found, {**status, "currentOwners": [{"uid": "gone"}]}))
    assert await writer.write_due()
    assert [sent["metadata"]["uid"] for _, _, sent in api.requests] == ["web"]


async def test_a_group_that_never_started_is_forgotten() -> None:
    api = Api()
    created = datetime(2026, 1, 1, tzinfo=UTC)
    writer = writer_over(api, created.timestamp() + 49 * 3600)
    for number in range(3):
        meta = ObjectMeta(name="gang", namespace="ns", uid=f"u{number}", creation_timestamp=created)
        writer.put(0, "ns/gang", WithStatus(Gang(metadata=meta), {"phase": "Pending"}))
        await writer.write_due()
        assert writer._given_up == {f"u{number}"}
        writer.remove(0, "ns/gang")
    assert not writer._given_up
