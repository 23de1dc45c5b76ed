"""How long a start waits for an apiserver that refuses its lists."""

import asyncio

import pytest

from proreus.base.errors import ApiError, Forbidden, Unauthorized
from proreus.objects.kinds import NODES, PODS
from proreus.process.informer_sync import REFUSED_LIMIT_SECONDS, RefusedWatches

pytestmark = pytest.mark.looptime

UNAUTHORIZED = Unauthorized(401, "Unauthorized", "HTTP 401")


async def still_waiting(watches, seconds):
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(watches.raise_when_final(), seconds)


async def test_a_refusal_that_lasts_ends_the_start_with_its_resource(caplog):
    watches = RefusedWatches(lambda: ["Pod", "Node"])
    watches.record(PODS, UNAUTHORIZED)
    watches.record(NODES, UNAUTHORIZED)
    await still_waiting(watches, REFUSED_LIMIT_SECONDS - 2)
    (record,) = caplog.records  # within a second, and once
    assert record.pairs["resources"] == ["pods", "nodes"]
    assert record.pairs["remedy"].startswith("check the credentials")
    watches.record(PODS, Forbidden(403, "Forbidden", "pods is forbidden"))
    with pytest.raises(Forbidden, match="refuses the watch of pods: pods is forbidden"):
        await asyncio.wait_for(watches.raise_when_final(), 4)


async def test_a_resource_that_has_been_listed_meanwhile_is_not_refused_any_more():
    unsynced = ["Pod"]
    watches = RefusedWatches(lambda: unsynced)
    watches.record(PODS, UNAUTHORIZED)
    unsynced.clear()
    await still_waiting(watches, 2 * REFUSED_LIMIT_SECONDS)


async def test_an_outage_is_waited_for_without_a_limit():
    watches = RefusedWatches(lambda: ["Pod"])
    watches.record(PODS, UNAUTHORIZED)
    watches.record(PODS, ApiError(503, "ServiceUnavailable", "no"))
    await still_waiting(watches, 2 * REFUSED_LIMIT_SECONDS)


async def test_missing_rights_name_the_file_that_has_them(caplog):
    watches = RefusedWatches(lambda: ["Pod", "Node"])
    forbidden = Forbidden(403, "Forbidden", "pods is forbidden")
    assert watches.record(PODS, forbidden)  # so that the reflector logs nothing
    with pytest.raises(Forbidden, match=r"deploy/second-scheduler/rbac\.yaml"):
        await asyncio.wait_for(watches.raise_when_final(), REFUSED_LIMIT_SECONDS + 2)
    (record,) = caplog.records
    assert "deploy/second-scheduler/rbac.yaml" in record.pairs["remedy"]
