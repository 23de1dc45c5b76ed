import asyncio
import io
import json
from typing import Any

import aiohttp
import pytest

from proreus.workbench.sandbox import Sandbox, make_node

PODS = "/api/v1/namespaces/default/pods"


def make_pod(name: str, **spec: Any) -> dict[str, Any]:
    spec = {"containers": [{"name": "c", "image": "i"}], **spec}
    return {"metadata": {"name": name}, "spec": spec}


class Watcher:
    """Reads the events of one watch, which closes when the block is left."""

    def __init__(self, http: aiohttp.ClientSession, path: str, **query: str) -> None:
        self._request = http.get(path, params={"watch": "true", **query})

    async def __aenter__(self) -> "Watcher":
        self._response = await self._request.__aenter__()
        assert self._response.status == 200, await self._response.text()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._response.close()

    async def next(self) -> tuple[str, dict[str, Any]]:
        line = await asyncio.wait_for(self._response.content.readline(), 5)
        assert line, "the watch ended"
        event = json.loads(line)
        return event["type"], event["object"]

    async def rest(self) -> list[tuple[str, dict[str, Any]]]:
        """Return all events until the server ends the watch."""
        lines = (await asyncio.wait_for(self._response.content.read(), 5)).splitlines()
        return [(event["type"], event["object"]) for event in map(json.loads, lines)]

    async def ended(self) -> bool:
        return await asyncio.wait_for(self._response.content.readline(), 5) == b""


async def test_requests_without_the_token_are_rejected(sandbox: Sandbox) -> None:
    async with aiohttp.ClientSession(sandbox.url) as stranger:
        async with stranger.get("/api/v1/nodes") as answer:
            assert answer.status == 401
            assert (await answer.json())["reason"] == "Unauthorized"
        async with stranger.get("/readyz") as answer:
            assert (answer.status, await answer.text()) == (200, "ok")


async def test_a_pod_is_created_bound_and_watched(
    sandbox: Sandbox, http: aiohttp.ClientSession
) -> None:
    sandbox.store.create("nodes", make_node("n1", zone="a"))
    async with Watcher(http, "/api/v1/pods", resourceVersion=str(sandbox.store.revision)) as watch:
        async with http.post(PODS, json=make_pod("p")) as answer:
            assert answer.status == 201
            uid = (await answer.json())["metadata"]["uid"]
        type_, pod = await watch.next()
        assert (type_, pod["metadata"]["uid"]) == ("ADDED", uid)
        binding = {"metadata": {"name": "p", "uid": uid}, "target": {"kind": "Node", "name": "n1"}}
        async with http.post(f"{PODS}/p/binding", json=binding) as answer:
            assert answer.status == 201
            assert (await answer.json())["status"] == "Success"
        type_, pod = await watch.next()
        assert (type_, pod["spec"]["nodeName"]) == ("MODIFIED", "n1")
        async with http.post(f"{PODS}/p/binding", json=binding) as answer:
            assert answer.status == 409
            assert (await answer.json())["message"] == (
                'Operation cannot be fulfilled on pods/binding "p": pod p is already assigned to '
                'node "n1"'
            )


async def test_an_object_that_ceases_to_match_is_a_deletion_to_its_watcher(
    sandbox: Sandbox, http: aiohttp.ClientSession
) -> None:
    sandbox.store.create("pods", make_pod("p", nodeName="n1"))
    running = "status.phase!=Succeeded,status.phase!=Failed"
    async with Watcher(http, "/api/v1/pods", fieldSelector=running) as watch:
        assert (await watch.next())[0] == "ADDED"
        done = {"status": {"phase": "Succeeded"}}
        async with http.patch(
            f"{PODS}/p/status",
            data=json.dumps(done),
            headers={"Content-Type": "application/strategic-merge-patch+json"},
        ) as answer:
            assert answer.status == 200
            revision = (await answer.json())["metadata"]["resourceVersion"]
        type_, pod = await watch.next()
        assert (type_, pod["status"]["phase"]) == ("DELETED", "Pending")
        assert pod["metadata"]["resourceVersion"] == revision


async def test_watch_list_ends_its_initial_events_with_a_bookmark(
    sandbox: Sandbox, http: aiohttp.ClientSession
) -> None:
    sandbox.store.create("nodes", make_node("n1"))
    query = {
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "allowWatchBookmarks": "true",
    }
    async with Watcher(http, "/api/v1/nodes", **query) as watch:
        assert (await watch.next())[0] == "ADDED"
        type_, obj = await watch.next()
        assert type_ == "BOOKMARK"
        assert obj["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        sandbox.store.create("nodes", make_node("n2"))
        type_, obj = await watch.next()
        assert (type_, obj["metadata"]["name"]) == ("ADDED", "n2")


async def test_a_watch_sends_bookmarks_and_ends_at_its_timeout(
    sandbox: Sandbox, http: aiohttp.ClientSession
) -> None:
    query = {"resourceVersion": str(sandbox.store.revision), "allowWatchBookmarks": "true"}
    async with Watcher(http, "/api/v1/pods", timeoutSeconds="1", **query) as watch:
        sandbox.store.create("nodes", make_node("n1"))
        bookmarks = await watch.rest()
        assert len(bookmarks) >= 2
        for type_, obj in bookmarks:
            assert type_ == "BOOKMARK"
            assert obj["metadata"]["resourceVersion"] == str(sandbox.store.revision)


async def test_compaction_is_reported_to_new_and_slow_watches(
    sandbox: Sandbox, http: aiohttp.ClientSession
) -> None:
    old = str(sandbox.store.revision)
    sandbox.store.create("nodes", make_node("n1"))
    sandbox.compact()
    async with Watcher(http, "/api/v1/nodes", resourceVersion=old) as watch:
        type_, status = await watch.next()
        assert (type_, status["code"], status["reason"]) == ("ERROR", 410, "Expired")
        assert await watch.ended()
    query = {"resourceVersion": str(sandbox.store.revision)}
    async with Watcher(http, "/api/v1/nodes", **query) as watch:
        sandbox.store.create("nodes", make_node("n2"))
        sandbox.compact()
        type_, status = await watch.next()
        assert (type_, status["code"]) == ("ERROR", 410)
        assert await watch.ended()


async def test_pages_show_one_consistent_snapshot(
    sandbox: Sandbox, http: aiohttp.ClientSession
) -> None:
    for number in range(5):
        sandbox.store.create("nodes", make_node(f"n{number}"))
    names, token, revisions = [], "", set()
    while True:
        async with http.get("/api/v1/nodes", params={"limit": "2", "continue": token}) as answer:
            page = await answer.json()
        names += [node["metadata"]["name"] for node in page["items"]]
        revisions.add(page["metadata"]["resourceVersion"])
        token = page["metadata"].get("continue", "")
        if not token:
            break
        if len(names) == 2:
            sandbox.store.create("nodes", make_node("n0a"))
            sandbox.store.delete("nodes", "n4")
    assert names == ["n0", "n1", "n2", "n3", "n4"]
    assert len(revisions) == 1
    async with http.get("/api/v1/nodes", params={"limit": "2"}) as answer:
        token = (await answer.json())["metadata"]["continue"]
    sandbox.compact()
    async with http.get("/api/v1/nodes", params={"limit": "2", "continue": token}) as answer:
        assert answer.status == 410


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", "/api/v1/pods/p", 404),
        ("GET", "/api/v1/nothings", 404),
        ("GET", "/apis/none.example.com/v1/things", 404),
        ("GET", "/api/v1/namespaces/default/pods/none", 404),
        ("POST", "/api/v1/pods", 405),
        ("PUT", PODS, 405),
        ("GET", "/api/v1/pods?fieldSelector=spec.colour=red", 400),
        ("GET", "/api/v1/pods?labelSelector=a+in+b", 400),
        ("GET", "/api/v1/pods?resourceVersion=99999999", 504),
        ("POST", "/api/v1/namespaces/none/pods", 404),
    ],
)
async def test_errors_are_status_bodies(
    http: aiohttp.ClientSession, method: str, path: str, code: int
) -> None:
    async with http.request(method, path, json=make_pod("p")) as answer:
        body = await answer.json()
        assert (answer.status, body["code"], body["kind"]) == (code, code, "Status")


@pytest.mark.parametrize(("megabytes", "code"), [(2, 201), (4, 413)])
async def test_bodies_may_be_large_but_not_huge(
    http: aiohttp.ClientSession, megabytes: int, code: int
) -> None:
    big = {"metadata": {"name": "big"}, "data": {"x": "y" * (megabytes << 20)}}
    body = io.BytesIO(json.dumps(big).encode())
    async with http.post("/api/v1/namespaces/default/configmaps", data=body) as answer:
        assert answer.status == code
        assert (await answer.json())["kind"] == ("ConfigMap" if code == 201 else "Status")


async def test_a_closed_watch_removes_its_listener(
    sandbox: Sandbox, http: aiohttp.ClientSession
) -> None:
    listeners = sandbox.store.collection("pods").listeners
    async with Watcher(http, "/api/v1/pods"):
        assert len(listeners) == 1
    async with asyncio.timeout(60):
        while listeners:  # noqa: ASYNC110 - waits for a few turns of the loop only
            await asyncio.sleep(0)
