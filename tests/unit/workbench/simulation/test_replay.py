"""Recordings of a live scheduler, and their replays in virtual time."""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from pathlib import Path
from typing import Any

import pytest
from clusters import node, pod, settings

from proreus.base.clock import FakeClock
from proreus.base.errors import ConfigError
from proreus.base.kubernetes_version import V1_37
from proreus.insight.snapshots.recording import ArrivalRecorder, read_recording
from proreus.objects.kinds import NODES, PODS
from proreus.objects.storage import PERSISTENT_VOLUME_CLAIMS
from proreus.offline.api import InMemoryApi
from proreus.offline.cluster import OfflineCluster
from proreus.offline.virtual_time import VirtualTimeLoop
from proreus.workbench.simulation.replay import Recording, ReplayResult, replay

HEADER = {"recording": 1, "kubernetesVersion": "1.37"}


def write(path: Path, *lines: Any) -> Path:
    text = "".join(json.dumps(line) + "\n" for line in (HEADER, *lines))
    path.write_bytes(gzip.compress(text.encode()))
    return path


def added(t: float, obj: dict[str, Any]) -> dict[str, Any]:
    return {"t": t, "type": "ADDED", "object": obj}


def deleted(t: float, name: str, ended: bool = False) -> dict[str, Any]:
    return {"t": t, "type": "DELETED", "kind": "Pod", "key": f"shop/{name}", "ended": ended}


def bound(t: float, name: str, to: str) -> dict[str, Any]:
    return {"t": t, "type": "BOUND", "kind": "Pod", "key": f"shop/{name}", "node": to}


def replayed(path: Path, **options: Any) -> ReplayResult:
    return replay(Recording(path), settings(**options))[0]


def placed(result: ReplayResult) -> dict[str, str]:
    return {one.pod.removeprefix("shop/"): one.node for one in result.result.placed}


# ---- replays -----------------------------------------------------------------------------------


def test_pods_arrive_and_leave_at_their_times(tmp_path: Path) -> None:
    path = write(
        tmp_path / "r",
        added(0, node("n0", cpu="1")),
        added(10, pod("a")),
        bound(10.5, "a", "n0"),
        added(20, pod("b")),
        deleted(50, "a"),
        bound(50.5, "b", "n0"),
    )
    result = replayed(path)
    assert (result.arrivals, result.scheduled, result.departures) == (2, 2, 1)
    assert placed(result) == {"b": "n0"}
    assert result.same_node == 2
    # "a" waited for nothing here; "b" for the departure of "a", and for no more than a back-off.
    assert result.replayed.pods == 2
    assert 30 <= result.replayed.most < 41
    assert (result.recorded.p50, result.recorded.most) == (15.5, 30.5)


def test_pods_that_ended_by_themselves_run_as_long_as_recorded(tmp_path: Path) -> None:
    path = write(
        tmp_path / "r",
        added(0, node("n0", cpu="1")),
        added(1, pod("a")),
        bound(1, "a", "n0"),
        # In the recording there was another node that is not in this cluster.
        added(2, pod("b")),
        bound(2, "b", "n9"),
        deleted(32, "b", ended=True),
        deleted(61, "a", ended=True),
        added(200, pod("c")),
    )
    result = replayed(path)
    # "a" from 1 to 61, then "b" for its 30 seconds, so that there is room for "c".
    assert (result.scheduled, result.departures) == (3, 2)
    assert placed(result) == {"c": "n0"}
    assert 59 <= result.replayed.most < 70
    assert result.same_node == 1


def test_names_that_come_again_are_other_pods(tmp_path: Path) -> None:
    first, second = pod("web-0"), pod("web-0")
    second["metadata"]["uid"] = "another"
    path = write(
        tmp_path / "r",
        added(0, node("n0")),
        added(1, first),
        deleted(5, "web-0"),
        added(6, second),
    )
    result = replayed(path)
    assert (result.arrivals, result.scheduled, result.departures) == (2, 2, 1)


def test_nodes_come_and_go_and_change(tmp_path: Path) -> None:
    cordoned = node("n1", unschedulable=True)
    path = write(
        tmp_path / "r",
        added(0, node("n0", cpu="1")),
        added(1, pod("large", "3")),
        added(30, node("n1")),
        {"t": 60, "type": "MODIFIED", "object": cordoned},
        added(61, pod("late", "1")),
        {"t": 70, "type": "DELETED", "kind": "Node", "key": "n0"},
        added(71, pod("last", "1")),
    )
    result = replayed(path)
    assert placed(result) == {"large": "n1", "late": "n0"}
    assert [one.pod for one in result.result.unplaced] == ["shop/last"]
    assert result.result.after.nodes == 1


def test_a_changed_pod_keeps_the_node_that_it_has_here(tmp_path: Path) -> None:
    changed = pod("web", on="n1")
    changed["metadata"]["labels"] = {"app": "other"}
    path = write(
        tmp_path / "r",
        added(0, node("n0")),
        added(1, pod("web")),
        {"t": 5, "type": "MODIFIED", "object": changed},
    )
    assert placed(replayed(path)) == {"web": "n0"}


def test_gates_are_opened_by_the_recording(tmp_path: Path) -> None:
    path = write(
        tmp_path / "r",
        added(0, node("n0")),
        added(1, pod("web", schedulingGates=[{"name": "g"}])),
        {"t": 40, "type": "MODIFIED", "object": pod("web")},
    )
    result = replayed(path)
    assert placed(result) == {"web": "n0"}
    assert 39 <= result.replayed.most < 40


def test_victims_are_not_created_anew(tmp_path: Path) -> None:
    path = write(
        tmp_path / "r",
        added(0, node("n0")),
        added(0, pod("low", "4", on="n0", of="Job/low")),
        added(10, pod("high", "4", priority=5)),
    )
    result = replayed(path)
    assert [one.pod for one in result.result.victims] == ["shop/low"]
    assert placed(result) == {"high": "n0"}


def test_samples_show_the_cluster_over_time(tmp_path: Path) -> None:
    path = write(
        tmp_path / "r",
        added(0, node("n0")),
        added(100, pod("a", "2")),
        added(100, pod("b", "4")),
        deleted(300, "a"),
        added(400, pod("c", "1")),
    )
    samples = replayed(path).samples
    at = {round(one.seconds): one for one in samples}
    assert at[50].shares.get("cpu", 0) == 0
    assert [at[second].empty_nodes for second in (50, 200)] == [1, 0]
    assert (at[200].shares["cpu"], at[200].waiting) == (0.5, 1)
    assert at[350].shares["cpu"] == 1.0


def test_a_second_replay_is_the_same(tmp_path: Path) -> None:
    pods = [added(n, pod(f"p-{n}", f"{n % 7 + 1}00m")) for n in range(60)]
    path = write(tmp_path / "r", *(added(0, node(f"n{n}")) for n in range(4)), *pods)
    assert replayed(path) == replayed(path)
    assert replayed(path, seed=1) != replayed(path)


# ---- recordings --------------------------------------------------------------------------------


def record(path: Path, seconds: int = 3600) -> dict[str, str]:
    """Let a scheduler work for a while and record it; return the nodes of all its pods."""

    async def work() -> dict[str, str]:
        made = settings()
        cluster = OfflineCluster(made.configuration, made.registry, made.feature_gates)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        loop.use_clock(cluster.clock)
        for number in range(3):
            cluster.api.add(node(f"n{number}", cpu="2"))
        recorder = ArrivalRecorder(path, cluster.clock)
        recorder.begin(cluster.api, [NODES, PODS], V1_37)
        nodes: dict[str, str] = {}
        for number in range(12):
            cluster.api.add(pod(f"job-{number}", "1"))
            for _ in range(3):
                while await cluster.schedule_next():
                    pass
                await cluster.pass_time(7)
            nodes |= dict(cluster.api.bound)
            if number >= 5:
                # As a pod leaves the watch that has ended.
                cluster.api.remove("Pod", f"shop/job-{number - 5}")
        task = asyncio.ensure_future(recorder.run())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return nodes

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(work())


def test_a_replay_of_a_recording_does_what_the_recorded_scheduler_did(tmp_path: Path) -> None:
    path = tmp_path / "recording.jsonl.gz"
    nodes = record(path)
    result = replayed(path)
    assert len(nodes) == 12
    # The same seed and the same order: the same nodes for all pods.
    assert (result.arrivals, result.scheduled, result.same_node) == (12, 12, 12)
    assert result.recorded.pods == 12
    assert result.departures == 7


class Recorded:
    """A recorder on an API in memory, and the events that it has written."""

    def __init__(self, path: Path) -> None:
        self.api, self._path, self._clock = InMemoryApi(), path, FakeClock()
        self._recorder = ArrivalRecorder(path, self._clock)

    def begin(self) -> None:
        kinds = [PODS, NODES, PERSISTENT_VOLUME_CLAIMS]
        self._recorder.begin(self.api, kinds, V1_37)
        self._clock.advance(1)

    def events(self) -> list[Any]:
        async def write() -> None:
            task = asyncio.ensure_future(self._recorder.run())
            await asyncio.sleep(0.05)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

        asyncio.run(write())
        return [event for _, event in read_recording(self._path)[1]]


@pytest.fixture
def recorded(tmp_path: Path) -> Recorded:
    return Recorded(tmp_path / "recording")


def test_the_recorded_fields_of_a_pod(recorded: Recorded) -> None:
    secret = pod("web", env="hunter2")
    secret["metadata"]["annotations"] = {"note": "hunter2"}
    recorded.api.add(node("n0"))
    recorded.begin()
    recorded.api.add(secret)
    recorded.api.merge("Pod", "shop/web", {"spec": {"nodeName": "n0"}})
    recorded.api.merge("Pod", "shop/web", {"status": {"phase": "Running"}})
    recorded.api.merge("Pod", "shop/web", {"metadata": {"labels": {"app": "x"}}})
    recorded.api.remove("Pod", "shop/web")
    events = recorded.events()
    assert [(one.t, one.type) for one in events] == [
        (0.0, "ADDED"),
        (1.0, "ADDED"),
        (1.0, "BOUND"),
        (1.0, "MODIFIED"),
        (1.0, "DELETED"),
    ]
    assert events[-1].ended
    assert b"hunter2" not in bytes(events[1].object)


def test_deletions_are_told_from_ends(recorded: Recorded) -> None:
    recorded.begin()
    recorded.api.add(pod("waiting"))
    recorded.api.remove("Pod", "shop/waiting")
    recorded.api.add(pod("web", on="n0"))
    ending = {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}
    recorded.api.merge("Pod", "shop/web", ending)
    recorded.api.remove("Pod", "shop/web")
    ends = [one.ended for one in recorded.events() if one.type == "DELETED"]
    assert ends == [False, False]


def test_heartbeats_and_writes_of_controllers_are_not_recorded(recorded: Recorded) -> None:
    claim = {
        "kind": "PersistentVolumeClaim",
        "apiVersion": "v1",
        "metadata": {"name": "c", "namespace": "shop"},
    }
    recorded.api.add(node("n0"))
    recorded.begin()
    recorded.api.add(claim)
    recorded.api.merge("PersistentVolumeClaim", "shop/c", {"spec": {"volumeName": "v"}})
    recorded.api.merge("Node", "n0", {"metadata": {"annotations": {"heartbeat": "1"}}})
    recorded.api.merge("Node", "n0", {"spec": {"unschedulable": True}})
    assert [one.type for one in recorded.events()] == ["ADDED", "ADDED", "MODIFIED"]


def test_a_recorder_stops_at_its_limit(tmp_path: Path) -> None:
    api, path = InMemoryApi(), tmp_path / "recording"
    recorder = ArrivalRecorder(path, FakeClock(), max_bytes=10)
    recorder.begin(api, [PODS], V1_37)
    asyncio.run(asyncio.wait_for(recorder.run(), 10))
    api.add(pod("late"))
    assert list(read_recording(path)[1]) == []


def test_a_file_that_cannot_be_written_ends_the_recording_only(tmp_path: Path) -> None:
    recorder = ArrivalRecorder(tmp_path / "nowhere" / "file", FakeClock())
    api = InMemoryApi()
    recorder.begin(api, [PODS], V1_37)
    asyncio.run(recorder.run())
    api.add(pod("web"))  # nobody keeps the line


def test_the_recording_of_a_process_that_was_killed(tmp_path: Path) -> None:
    path = tmp_path / "recording"
    compress = zlib.compressobj(3, zlib.DEFLATED, 31)
    text = json.dumps(HEADER) + "\n" + json.dumps(added(0, node("n0"))) + '\n{"t": 5, "ty'
    path.write_bytes(compress.compress(text.encode()) + compress.flush(zlib.Z_SYNC_FLUSH))
    assert [event.type for _, event in read_recording(path)[1]] == ["ADDED"]


@pytest.mark.parametrize(
    ("lines", "error"),
    [
        ([{"t": 1}], r"line 2: Object missing required field `type`"),
        ([{"t": "x", "type": "ADDED"}], r"line 2: Expected `float`, got `str` - at `\$.t`"),
        ([{"t": 0, "type": "OTHER"}], r"line 2: Invalid enum value 'OTHER'"),
        ([added(5, node("n")), added(4, node("m"))], r"line 3: t: 4.0 is before the line above"),
        ([added(1, {"kind": "Secret", "apiVersion": "v1"})], r"line 2: object: its kind is not"),
        (
            [added(1, {**node("n"), "spec": {"taints": 5}})],
            r"line 2 \(Node n\): spec.taints: Expected `array`, got `int`",
        ),
        ([{"t": 1, "type": "DELETED", "kind": "X", "key": "k"}], r"line 2: kind: 'X' is not known"),
    ],
)
def test_bad_lines_are_named(tmp_path: Path, lines: list[Any], error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        Recording(write(tmp_path / "r", *lines))


def test_files_that_are_no_recordings(tmp_path: Path) -> None:
    path = tmp_path / "r"
    for content in (b"", b"{}", b"[1]", gzip.compress(b"text\n")):
        path.write_bytes(content)
        with pytest.raises(ConfigError, match="not a recording"):
            Recording(path)
    path.write_bytes(b"\x1f\x8bgarbage....")
    with pytest.raises(ConfigError, match="the gzip data is damaged"):
        Recording(path)
    with pytest.raises(ConfigError, match="cannot read /nowhere"):
        Recording(Path("/nowhere"))
