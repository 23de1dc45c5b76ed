"""One HTTP extender for both schedulers: the same questions, word for word, and the same outcomes.

Each scheduler has pods of its own and a path of its own at the extender. What differs by nature
(names, UIDs, versions, times) is taken out of the bodies; the order of fields stays.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from envtest import assertions, objects
from envtest.control_plane import ControlPlane
from envtest.kube_client import KubeClient
from envtest.schedulers import RunScheduler, configuration, profile
from envtest.waiting import eventually

from proreus.workbench.bench.processes import free_ports

Json = dict[str, Any]

OURS, UPSTREAM = "ours", "upstream"
PODS = objects.PODS.format("default")
NODES = ("node-00000", "node-00001", "node-00002")
IDLE = "node-00003"

WHOLE, NAMES, DEAD, SLOW = "whole", "names", "dead", "slow"
"""Extenders by the resource that they manage; the first gets node objects, the others names."""

FAILED = dict.fromkeys(NODES[:2], "is full, it says")

PLAYS: dict[str, tuple[str, Json]] = {
    "whole-all": (WHOLE, {}),
    "whole-one": (WHOLE, {"filter": {"NodeNames": None, "Nodes": [NODES[1]]}}),
    "whole-none": (WHOLE, {"filter": {"Nodes": [], "FailedNodes": FAILED}}),
    "whole-names-only": (WHOLE, {"filter": {"NodeNames": list(NODES)}}),
    "whole-error": (WHOLE, {"filter": {"Error": "it is the wrong day"}}),
    "whole-broken": (WHOLE, {"filter": 500}),
    "whole-preempts": (WHOLE, {}),
    "names-all": (NAMES, {}),
    "names-one": (NAMES, {"filter": {"NodeNames": [NODES[2]]}}),
    "names-none": (
        NAMES,
        {"filter": {"NodeNames": [], "FailedAndUnresolvableNodes": FAILED, "FailedNodes": FAILED}},
    ),
    "names-unknown": (NAMES, {"filter": {"NodeNames": ["node-9"]}}),
    "names-lower-case": (NAMES, {"filter": {"nodenames": [NODES[0]], "failednodes": FAILED}}),
    "names-preempts": (NAMES, {}),
    "names-preempts-nobody": (NAMES, {"preempt": {"NodeNameToMetaVictims": {NODES[0]: {}}}}),
    "names-preempts-strangers": (
        NAMES,
        {"preempt": {"NodeNameToMetaVictims": {NODES[0]: {"Pods": [{"UID": "stranger"}]}}}},
    ),
    "names-not-bound": (NAMES, {"bind": {"Error": "the door is shut"}}),
    # A busy node and a small idle one: nodes that an extender returns as objects count as empty.
    "whole-busy": (WHOLE, {"prioritize": []}),
    "names-busy": (NAMES, {"prioritize": []}),
    "dead": (DEAD, {}),
    "slow": (SLOW, {}),
}


class Extender(ThreadingHTTPServer):
    """Responds as defined by ``PLAYS``; records request bodies by scheduler, play and verb."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answering)
        self.asked: dict[tuple[str, str], list[tuple[str, bytes]]] = defaultdict(list)
        self.kube: KubeClient | None = None

    def answer(self, path: str, body: bytes) -> tuple[int, Any]:
        _, scheduler, kind, verb = path.split("/")
        question = json.loads(body)
        name = question["PodName"] if verb == "bind" else question["Pod"]["metadata"]["name"]
        play = name.partition(".")[2]
        self.asked[scheduler, play].append((verb, body))
        if kind == SLOW:
            time.sleep(3)
        scripted = PLAYS[play][1].get(verb)
        if isinstance(scripted, int):
            return scripted, {}
        if verb == "filter":
            return 200, self._filter(question, scripted)
        if verb == "prioritize" and scripted is None:
            return 200, [{"Host": NODES[1], "Score": 10}, {"Host": "nobody", "Score": 10}]
        if verb == "bind" and scripted is None:
            target = {"target": {"kind": "Node", "name": question["Node"]}}
            assert self.kube is not None
            self.kube.create(f"{PODS}/{name}/binding", {"metadata": {"name": name}, **target})
        return 200, {} if scripted is None else scripted

    @staticmethod
    def _filter(question: Json, scripted: Json | None) -> Json:
        if scripted is None:
            return {"Nodes": question["Nodes"], "NodeNames": question["NodeNames"]}
        if scripted.get("Nodes") is None or not question["Nodes"]:
            return scripted
        wanted = scripted["Nodes"]
        items = [n for n in question["Nodes"]["items"] if n["metadata"]["name"] in wanted]
        return scripted | {"Nodes": {"metadata": {}, "items": items}}


class _Answering(BaseHTTPRequestHandler):
    server: Extender
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        status, answer = self.server.answer(self.path, body)
        data = json.dumps(answer).encode()
        try:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
        except OSError:
            self.close_connection = True  # the scheduler's request has timed out

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def extender() -> Iterator[Extender]:
    server = Extender()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


def configurations(scheduler: str, port: int, dead: int) -> list[Json]:
    def one(kind: str, *verbs: str, at: int = port, **more: Any) -> Json:
        managed = [{"name": f"example.com/{kind}", "ignoredByScheduler": True}]
        config = {
            "urlPrefix": f"http://127.0.0.1:{at}/{scheduler}/{kind}",
            "managedResources": managed,
            "httpTimeout": "1s",
            "nodeCacheCapable": kind != WHOLE,
        }
        return config | {f"{verb}Verb": verb for verb in verbs} | more

    return [
        one(DEAD, "filter", at=dead),
        one(SLOW, "filter"),
        one(WHOLE, "filter", "prioritize", "preempt", weight=5),
        one(NAMES, "filter", "prioritize", "preempt", "bind", weight=5),
    ]


@pytest.fixture(scope="module")
def recorded_states(
    control_plane: ControlPlane, run_module_scheduler: RunScheduler, extender: Extender
) -> dict[tuple[str, str], Json]:
    """Run all plays with both schedulers, one pod after the other."""
    client = control_plane.client
    extender.kube = client
    [dead] = free_ports(1)
    group = "/apis/scheduling.k8s.io/v1/priorityclasses"
    client.create(group, {"metadata": {"name": "high"}, "value": 1000})
    for index in range(3):
        client.create(objects.NODES, objects.node(index))
        victim = objects.pod(f"victim-{index}", "nobody", cpu="20")
        victim["spec"]["nodeName"] = NODES[index]
        client.create(PODS, victim)
    client.create(objects.NODES, objects.node(3, cpu="16"))
    for scheduler, kind in ((OURS, None), (UPSTREAM, "kube-scheduler")):
        config = configuration([profile(scheduler)], control_plane.kubeconfig)
        config["extenders"] = configurations(scheduler, extender.server_port, dead)
        run_module_scheduler(config, kind=kind)  # type: ignore[arg-type]
    return {
        (scheduler, play): perform(client, scheduler, play)
        for play in PLAYS
        for scheduler in (OURS, UPSTREAM)
    }


def perform(client: KubeClient, scheduler: str, play: str) -> Json:
    """Create the pod of a play; return the result."""
    name = f"{scheduler}.{play}"
    preempts = "preempts" in play
    busy = play.endswith("-busy")
    pod = objects.pod(name, scheduler, cpu="20" if preempts else "4" if busy else "100m")
    pod["spec"]["affinity"] = _on((NODES[0], IDLE) if busy else NODES)
    if preempts:
        pod["spec"]["priorityClassName"] = "high"
    amounts = {f"example.com/{PLAYS[play][0]}": "1"}
    resources = pod["spec"]["containers"][0]["resources"]
    resources["requests"] |= amounts
    resources["limits"] = amounts
    # Fields that no scheduler reads must be part of the object that an extender gets.
    pod["spec"]["containers"][0]["env"] = [{"name": "A", "value": "<&>"}]
    pod["spec"]["dnsConfig"] = {"nameservers": ["10.0.0.10"]}
    client.create(PODS, pod)

    def done() -> Json:
        found = client.get(f"{PODS}/{name}")
        message = assertions.condition(found).get("message")
        return found if assertions.node_of(found) or message else {}

    found = eventually(20, f"a decision about {name}", done)
    condition = assertions.condition(found)
    client.delete(f"{PODS}/{name}", gracePeriodSeconds="0")
    return {
        "node": assertions.node_of(found),
        "nominated": found["status"].get("nominatedNodeName"),
        "reason": condition.get("reason"),
        "message": (condition.get("message") or "").replace(scheduler, "SCHEDULER"),
    }


def _on(nodes: tuple[str, ...]) -> Json:
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": list(nodes)}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [here]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def test_nodes_returned_as_objects_count_as_empty(
    recorded_states: dict[tuple[str, str], Json],
) -> None:
    for scheduler in (OURS, UPSTREAM):
        assert recorded_states[scheduler, "whole-busy"]["node"] == NODES[0]
        assert recorded_states[scheduler, "names-busy"]["node"] == IDLE


@pytest.mark.parametrize("play", PLAYS)
def test_the_same_outcome(recorded_states: dict[tuple[str, str], Json], play: str) -> None:
    ours, theirs = recorded_states[OURS, play], recorded_states[UPSTREAM, play]
    assert ours == theirs
    assert ours["node"] or ours["message"]


@pytest.mark.parametrize("play", [play for play in PLAYS if play != "dead"])
def test_the_same_requests(
    recorded_states: dict[tuple[str, str], Json], extender: Extender, play: str
) -> None:
    # Failed pods are tried again, but only the first attempts are comparable.
    ours, theirs = (first_attempt(extender.asked[s, play], s) for s in (OURS, UPSTREAM))
    assert ours
    assert ours == theirs


def first_attempt(asked: list[tuple[str, bytes]], scheduler: str) -> dict[str, Any]:
    """Return the first request body of each verb, without what always differs."""
    bodies: dict[str, Any] = {}
    for verb, body in asked:
        bodies.setdefault(verb, _normal(body.decode(), scheduler))
    return bodies


def _normal(text: str, scheduler: str) -> Any:
    text = text.replace(scheduler, "SCHEDULER")
    text = re.sub(r'"(uid|PodUID|UID|resourceVersion)":"[^"]+"', r'"\1":"…"', text)
    text = re.sub(r'"(creationTimestamp|lastTransitionTime|time)":"[^"]+"', r'"\1":"…"', text)
    return _with_sorted_nodes(json.loads(text, object_pairs_hook=list))


def _with_sorted_nodes(fields: list[Any]) -> list[Any]:
    """Sort nodes: they are in the order in which they were found, which varies."""
    found = []
    for key, value in fields:
        if key == "NodeNames" and value:
            value = sorted(value)
        elif key == "Nodes" and value:
            value = [(k, sorted(v, key=str) if k == "items" else v) for k, v in value]
        found.append((key, value))
    return found
