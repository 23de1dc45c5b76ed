"""The harness runs the real scheduler, and reports the outcome of each pod with its reasons."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import pytest

from proreus.base.errors import ConfigError
from proreus.config.fields import PluginArgs
from proreus.framework import events
from proreus.framework.cycle_state import CycleState
from proreus.framework.events import ClusterEvent
from proreus.framework.handle import Handle
from proreus.framework.node_info import NodeInfo
from proreus.framework.plugin import (
    BackgroundPlugin,
    BindPlugin,
    FilterPlugin,
    PermitPlugin,
    Plugin,
    PostBindPlugin,
    PreBindPlugin,
    PreEnqueuePlugin,
    QueueSortPlugin,
    ReservePlugin,
    ScorePlugin,
)
from proreus.framework.pod_info import PodInfo, QueuedPodInfo
from proreus.framework.status import Status
from proreus.objects.kinds import PODS
from proreus.plugins.node_resources_fit import NodeResourcesFit
from proreus.testing import BlockingCallWarning, Event, Harness, HarnessOptions, make_node, make_pod

GPU = {"nvidia.com/gpu": 8}


class KeepGpus(FilterPlugin, ScorePlugin):
    """GPU nodes are for GPU pods; the node with the greater name is better."""

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        if "nvidia.com/gpu" in node.allocatable and "nvidia.com/gpu" not in pod.requests.amounts:
            return Status.unschedulable("kept for GPU pods")
        return None

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        return 10 * int(node.name[-1])

    def events_to_register(self) -> list[ClusterEvent]:
        return [ClusterEvent(events.NODE, events.ADD)]


class Hold(PermitPlugin, ReservePlugin):
    """Makes every pod wait on Permit for 30 seconds, and records reserved pods."""

    def __init__(self, args: object, handle: object) -> None:
        self.reserved: dict[str, str] = {}

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        self.reserved[pod.key] = node_name
        return None

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        del self.reserved[pod.key]

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        return Status.wait(30)


class Broken(FilterPlugin):
    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        raise ZeroDivisionError("by nothing")


# ---- one pod -------------------------------------------------------------------------------------


def test_a_pod_is_bound_and_its_scores_are_recorded() -> None:
    cluster = Harness([KeepGpus], ["n1", "n2", make_node("n3", resources=GPU)])

    outcome = cluster.schedule(make_pod("web", "1", "1Gi"))

    assert outcome.bound
    assert outcome.node == "n2", outcome
    assert outcome.feasible == ["n1", "n2"]
    assert outcome.score("n2", "KeepGpus") - outcome.score("n1", "KeepGpus") == 10
    assert outcome.score("n2") - outcome.score("n1") == 10
    assert outcome.why_not("n3") == "KeepGpus: kept for GPU pods"
    assert outcome.why_not("n1") == ""
    assert cluster.pod("web").spec.node_name == "n2"
    assert "default/web" in {pod.key for pod in cluster.node("n2").pods.values()}
    assert cluster.events("web") == [
        Event("default/web", "Scheduled", "Successfully assigned default/web to n2")
    ]


def test_scores_of_plugins_without_cached_results() -> None:
    cluster = Harness(
        [KeepGpus, NodeResourcesFit], ["n1", "n2"], alone=True, weights={"KeepGpus": 3}
    )

    outcome = cluster.schedule(make_pod("web", "1"))

    assert outcome.scores["n1"].keys() == {"KeepGpus", "NodeResourcesFit"}
    assert outcome.score("n2", "KeepGpus") == 60
    assert outcome.score("n2") == 60 + outcome.score("n2", "NodeResourcesFit")
    assert "n2: " in str(outcome)
    assert "KeepGpus 60" in str(outcome)


def test_a_rejected_pod_waits_for_an_event_that_its_plugin_registered() -> None:
    cluster = Harness([KeepGpus], [make_node("n1", resources=GPU)])

    outcome = cluster.schedule(make_pod("web"))

    assert outcome.state == "unschedulable"
    assert outcome.node == ""
    assert outcome.rejected_by == {"KeepGpus"}
    assert outcome.message.startswith("0/1 nodes are available: 1 kept for GPU pods.")
    assert cluster.queue_of("web") == "unschedulable"
    assert cluster.events("web")[0].reason == "FailedScheduling"
    with pytest.raises(LookupError, match="KeepGpus rejected it, and no event since then"):
        cluster.schedule("web")

    cluster.patch("Node", "n1", {"metadata": {"labels": {"color": "blue"}}})
    assert cluster.queue_of("web") == "unschedulable"
    cluster.add(make_node("n2"))
    assert cluster.queue_of("web") in ("active", "backoff")
    assert cluster.schedule("web").node == "n2"


def test_unschedulable_pods_are_retried_after_five_minutes() -> None:
    cluster = Harness([KeepGpus], [make_node("n1", resources=GPU)])
    cluster.schedule(make_pod("web"))

    cluster.advance(330)

    assert cluster.queue_of("web") == "active"
    assert [outcome.state for outcome in cluster.schedule_all()] == ["unschedulable"]


def test_one_feasible_node_is_not_scored() -> None:
    cluster = Harness([KeepGpus], ["n1", make_node("n2", resources=GPU)])

    outcome = cluster.schedule(make_pod("web"))

    assert outcome.scores == {}
    with pytest.raises(LookupError, match="two nodes or more are feasible"):
        outcome.score("n1", "KeepGpus")
    with pytest.raises(LookupError, match="node 'n9' was not filtered; feasible: n1; rejected: n2"):
        outcome.why_not("n9")


def test_pods_as_in_yaml() -> None:
    cluster = Harness([KeepGpus], 2, [{"kind": "Namespace", "metadata": {"name": "blue"}}])
    container = {"name": "c", "resources": {"requests": {"cpu": "1"}}}

    outcome = cluster.schedule(
        {"metadata": {"name": "web", "namespace": "blue"}, "spec": {"containers": [container]}}
    )

    assert outcome.pod == "blue/web"
    assert cluster.outcome("blue/web") == outcome
    cluster.remove("Pod", "web", "blue")
    assert cluster.outcome("blue/web").state == "deleted"


def test_existing_pods_use_capacity() -> None:
    cluster = Harness([], [make_node("n1", cpu="2")], [make_pod("old", "2", node_name="n1")])

    assert (
        cluster.schedule(make_pod("web", "1")).why_not("n1") == "NodeResourcesFit: Insufficient cpu"
    )


def test_pods_of_higher_priority_are_scheduled_first() -> None:
    cluster = Harness([], [make_node("n1", cpu="1")], [make_pod("a", "1", priority=10)])

    outcome = cluster.schedule(make_pod("b", "1"))

    assert cluster.outcome("a").bound
    assert outcome.state == "unschedulable"


# ---- waiting, binding, time ----------------------------------------------------------------------


def test_a_pod_waits_on_permit_until_it_is_allowed() -> None:
    cluster = Harness([Hold], ["n1"])

    outcome = cluster.schedule(make_pod("web"))
    assert (outcome.state, outcome.node) == ("waiting", "n1")
    cluster.waiting("web").allow("Hold")
    cluster.advance(0)

    assert cluster.outcome("web").bound
    with pytest.raises(LookupError, match=r"web does not wait on Permit: .*: bound"):
        cluster.waiting("web")


def test_a_permit_timeout_in_virtual_time_unreserves_the_pod() -> None:
    cluster = Harness([Hold], ["n1"])
    cluster.schedule(make_pod("web"))
    assert cluster.plugin(Hold).reserved == {"default/web": "n1"}

    cluster.advance(29.5)
    assert cluster.outcome("web").state == "waiting"
    cluster.advance(1)

    outcome = cluster.outcome("web")
    assert outcome.state == "unschedulable"
    assert "timeout after waiting 30s at plugin Hold" in outcome.message
    assert outcome.rejected_by == {"Hold"}
    assert cluster.plugin(Hold).reserved == {}
    assert not cluster.node("n1").pods


class Slow(PreBindPlugin, PostBindPlugin):
    """Takes two seconds in PreBind."""

    def __init__(self, args: object, handle: object) -> None:
        self.bound: list[str] = []

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        await asyncio.sleep(2)
        return None

    def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        self.bound.append(pod.key)


def test_timers_of_plugins_follow_the_virtual_clock() -> None:
    cluster = Harness([Slow], 1)

    assert cluster.schedule(make_pod("web")).state == "binding"
    cluster.advance(1.999)
    assert cluster.outcome("web").state == "binding"
    cluster.advance(0.001)

    assert cluster.outcome("web").bound
    assert cluster.plugin(Slow).bound == ["default/web"]


class Counts(FilterPlugin, BackgroundPlugin):
    """Activates a pod every ten seconds, by background work."""

    def __init__(self, args: object, handle: object) -> None:
        self.known = 0

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        return None if self.known else Status.unschedulable("nothing known yet")

    async def run_in_background(self) -> None:
        while True:
            await asyncio.sleep(10)
            self.known += 1


def test_background_work_runs_in_virtual_time() -> None:
    cluster = Harness([Counts], 1)
    assert not cluster.schedule(make_pod("a")).bound

    cluster.advance(25)

    assert cluster.plugin(Counts).known == 2
    assert cluster.schedule(make_pod("b")).bound


def test_wait_until_waits_for_real_io() -> None:
    cluster = Harness([], 1)
    lines: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines.append(await reader.readline())
        writer.close()

    async def call() -> asyncio.Server:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"hello\n")
        await writer.drain()
        writer.close()
        return server

    server = cluster.run(call())
    cluster.wait_until(lambda: lines)
    server.close()
    cluster.run(server.wait_closed())

    assert lines == [b"hello\n"]
    with pytest.raises(TimeoutError, match="timers need advance"):
        cluster.run(asyncio.sleep(3600), seconds=0.05)


class Gate(PreEnqueuePlugin):
    def pre_enqueue(self, pod: PodInfo) -> Status | None:
        return None if "open" in pod.labels else Status.unresolvable("closed")


def test_gated_pods_are_not_tried() -> None:
    cluster = Harness([Gate], 1)

    outcome = cluster.schedule(make_pod("web"))
    assert outcome.state == "gated"
    assert outcome.rejected_by == {"Gate"}
    cluster.patch("Pod", "web", {"metadata": {"labels": {"open": "yes"}}})

    assert cluster.schedule("web").bound


# ---- what a plugin raises ------------------------------------------------------------------------


def test_errors_of_plugins_are_raised_in_the_test() -> None:
    cluster = Harness([Broken], 1)

    with pytest.raises(ZeroDivisionError, match="by nothing") as caught:
        cluster.schedule(make_pod("web"))

    assert "while default/web was scheduled" in caught.value.__notes__[0]


def test_without_raise_errors_an_error_is_an_outcome() -> None:
    cluster = Harness([Broken], 1, options=HarnessOptions(raise_errors=False))

    outcome = cluster.schedule(make_pod("web"))

    assert outcome.state == "error"
    assert outcome.message == 'running "Broken" filter plugin: by nothing'


def broken() -> object:
    raise ZeroDivisionError("by nothing")


class BrokenAfterwards(PostBindPlugin):
    def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        broken()


class BrokenUndo(ReservePlugin, PermitPlugin):
    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        return Status.unschedulable("no")

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        broken()

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        return None


class BrokenGate(PreEnqueuePlugin):
    def pre_enqueue(self, pod: PodInfo) -> Status | None:
        broken()


class BrokenHint(FilterPlugin):
    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        return Status.unschedulable("no")

    def events_to_register(self) -> list[ClusterEvent]:
        return [ClusterEvent(events.NODE, events.ADD, hint=lambda pod, old, new: bool(broken()))]


class BrokenHandler(PostBindPlugin):
    def __init__(self, args: object, handle: Handle) -> None:
        super().__init__(args, handle)
        handle.on_change(PODS, self.changed)

    def changed(self, old: object, new: object) -> None:
        broken()

    def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        pass


class BrokenTask(PostBindPlugin):
    def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        self.handle.spawn(self.work())

    async def work(self) -> None:
        broken()


@pytest.mark.parametrize(
    ("plugin", "where"),
    [
        (BrokenAfterwards, "(BrokenAfterwards, PostBind) while default/web was scheduled"),
        (BrokenUndo, "(BrokenUndo, Unreserve) while default/web was scheduled"),
        (BrokenGate, "(BrokenGate, PreEnqueue)"),
        (BrokenHandler, "(BrokenHandler.changed)"),
        (BrokenTask, "(BrokenTask.work)"),
        (BrokenHint, "(BrokenHint, QueueingHint)"),
    ],
)
def test_raises_what_the_scheduler_only_logs(plugin: type[Plugin], where: str) -> None:
    cluster = Harness([plugin], 1)

    def use() -> None:
        cluster.schedule(make_pod("web"))
        cluster.add(make_node("new"))

    with pytest.raises(ZeroDivisionError, match="by nothing") as caught:
        use()

    assert where in caught.value.__notes__[0]


class BrokenWork(BackgroundPlugin, PostBindPlugin):
    def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        pass

    async def run_in_background(self) -> None:
        await asyncio.sleep(10)
        broken()


def test_raises_what_background_work_raises_whenever_it_does() -> None:
    cluster = Harness([BrokenWork], 1)
    cluster.advance(9)
    for seconds in (2, 11):
        with pytest.raises(ZeroDivisionError, match="by nothing"):
            cluster.advance(seconds)


class Sleepy(FilterPlugin):
    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        time.sleep(0.3)
        return None


class SleepyWork(BackgroundPlugin, PostBindPlugin):
    def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        pass

    async def run_in_background(self) -> None:
        await asyncio.sleep(10)
        time.sleep(0.3)  # noqa: ASYNC251


def test_warns_of_plugins_that_block() -> None:
    with pytest.warns(BlockingCallWarning, match=r"Sleepy blocked at Filter for 0\.\d+ s"):
        Harness([Sleepy], 1).schedule(make_pod("web"))
    cluster = Harness([SleepyWork], 1)
    with pytest.warns(BlockingCallWarning, match="SleepyWork blocked at Background"):
        cluster.advance(11)


def test_a_status_that_is_none_is_raised_in_the_test() -> None:
    class Texts(FilterPlugin):
        def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
            return Status("Unschedulable")  # type: ignore[arg-type]

    with pytest.raises(TypeError, match=r"write Status\.unschedulable\(\"why\"\)"):
        Harness([Texts], 1).schedule(make_pod("web"))


@pytest.mark.parametrize("ask", [Harness.outcome, Harness.queue_of, Harness.events])
def test_a_pod_that_was_never_there_is_an_error(ask: Callable[[Harness, str], object]) -> None:
    cluster = Harness([], 1)
    cluster.schedule(make_pod("web"))

    with pytest.raises(LookupError, match="never a pod 'default/wbe'; there were: default/web"):
        ask(cluster, "wbe")

    cluster.remove("Pod", "web")
    ask(cluster, "web")
    assert cluster.outcome("web").state == "deleted"


# ---- configuration -------------------------------------------------------------------------------


class Threshold(FilterPlugin):
    class Args(PluginArgs):
        limit: int = 3

    args: Args

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        return Status.unschedulable("full") if len(node.pods) >= self.args.limit else None


CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: mine
  plugins: {multiPoint: {enabled: [{name: Threshold}]}}
  pluginConfig: [{name: Threshold, args: {limit: 1}}]
"""


@pytest.mark.parametrize("form", ["text", "file"])
def test_a_whole_configuration(form: str, tmp_path: Path) -> None:
    (tmp_path / "scheduler.yaml").write_text(CONFIG)
    cluster = Harness(
        [Threshold], 1, config=CONFIG if form == "text" else tmp_path / "scheduler.yaml"
    )

    with pytest.raises(
        LookupError, match="schedulerName is 'default-scheduler', the profiles are m"
    ):
        cluster.schedule(make_pod("lost"))
    assert cluster.schedule(make_pod("a", scheduler_name="mine")).bound
    assert not cluster.schedule(make_pod("b", scheduler_name="mine")).bound


def test_args_are_defaulted_and_validated() -> None:
    assert Harness([Threshold], 1).plugin(Threshold).args.limit == 3
    assert Harness([Threshold], args={"Threshold": {"limit": 1}}).plugin(Threshold).args.limit == 1
    with pytest.raises(ConfigError, match=r"limt"):
        Harness([Threshold], args={"Threshold": {"limt": 1}})
    with pytest.raises(ConfigError, match="'Treshold' is not among the plugins given here"):
        Harness([Threshold], args={"Treshold": {"limit": 1}})


def test_a_plugin_that_no_profile_enables_is_an_error() -> None:
    config = CONFIG.replace("{enabled: [{name: Threshold}]}", "{}").replace(
        "[{name: Threshold, args: {limit: 1}}]", "[]"
    )
    with pytest.raises(ConfigError, match="no profile of this configuration enables Threshold"):
        Harness([Threshold], config=config)
    with pytest.raises(TypeError, match="give one or the other"):
        Harness([Threshold], config=CONFIG, alone=True)


class ByName(QueueSortPlugin):
    def sort_key(self, queued: QueuedPodInfo) -> str:
        return queued.key


class Binder(BindPlugin):
    def __init__(self, args: object, handle: object) -> None:
        self.asked: list[str] = []

    async def bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        self.asked.append(pod.name)
        return Status.skip()


@pytest.mark.parametrize("alone", [False, True])
def test_plugins_can_replace_a_default_plugin(alone: bool) -> None:
    cluster = Harness([ByName, Binder], 1, alone=alone)
    cluster.add(make_pod("c"), make_pod("b"), make_pod("a"))

    assert [outcome.pod for outcome in cluster.schedule_all()] == [
        "default/a",
        "default/b",
        "default/c",
    ]
    assert cluster.plugin(Binder).asked == ["a", "b", "c"]
    assert all(cluster.outcome(name).bound is not alone for name in "abc")


# ---- oversights ----------------------------------------------------------------------------------


class Nothing(Plugin):
    """Has no extension point."""


class ForgotState(FilterPlugin):
    def filter(self, pod: PodInfo, node: NodeInfo) -> Status | None:  # type: ignore[override]
        return None


def test_invalid_plugins_are_rejected() -> None:
    made = Harness([Threshold], 1).plugin(Threshold)
    with pytest.raises(TypeError, match="Threshold, without parentheses"):
        Harness([made])  # type: ignore[list-item]
    with pytest.raises(TypeError, match=r"as a list of classes: \[Threshold\]"):
        Harness(Threshold)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="class dict must inherit from an extension point"):
        Harness([dict])  # type: ignore[list-item]
    with pytest.raises(
        TypeError, match=r"test_harness.py:\d+: class Nothing inherits no extension"
    ):
        Harness([Nothing])
    with pytest.raises(
        TypeError, match=r"test_harness.py:\d+: filter must take \(self, state, pod"
    ):
        Harness([ForgotState])


def test_a_name_has_one_class() -> None:
    class NodeAffinity(Threshold):
        pass

    class Other(Threshold):
        name = "Threshold"

    for plugins in ([NodeAffinity], [Threshold, Other]):
        with pytest.raises(TypeError, match="is that of another plugin"):
            Harness(plugins)
    Harness([NodeResourcesFit, Threshold])


def test_objects_and_plugins_of_the_wrong_type_are_errors() -> None:
    with pytest.raises(TypeError, match="objects are given by make_pod, make_node or as in YAML"):
        Harness([], 1, ["web"])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="takes the class of a plugin, not 'Threshold'"):
        Harness([Threshold], 1).plugin("Threshold")  # type: ignore[arg-type]


class Asks(PostBindPlugin):
    ask: ClassVar[Callable[[Handle, PodInfo], object]]

    def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        type(self).ask(self.handle, pod)


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        (lambda handle, pod: handle.activate(pod.key), r"several keys: \['default/web'\]"),
        (lambda handle, pod: handle.get_waiting_pod(pod), r"pod.uid, not by PodInfo"),
    ],
)
def test_handles_refuse_what_they_would_misread(
    asked: Callable[[Handle, PodInfo], object], error: str
) -> None:
    class Asking(Asks):
        ask = asked

    with pytest.raises(TypeError, match=error):
        Harness([Asking], 1).schedule(make_pod("web"))


def test_lookup_errors_list_what_exists() -> None:
    cluster = Harness([], ["n1"])
    cluster.schedule(make_pod("web"))

    with pytest.raises(LookupError, match="no node 'n2'; there are: n1"):
        cluster.node("n2")
    with pytest.raises(LookupError, match="no pod 'default/wob'; there are: default/web"):
        cluster.pod("wob")
    with pytest.raises(LookupError, match="it is bound on n1"):
        cluster.schedule("web")
    with pytest.raises(LookupError, match="there is no Node n2"):
        cluster.remove("Node", "n2")
    with pytest.raises(LookupError, match="kind 'Noed' is not known"):
        cluster.add({"kind": "Noed", "metadata": {"name": "x"}})
    with pytest.raises(LookupError, match="does not run Threshold"):
        cluster.plugin(Threshold)
    with pytest.raises(ValueError, match="another pod default/web"):
        cluster.schedule(make_pod("web", metadata={"uid": "other"}))


def test_a_metric_of_a_plugin_is_looked_up_by_its_labels() -> None:
    cluster = Harness([KeepGpus], 1)
    gauge = cluster.plugin(KeepGpus).handle.metrics.gauge("held_pods", "ALPHA", "Held.", "of")
    gauge.labels("all").set(3)

    assert cluster.metric("held_pods", "all") == 3
    with pytest.raises(LookupError, match=r"held_pods has \[\('all',\)\], not \('none',\)"):
        cluster.metric("held_pods", "none")
    with pytest.raises(LookupError, match="no metric 'hold_pods'"):
        cluster.metric("hold_pods")


def test_background_work_is_cancelled_and_waited_for() -> None:
    ended = []

    class Ends(BackgroundPlugin, PostBindPlugin):
        async def run_in_background(self) -> None:
            try:
                await asyncio.sleep(3600)
            finally:
                await asyncio.sleep(0)
                ended.append(self.name)

        def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None: ...

    cluster = Harness([Ends], 1)
    assert ended == []
    cluster.stop_background()
    assert ended == ["Ends"]


async def test_a_running_event_loop_is_an_error() -> None:
    with pytest.raises(RuntimeError, match=r"plain `def test_…`"):
        Harness()


def test_it_is_closed_by_its_block_or_by_the_garbage_collector() -> None:
    with Harness([Hold], 1) as cluster:
        cluster.schedule(make_pod("web"))
    with pytest.raises(RuntimeError, match="closed"):
        cluster.schedule(make_pod("b"))

    left = Harness([Counts, Hold], 1)
    left.schedule(make_pod("web"))
    del left
    gc.collect()
