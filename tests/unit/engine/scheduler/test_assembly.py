"""A scheduler that is given another configuration keeps its pods, and ends what is not used."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from proreus.base.errors import ConfigError
from proreus.base.feature_gates import FeatureGates
from proreus.config.load import load
from proreus.engine.runtime.registry import Registry
from proreus.framework.plugin import BackgroundPlugin, FilterPlugin, PermitPlugin, PreEnqueuePlugin
from proreus.framework.status import Status
from proreus.objects.kinds import NODES, PODS
from proreus.objects.workloads import SERVICES
from proreus.offline.cluster import OfflineCluster
from proreus.plugins import IN_TREE_PLUGINS
from proreus.testing.builders import make_node, make_pod

GATES = FeatureGates()
heard: list[tuple[str, str]] = []


class Listening(FilterPlugin, BackgroundPlugin):
    """Watches Services and has background work, as long as its profile is in use."""

    def __init__(self, args: Any, handle: Any) -> None:
        super().__init__(args, handle)
        self.handle.on_change(SERVICES, self._changed)

    def _changed(self, old: Any, new: Any) -> None:
        heard.append((self.name, "service"))

    async def run_in_background(self) -> None:
        heard.append((self.name, "begun"))
        try:
            await asyncio.Event().wait()
        finally:
            heard.append((self.name, "ended"))

    def filter(self, state: Any, pod: Any, node: Any) -> Status | None:
        return None


class Recording(FilterPlugin):
    """Hears of Services, through both handles, while its constructor still has work to do."""

    def __init__(self, args: Any, handle: Any) -> None:
        super().__init__(args, handle)
        handle.shared.on_change(SERVICES, lambda old, new: heard.append(("shared", self.done)))
        handle.on_change(SERVICES, self._changed)
        self.done = "done"

    def _changed(self, old: Any, new: Any) -> None:
        heard.append(("own", self.done))
        if len(heard) == 2:
            self.handle.on_change(SERVICES, lambda old, new: heard.append(("late", self.done)))

    def filter(self, state: Any, pod: Any, node: Any) -> Status | None:
        return None


class Failing(FilterPlugin):
    """Cannot be made, and leaves behind what profiles share."""

    def __init__(self, args: Any, handle: Any) -> None:
        super().__init__(args, handle)
        handle.on_change(SERVICES, lambda old, new: heard.append(("own", "")))
        handle.shared.on_change(SERVICES, lambda old, new: heard.append(("shared", "")))
        raise ConfigError("no")

    def filter(self, state: Any, pod: Any, node: Any) -> Status | None:
        return None


class Other(Listening):
    """The same by another name."""


class Holding(PermitPlugin):
    """Holds every pod."""

    def permit(self, state: Any, pod: Any, node_name: str) -> Status | None:
        return Status.wait(60)


class Closed(PreEnqueuePlugin):
    """Lets nobody in."""

    def pre_enqueue(self, pod: Any) -> Status | None:
        return Status.unresolvable("closed")


class Nowhere(FilterPlugin):
    """Lets no pod go anywhere."""

    def filter(self, state: Any, pod: Any, node: Any) -> Status | None:
        return Status.unschedulable("nowhere")


class Impossible(FilterPlugin):
    """Cannot be made."""

    def __init__(self, args: Any, handle: Any) -> None:
        super().__init__(args, handle)
        raise RuntimeError("no")

    def filter(self, state: Any, pod: Any, node: Any) -> Status | None:
        return None


REGISTRY = Registry(
    (
        *(*IN_TREE_PLUGINS, Listening, Other, Holding, Closed, Nowhere, Impossible),
        *(Recording, Failing),
    )
)


def configuration(*enabled: str, profiles: tuple[str, ...] = ("default-scheduler",), **more: Any):
    plugins = {"multiPoint": {"enabled": [{"name": name} for name in enabled]}}
    raw = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": name, "plugins": plugins} for name in profiles],
        **more,
    }
    return load(raw, REGISTRY, GATES)


class World(OfflineCluster):
    def __init__(self, *enabled: str) -> None:
        super().__init__(configuration(*enabled), REGISTRY, GATES)
        self.api.put(NODES, make_node("n"))

    def create(self, name: str, scheduler: str = "default-scheduler") -> None:
        pod = make_pod(name, cpu="100m", spec={"schedulerName": scheduler})
        self.api.put(PODS, pod.pod)

    def node_of(self, name: str) -> str:
        return self.api.store(PODS)[f"default/{name}"].spec.node_name

    async def schedule(self) -> None:
        while await self.schedule_next() is not None:
            pass

    async def go_over_to(self, *enabled: str, **more: Any) -> None:
        made = self.assembly.prepare(configuration(*enabled, **more), REGISTRY)
        self.scheduler.between_cycles(lambda: self.assembly.use(made))
        await self.settle()
        await asyncio.sleep(0)


@pytest.fixture(autouse=True)
def _nothing_heard() -> None:
    heard.clear()


async def test_plugins_that_are_not_used_any_more_hear_and_do_nothing() -> None:
    world = World("Listening")
    world.scheduler.start_background_work()
    await asyncio.sleep(0)
    await world.go_over_to("Other")
    assert heard == [("Listening", "begun"), ("Listening", "ended"), ("Other", "begun")]
    world.api.add({"kind": "Service", "metadata": {"name": "s", "namespace": "default"}})
    assert heard[3:] == [("Other", "service")]
    await world.scheduler.close()


async def test_new_plugins_are_notified_of_existing_objects() -> None:
    world = World()
    world.api.add({"kind": "Service", "metadata": {"name": "s", "namespace": "default"}})
    await world.go_over_to("Listening")
    assert heard == [("Listening", "service")]


async def test_handlers_are_called_once_the_constructor_has_returned() -> None:
    world = World()
    world.api.add({"kind": "Service", "metadata": {"name": "s", "namespace": "default"}})
    await world.go_over_to("Recording")
    assert heard == [("shared", "done"), ("own", "done"), ("late", "done")]


async def test_shared_state_of_a_plugin_that_cannot_be_made_follows_objects() -> None:
    world = World()
    world.api.add({"kind": "Service", "metadata": {"name": "s", "namespace": "default"}})
    with pytest.raises(ConfigError):
        await world.go_over_to("Failing")
    assert heard == [("shared", "")]
    world.api.add({"kind": "Service", "metadata": {"name": "t", "namespace": "default"}})
    assert heard == [("shared", ""), ("shared", "")]


async def test_a_pod_is_bound_by_the_plugins_that_decided_it() -> None:
    world = World("Listening", "Holding")
    world.scheduler.start_background_work()
    world.create("p")
    await world.schedule_next()
    await world.go_over_to("Other")
    assert ("Listening", "ended") not in heard
    (waiting,) = world.scheduler.waiting_pods
    world.api.add({"kind": "Service", "metadata": {"name": "s", "namespace": "default"}})
    assert ("Listening", "service") in heard

    waiting.allow("Holding")
    await world.settle()
    await asyncio.sleep(0)
    assert world.node_of("p") == "n"
    assert ("Listening", "ended") in heard
    await world.scheduler.close()


async def test_the_answers_of_an_old_configuration_do_not_wait_for_the_collector() -> None:
    world = World("Holding")
    (profile,) = world.scheduler.profiles.values()
    world.create("p")
    await world.schedule_next()
    fit = next(plugin for plugin in profile.filter if plugin.name == "NodeResourcesFit")
    signature = fit.sign(make_pod("p", cpu="100m"))
    kept = profile.equivalence_cache.results(fit, signature)

    await world.go_over_to()
    assert profile.equivalence_cache.results(fit, signature) is kept, "a pod is still in its hands"
    (waiting,) = world.scheduler.waiting_pods
    waiting.reject("Holding", "enough")
    await world.settle()
    assert profile.equivalence_cache.results(fit, signature) is not kept
    await world.scheduler.close()


async def test_pods_that_were_rejected_or_gated_get_another_chance() -> None:
    world = World("Nowhere")
    world.create("p")
    await world.schedule()
    assert world.node_of("p") == ""
    await world.go_over_to("Closed")
    world.create("q")
    world.advance(20)
    await world.schedule()
    await world.go_over_to()
    world.advance(20)
    await world.schedule()
    assert (world.node_of("p"), world.node_of("q")) == ("n", "n")


async def test_pods_of_profiles_that_come_and_go() -> None:
    world = World()
    world.create("early", "new")
    world.create("late")
    await world.go_over_to(profiles=("new",))
    await world.schedule()
    assert (world.node_of("early"), world.node_of("late")) == ("n", "")
    assert not world.scheduler.queue.active_pods()
    await world.go_over_to(profiles=("default-scheduler", "new"))
    await world.schedule()
    assert world.node_of("late") == "n"


async def test_what_is_not_a_profiles_is_followed_too() -> None:
    world = World("Nowhere")
    await world.go_over_to("Nowhere", podInitialBackoffSeconds=100, podMaxBackoffSeconds=100)
    world.create("p")
    await world.schedule()
    await world.go_over_to(podInitialBackoffSeconds=100, podMaxBackoffSeconds=100)
    world.advance(90)
    assert len(world.scheduler.queue.backoff_pods()) == 1
    world.advance(20)
    await world.schedule()
    assert world.node_of("p") == "n"


async def test_a_configuration_that_cannot_be_built_leaves_nothing_behind() -> None:
    world = World()
    with pytest.raises(ConfigError, match="Impossible"):
        world.assembly.prepare(configuration("Listening", "Impossible"), REGISTRY)
    world.api.add({"kind": "Service", "metadata": {"name": "s", "namespace": "default"}})
    assert heard == []


async def test_a_change_waits_for_the_end_of_the_cycle() -> None:
    world = World()
    done: list[str] = []

    class Slow:
        """Stands in for a cycle that waits for an extender."""

        async def run(self, attempt: Any) -> Any:
            world.scheduler.between_cycles(lambda: done.append("changed"))
            await asyncio.sleep(0)
            assert done == []
            done.append("cycle")
            world.scheduler.stop()
            return await real(attempt)

    real = world.scheduler.scheduling_cycle.run
    world.scheduler.scheduling_cycle.run = Slow().run  # type: ignore[method-assign]
    world.create("p")
    await asyncio.wait_for(world.scheduler.run(), 5)
    assert done == ["cycle", "changed"]
    await world.settle()
    await world.scheduler.close()
