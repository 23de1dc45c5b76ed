"""A preemptor is bound once its victims are gone, whoever removed them, and wherever they were."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from proreus.base.errors import ApiError
from proreus.framework.plugin import BindPlugin, FilterPlugin, PermitPlugin, PreBindPlugin
from proreus.framework.post_filter_result import NominatingInfo
from proreus.framework.status import Status
from proreus.testing.volumes import make_claim, make_storage_class

PLUGINS = ["NodeResourcesFit", "VolumeBinding", "DefaultPreemption"]


@asynccontextmanager
async def running(world) -> AsyncIterator[None]:
    """Let the scheduling loop run, which pops a pod as soon as it is active."""
    loop = asyncio.ensure_future(world.scheduler.run())
    await turns()
    try:
        yield
    finally:
        world.scheduler.stop()
        await loop


async def turns(number: int = 100) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


def one_node(kit, *plugins, cpu: str = "2", **options):
    names = [*PLUGINS, *(one.name for one in plugins)]
    world = kit.World(*plugins, profiles={"default-scheduler": names}, **options)
    world.add_node("n0", cpu=cpu)
    return world


def point_of(world, name: str = "low") -> str:
    found = world.scheduler.describe_bindings(10)["oldest"]
    return "".join(one["point"] for one in found if one["pod"] == f"default/{name}")


def assert_bound_at_once(world, *names: str) -> None:
    assert {name: world.pod(name).spec.node_name for name in names} == dict.fromkeys(names, "n0")
    world.validate()


def assert_kept(world, name: str = "low") -> None:
    """The victim was not deleted, and is tried again after its back-off."""
    assert world.api.deleted == []
    assert world.places() == {"backoff": [name]}


# ---- victims that are not bound yet --------------------------------------------------------------


async def test_a_victim_whose_volume_is_never_made(kit) -> None:
    world = one_node(kit)
    world.api.add(make_storage_class())
    world.api.add(make_claim("c"))
    async with running(world):
        volume = {"name": "data", "persistentVolumeClaim": {"claimName": "c"}}
        world.add_pod("low", cpu="2", spec={"volumes": [volume]})
        await turns()
        assert point_of(world) == "PreBind"

        world.add_pod("vip", cpu="2", priority=100)
        await turns()
        assert_bound_at_once(world, "vip")
        assert_kept(world)


def holding(kit, point: str, *, ignores_cancellation: bool = False):
    """Return a plugin that keeps ``low`` at an extension point, and the event that releases it."""
    go_on = asyncio.Event()

    async def wait(pod) -> None:
        try:
            if pod.name == "low":
                await go_on.wait()
        except asyncio.CancelledError:
            if not ignores_cancellation:
                raise
            await go_on.wait()

    async def pre_bind(plugin, state, pod, node_name) -> None:
        await wait(pod)

    async def bind(plugin, state, pod, node_name) -> None:
        await wait(pod)
        await plugin.handle.api.bind(pod.pod, node_name)

    def permit(plugin, state, pod, node_name) -> Status | None:
        return Status.wait(600) if pod.name == "low" else None

    made = {
        "Permit": lambda: kit.plugin("Hold", PermitPlugin, permit=permit),
        "PreBind": lambda: kit.plugin("Hold", PreBindPlugin, pre_bind=pre_bind),
        "Bind": lambda: kit.plugin("Hold", BindPlugin, bind=bind),
    }
    return made[point](), go_on


@pytest.mark.parametrize("point", ["Permit", "PreBind"])
@pytest.mark.parametrize("vips", [1, 2])
async def test_a_victim_is_kept_from_being_bound_once(kit, point: str, vips: int) -> None:
    """Two preemptors have it in common: neither deletes it, and neither waits for the flush."""
    world = one_node(kit, holding(kit, point)[0])
    async with running(world):
        world.add_pod("low", cpu="2")
        await turns()
        assert point_of(world) == point

        names = [f"vip{number}" for number in range(vips)]
        for name in names:
            world.add_pod(name, cpu=2 // vips, priority=100)
        await turns()
        assert_bound_at_once(world, *names)
        assert_kept(world)


async def test_a_victim_that_takes_its_time_is_waited_for(kit) -> None:
    plugin, go_on = holding(kit, "PreBind", ignores_cancellation=True)
    world = one_node(kit, plugin)
    async with running(world):
        world.add_pod("low", cpu="2")
        await turns()
        world.add_pod("vip", cpu="2", priority=100)
        await turns()
        world.add_node("n1", cpu="2")
        await turns()
        assert world.places() == {"gated": ["vip"]}

        go_on.set()
        await turns()
        assert_bound_at_once(world, "vip")
        assert_kept(world)


async def test_a_victim_that_was_just_allowed_is_not_bound(kit) -> None:
    """It is between Permit and PreBind while its nomination is written."""
    world, answered = one_node(kit, holding(kit, "Permit")[0]), asyncio.Event()
    patch_pod_status = world.api.patch_pod_status

    async def patch_slowly(pod, patch) -> None:
        if pod.metadata.name == "low":
            await answered.wait()
        await patch_pod_status(pod, patch)

    world.api.patch_pod_status = patch_slowly
    async with running(world):
        world.add_pod("low", cpu="2")
        await turns()
        world.scheduler.waiting_pods.get("uid-of-default-low").allow("Hold")
        await turns()
        world.add_pod("vip", cpu="2", priority=100)
        await turns()
        answered.set()
        await turns()
        assert_bound_at_once(world, "vip")
        assert_kept(world)


@pytest.mark.parametrize("fails", [True, False])
async def test_a_victim_that_is_being_bound_is_deleted_once_it_is(kit, fails: bool) -> None:
    """A pod without a node has nothing to give, and its deletion wakes nobody."""
    plugin, go_on = holding(kit, "Bind")
    world = one_node(kit, plugin, binder="Hold")
    bind = world.api.bind

    async def bind_or_not(pod, node_name) -> None:
        if fails and pod.metadata.name == "low":
            raise ApiError(500, "InternalError", "not today")
        await bind(pod, node_name)

    world.api.bind = bind_or_not
    async with running(world):
        world.add_pod("low", cpu="2")
        await turns()
        assert point_of(world) == "Bind"
        world.add_pod("vip", cpu="2", priority=100)
        await turns()
        assert world.api.deleted == []

        go_on.set()
        await turns()
        assert_bound_at_once(world, "vip")
        if fails:
            assert_kept(world)
        else:
            assert world.api.deleted == ["default/low"]


async def test_a_victim_whose_binding_hangs_is_deleted_after_a_second(kit) -> None:
    plugin, go_on = holding(kit, "Bind")
    world = one_node(kit, plugin, binder="Hold")
    async with running(world):
        world.add_pod("low", cpu="2")
        await turns()
        assert point_of(world) == "Bind"
        world.add_pod("vip", cpu="2", priority=100)
        await turns()
        assert world.api.deleted == []
        await asyncio.sleep(1)
        await turns()
        assert world.api.deleted == ["default/low"]
        go_on.set()
        await turns()


async def test_a_last_victim_that_has_nothing_of_what_the_preemptor_lacked(kit) -> None:
    """The event of the other one, for which the preemptor was rejected, found it gated."""
    names = ["NodeAffinity", "InterPodAffinity", "DefaultPreemption"]
    features = ("GenericWorkload=true",)
    world = kit.World(profiles={"default-scheduler": names}, features=features)
    world.api.add(
        {
            "apiVersion": "scheduling.k8s.io/v1beta1",
            "kind": "PodGroup",
            "metadata": {"name": "g", "namespace": "default"},
            "spec": {"schedulingPolicy": {"basic": {}}, "disruptionMode": {"all": {}}},
        }
    )
    member = {"schedulingGroup": {"podGroupName": "g"}}
    for number, app in enumerate(("loud", "quiet")):
        name = f"n{number}"
        world.add_node(name, labels={"kubernetes.io/hostname": name})
        world.add_pod(app, labels={"app": app}, node_name=name, spec=member)
    loud = {"labelSelector": {"matchLabels": {"app": "loud"}}}
    term = loud | {"topologyKey": "kubernetes.io/hostname"}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    selector = {"kubernetes.io/hostname": "n0"}
    deleted = []

    async def delete_pod(pod) -> None:
        deleted.append(pod.metadata.name)

    world.api.delete_pod = delete_pod
    async with running(world):
        world.add_pod("vip", node_selector=selector, affinity=affinity, priority=100)
        await turns()
        assert deleted == ["loud", "quiet"]
        for name in deleted:  # which the watch reports later
            world.remove_pod(name)
            await turns()
        assert_bound_at_once(world, "vip")


# ---- victims that somebody else removes ----------------------------------------------------------


class Removal:
    """Removes a victim when the scheduler makes its ``number``-th request about a victim."""

    def __init__(self, world, victim: str, number: int, answers: Exception | None) -> None:
        self._world, self._victim, self._number, self._answers = world, victim, number, answers
        self._requests = 0
        self._patch, self._delete = world.api.patch_pod_status, world.api.delete_pod
        world.api.patch_pod_status = self.patch_pod_status
        world.api.delete_pod = self.delete_pod

    async def patch_pod_status(self, pod, patch) -> None:
        if pod.metadata.name != "vip":
            await self._request()
        await self._patch(pod, patch)

    async def delete_pod(self, pod) -> None:
        await self._request()
        await self._delete(pod)

    async def _request(self) -> None:
        self._requests += 1
        if self._requests == self._number:
            await asyncio.sleep(0)
            self._world.remove_pod(self._victim)
            if self._answers is not None:
                raise self._answers


@pytest.mark.looptime
@pytest.mark.parametrize(
    "answers", [None, ApiError(500, "InternalError", "no"), RuntimeError("bug")]
)
@pytest.mark.parametrize("number", [1, 2, 3, 4])
@pytest.mark.parametrize("victim", ["a", "b"])
async def test_a_victim_that_somebody_else_deletes(
    kit, victim: str, number: int, answers: Exception | None
) -> None:
    """Whenever its eviction ends, and whatever the answer, somebody wakes the preemptor."""
    world = one_node(kit, cpu="4")
    world.add_pod("a", cpu="2", node_name="n0", priority=2)
    world.add_pod("b", cpu="2", node_name="n0", priority=1)
    Removal(world, victim, number, answers)
    async with running(world):
        world.add_pod("vip", cpu="4", priority=100)
        for _ in range(4):
            await asyncio.sleep(20)
            world.advance(20)
        await turns()
        assert_bound_at_once(world, "vip")


# ---- pods that respect a nomination --------------------------------------------------------------


async def kept_out(kit, *plugins, nominated: str = "", nodes: int = 1):
    """A world in which ``low`` is kept out of ``n0`` by a nominated pod that is not tried yet."""
    names = ["SchedulingGates", "NodeResourcesFit", *(one.name for one in plugins)]
    world = kit.World(*plugins, profiles={"default-scheduler": names})
    for number in range(nodes):
        world.add_node(f"n{number}", cpu="2")
    spec = {"schedulingGates": [{"name": "wait"}]}
    world.add_pod("vip", cpu="2", priority=9, spec=spec, status={"nominatedNodeName": nominated})
    if not nominated:
        # As after a preemption whose patch of the status was refused.
        info = world.queued("vip").info
        world.queue.nominator.add_nominated_pod(info, NominatingInfo("n0"))
    world.add_pod("low", cpu="2", priority=1)
    await world.attempt()
    assert world.places() == {"gated": ["vip"], "unschedulable": ["low"]}
    return world


async def test_a_deleted_pod_frees_the_node_that_only_we_nominated_it_to(kit) -> None:
    world = await kept_out(kit)
    world.remove_pod("vip")
    assert world.places() == {"backoff": ["low"]}


async def test_a_pod_that_is_to_be_bound_elsewhere_frees_the_node_of_its_nomination(kit) -> None:
    """Its new node is in its status before it is bound, which may take minutes."""
    go_on = asyncio.Event()

    async def pre_bind(plugin, state, pod, node_name) -> None:
        if pod.name == "vip":
            await go_on.wait()

    def elsewhere(plugin, state, pod, node) -> Status | None:
        ours = {"vip": "n1", "low": "n0"}[pod.name]
        return None if node.name == ours else Status.unschedulable("not here")

    plugin = kit.plugin(
        "Elsewhere", FilterPlugin, PreBindPlugin, filter=elsewhere, pre_bind=pre_bind
    )
    world = await kept_out(kit, plugin, nominated="n0", nodes=2)
    world.change_pod("vip", spec={"schedulingGates": None})
    assert (await world.schedule_next()) == ("default/vip", "n1")
    assert world.pod("vip").status.nominated_node_name == "n1"
    assert world.pod("vip").spec.node_name == ""
    assert await world.attempt() == "n0"
    go_on.set()
    await world.settle()
    assert world.pod("vip").spec.node_name == "n1"
