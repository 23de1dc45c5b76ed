"""Pods with a deferred resize (KEP-5836): queued although they have a node, and what follows."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from proreus.base.feature_gates import FeatureGates
from proreus.base.kubernetes_version import V1_37
from proreus.config.default_plugins import default_plugins
from proreus.engine.runtime.profile import SKIPPED_FOR_DEFERRED_RESIZES
from proreus.framework.events import NODE_ADD
from proreus.framework.plugin import FilterPlugin, PermitPlugin, PostFilterPlugin, PreFilterPlugin
from proreus.framework.post_filter_result import PostFilterResult
from proreus.framework.status import Status
from proreus.objects.codec import decoder_for
from proreus.objects.kinds import PODS
from proreus.objects.scheduling import POD_GROUPS, PodGroup

GATE = "InPlacePodVerticalScalingSchedulerPreemption=true"
DEFERRED = {"type": "PodResizePending", "status": "True", "reason": "Deferred"}
DEFAULT = (
    "NodeName",
    "TaintToleration",
    "DeferredPodScheduling",
    "NodeResourcesFit",
    "DefaultPreemption",
)


def held(cpu: str, *conditions: dict) -> dict:
    """Return the status of a running pod that holds an amount of cpu."""
    resources = {"name": "main", "resources": {"requests": {"cpu": cpu}}}
    resources["allocatedResources"] = {"cpu": cpu}
    scheduled = {"type": "PodScheduled", "status": "True"}
    return {
        "phase": "Running",
        "conditions": [scheduled, *conditions],
        "containerStatuses": [resources],
    }


def requesting(cpu: str) -> dict:
    return {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]}


@pytest.fixture
def make_world(kit):
    def make(*plugins, names=DEFAULT, features=(GATE,), emulate=V1_37, **config):
        profiles = {"default-scheduler": [*names, *(plugin.name for plugin in plugins)]}
        return kit.World(*plugins, profiles=profiles, features=features, emulate=emulate, **config)

    return make


@pytest.fixture
def world(make_world):
    return make_world()


def add_deferred(world, name: str = "p", cpu: str = "3", was: str = "1", **fields) -> None:
    """Add a pod on n0 that asks for ``cpu`` and has ``was``."""
    fields = {"node_name": "n0", "cpu": cpu, "priority": 10, **fields}
    world.add_pod(name, status=held(was, DEFERRED), **fields)


def attempts(world) -> dict[str, float]:
    family = world.scheduler.metrics.schedule_attempts_total
    return {
        result: family.labels(result, "default-scheduler").value
        for result in ("scheduled", "unschedulable", "error")
    }


# ---- in the queue and out of it ------------------------------------------------------------------


def test_a_pod_is_queued_while_its_resize_is_deferred(world) -> None:
    world.add_node("n0")
    world.add_pod(node_name="n0", cpu="1")
    assert world.places() == {}
    world.change_pod(spec=requesting("3"))
    assert world.places() == {}
    world.change_pod(status=held("1", DEFERRED))
    assert world.places() == {"active": ["p"]}
    assert world.cache.table.requested["cpu"].tolist() == [3000]
    world.validate()
    world.change_pod(status=held("3"))
    assert world.places() == {}
    assert world.cache.pod_count == 1
    world.validate()


@pytest.mark.parametrize("reason", ["Infeasible", ""])
def test_other_resizes_are_not_queued(world, reason: str) -> None:
    world.add_node("n0")
    world.add_pod(node_name="n0", cpu="3", status=held("1", DEFERRED | {"reason": reason}))
    assert world.places() == {}


@pytest.mark.parametrize("features", [(), (GATE.replace("true", "false"),)])
def test_nothing_is_queued_with_the_gate_off(make_world, features) -> None:
    world = make_world(names=DEFAULT, features=features)
    world.add_node("n0")
    add_deferred(world)
    world.change_pod(metadata={"labels": {"a": "b"}})
    assert world.places() == {}
    world.remove_pod()
    world.validate()


def test_a_pod_of_another_scheduler_is_not_queued(world) -> None:
    world.add_node("n0")
    add_deferred(world, scheduler_name="somebody-else")
    assert world.places() == {}


def test_a_deferred_pod_that_exists_at_the_start_is_queued(world) -> None:
    # A list brings pods in any order: here before their node.
    add_deferred(world)
    world.add_node("n0")
    assert world.places() == {"active": ["p"]}
    assert world.cache.pod_count == 1
    world.validate()


@pytest.mark.parametrize("gone", ["deleted", "finished"])
def test_a_pod_that_is_gone_leaves_the_queue(world, gone: str) -> None:
    world.add_node("n0")
    add_deferred(world)
    if gone == "deleted":
        world.remove_pod()
    else:
        world.change_pod(status={"phase": "Succeeded"})
    assert world.places() == {}
    assert world.cache.pod_count == 0
    world.validate()


def test_another_pod_of_the_name_is_not_the_deferred_one(world) -> None:
    world.add_node("n0")
    add_deferred(world)
    world.add_pod(node_name="n0", cpu="1", metadata={"uid": "another"})
    assert world.places() == {}
    assert world.cache.uids() == ["another"]
    world.validate()


async def test_an_update_reaches_the_queued_version(world) -> None:
    world.add_node("n0", cpu="2")
    world.add_pod("other", node_name="n0", cpu="1", priority=20)
    add_deferred(world, cpu="3")
    world.change_pod(spec=requesting("2500m"))
    assert world.queued().info.requests.amounts["cpu"] == 2500
    await world.attempt()
    world.change_pod(metadata={"labels": {"a": "b"}})
    assert world.places() == {"unschedulable": ["p"]}
    assert world.queued().pod.metadata.labels == {"a": "b"}


# ---- an attempt ----------------------------------------------------------------------------------


async def test_a_resize_that_fits_waits_for_the_kubelet(world) -> None:
    world.add_node("n0", cpu="4")
    world.add_node("n1", cpu="4")
    add_deferred(world, cpu="3")
    failures = record_failures(world)
    assert await world.attempt() == ""
    text = "0/1 nodes are available: 1 pod resize fits, waiting for Kubelet actuation."
    assert [failure.message for failure in failures] == [text]
    assert world.places() == {"unschedulable": ["p"]}
    assert world.queued().unschedulable_plugins == {"DeferredPodScheduling"}
    assert world.cache.assumed_count == 0
    assert world.cache.table.requested["cpu"].tolist() == [3000, 0]
    assert attempts(world) == {"scheduled": 0, "unschedulable": 1, "error": 0}


async def test_nothing_is_bound_without_the_plugin(make_world) -> None:
    world = make_world(names=[n for n in DEFAULT if n != "DeferredPodScheduling"])
    world.add_node("n0", cpu="4")
    add_deferred(world)
    failures = record_failures(world)
    assert await world.attempt() == ""
    assert "is in the cache, so can't be assumed" in failures[0].message
    assert world.places() == {"backoff": ["p"]}
    assert world.pod().spec.node_name == "n0"


async def test_an_error_in_permit_is_retried(kit, make_world) -> None:
    broken = kit.plugin("Broken", PermitPlugin, permit=RuntimeError("broken"))
    world = make_world(broken, names=["NodeName", "NodeResourcesFit"])
    world.add_node("n0", cpu="4")
    add_deferred(world)
    failures = record_failures(world)
    await world.attempt()
    assert "broken" in failures[0].message
    assert world.places() == {"backoff": ["p"]}


def record_failures(world) -> list:
    found = []
    world.scheduler.observe(
        SimpleNamespace(
            after_filter=lambda *_: None,
            after_score=lambda *_: None,
            on_failure=lambda attempt, failure: found.append(failure),
        )
    )
    return found


async def test_nothing_is_written_about_a_deferred_pod(world) -> None:
    world.add_node("n0", cpu="2")
    world.add_pod("victim", node_name="n0", cpu="1", priority=0)
    add_deferred(world, cpu="2")
    before = world.pod()
    await world.attempt()
    await world.settle()
    assert world.notes() == []
    assert [name for name, _ in world.patches if name == "p"] == []
    assert world.pod() == before
    assert not world.queue.nominator.nominated_pods("n0")


async def test_less_important_pods_of_its_own_node_are_preempted(world) -> None:
    world.add_node("n0", cpu="3")
    world.add_node("n1", cpu="3")
    for node in ("n0", "n1"):
        world.add_pod(f"low-{node}", node_name=node, cpu="1", priority=0)
        world.add_pod(f"high-{node}", node_name=node, cpu="1", priority=100)
    add_deferred(world, cpu="2")
    failures = record_failures(world)
    await world.attempt()
    await world.settle()
    assert failures[0].message.endswith(
        "preemption: found a potential placement for pod on node n0, preempting 1 victims"
    )
    assert sorted(pods_of(world)) == ["high-n0", "high-n1", "low-n1", "p"]
    # The victim's end makes it try again; now it fits.
    assert world.places() == {"backoff": ["p"]}
    await world.attempt()
    assert world.queued().unschedulable_plugins == {"DeferredPodScheduling"}


async def test_a_pod_that_may_not_preempt_waits(world) -> None:
    world.add_node("n0", cpu="2")
    world.add_pod("low", node_name="n0", cpu="1", priority=0)
    add_deferred(world, cpu="2", spec={"preemptionPolicy": "Never"})
    await world.attempt()
    await world.settle()
    assert sorted(pods_of(world)) == ["low", "p"]
    assert world.queued().unschedulable_plugins == {"NodeName", "NodeResourcesFit"}


async def test_a_node_can_forbid_it(world) -> None:
    world.add_node("n0", cpu="2")
    set_policy(world, "n0", "operator")
    world.add_pod("low", node_name="n0", cpu="1", priority=0)
    add_deferred(world, cpu="2")
    failures = record_failures(world)
    await world.attempt()
    await world.settle()
    assert failures[0].message.startswith(
        "0/1 nodes are available: 1 node had resize preemption disabled."
    )
    assert sorted(pods_of(world)) == ["low", "p"]
    assert world.queued().unschedulable_plugins == {"NodeName", "DeferredPodScheduling"}
    set_policy(world, "n0")
    await world.attempt()
    await world.settle()
    assert sorted(pods_of(world)) == ["p"]


def pods_of(world) -> list[str]:
    return [pod.metadata.name for pod in world.api.store(PODS).values()]


def set_policy(world, name: str, *owners: str) -> None:
    policy = {"podPreemptionPolicy": {"disableResizePreemption": list(owners)} if owners else None}
    world.api.merge("Node", name, {"spec": policy})


async def test_plugins_that_have_no_say_are_not_asked(kit, make_world) -> None:
    assert "TaintToleration" in SKIPPED_FOR_DEFERRED_RESIZES
    world = make_world(names=DEFAULT)
    world.add_node("n0", cpu="4", taints=["dedicated=others:NoSchedule"])
    add_deferred(world)
    await world.attempt()
    assert world.queued().unschedulable_plugins == {"DeferredPodScheduling"}
    total = world.scheduler.metrics.plugin_evaluation_total
    counted = [
        total.labels("TaintToleration", point, "default-scheduler").value
        for point in ("PreFilter", "Filter")
    ]
    assert counted == [0, 0]
    # Other pods are still asked about.
    world.add_pod("new", cpu="1")
    await world.attempt()
    assert world.queued("new").unschedulable_plugins == {"TaintToleration"}


@pytest.mark.parametrize("emulated_gate", [GATE, GATE.replace("true", "false")])
async def test_out_of_tree_plugins_are_asked(kit, make_world, emulated_gate: str) -> None:
    asked: list[str] = []

    class Asked(PreFilterPlugin, FilterPlugin):
        name = "Asked"

        def pre_filter(self, state, pod, nodes):
            asked.append("PreFilter")

        def filter(self, state, pod, node):
            asked.append(node.name)

        def events_to_register(self):
            return (NODE_ADD,)

    world = make_world(Asked, features=(emulated_gate,))
    world.add_node("n0")
    world.add_node("n1")
    add_deferred(world)
    if emulated_gate == GATE:
        await world.attempt()
        assert asked == ["PreFilter", "n0"]
    else:
        assert not world.queue.poppable


async def test_nothing_but_room_is_in_its_way_with_all_default_plugins(make_world) -> None:
    gates = FeatureGates.from_list([GATE], V1_37)
    names = [
        ref.name for ref in default_plugins(gates).multi_point.enabled if ref.name != "PrioritySort"
    ]
    world = make_world(names=names)
    world.add_node("n0", cpu="2", unschedulable=True, taints=["dedicated=others:NoExecute"])
    world.add_pod("low", node_name="n0", cpu="1", priority=0, host_ports=[80], labels={"a": "b"})
    terms = [
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"a": "c"}}}
    ]
    claim = {"name": "v", "persistentVolumeClaim": {"claimName": "gone"}}
    add_deferred(
        world,
        cpu="2",
        host_ports=[80],
        node_selector={"no": "node"},
        affinity={"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}},
        spec={
            "volumes": [claim],
            "topologySpreadConstraints": [
                {"maxSkew": 1, "topologyKey": "gone", "whenUnsatisfiable": "DoNotSchedule"}
            ],
        },
    )
    await world.attempt()
    await world.settle()
    assert sorted(pods_of(world)) == ["p"]
    await world.attempt()
    assert world.queued().unschedulable_plugins == {"DeferredPodScheduling"}
    assert world.notes() == []


async def test_dynamic_resources_is_silent_in_post_filter(kit, make_world) -> None:
    class Later(PostFilterPlugin):
        name = "Later"

        async def post_filter(self, state, pod, verdicts):
            return PostFilterResult(Status.unschedulable("asked"))

        def events_to_register(self):
            return (NODE_ADD,)

    names = ["NodeName", "DeferredPodScheduling", "NodeResourcesFit", "DynamicResources"]
    world = make_world(Later, names=names)
    world.add_node("n0", cpu="1")
    add_deferred(world)
    failures = record_failures(world)
    await world.attempt()
    assert failures[0].message == "0/1 nodes are available: 1 Insufficient cpu. asked"


# ---- events --------------------------------------------------------------------------------------


@pytest.fixture
async def waiting(world):
    """A world with a pod that lacks room on n0, which more important pods take."""
    world.add_node("n0", cpu="4")
    world.add_node("n1", cpu="4")
    for node in ("n0", "n1"):
        world.add_pod(f"high-{node}", node_name=node, cpu="3", priority=100)
    add_deferred(world, cpu="2")
    await world.attempt()
    assert world.queued().unschedulable_plugins == {"NodeName", "NodeResourcesFit"}
    assert world.places() == {"unschedulable": ["p"]}
    return world


@pytest.mark.parametrize("node", ["n0", "n1"])
@pytest.mark.parametrize(
    "change",
    [
        lambda world, node: world.remove_pod(f"high-{node}"),
        lambda world, node: world.change_pod(f"high-{node}", spec=requesting("1")),
        lambda world, node: world.change_pod(f"high-{node}", spec=requesting("3500m")),
        lambda world, node: world.api.merge(
            "Node", node, {"status": {"allocatable": {"cpu": "8"}}}
        ),
    ],
    ids=["deletion", "scale-down", "scale-up", "capacity"],
)
async def test_only_what_happens_on_its_node_wakes_it(waiting, change, node: str) -> None:
    change(waiting, node)
    awake = "unschedulable" not in waiting.places()
    assert awake is (node == "n0")


@pytest.mark.parametrize("cpu", ["2500m", "1500m"])
async def test_its_own_resize_wakes_it(waiting, cpu: str) -> None:
    waiting.change_pod(spec=requesting(cpu))
    assert "unschedulable" not in waiting.places()


async def test_its_labels_do_not_wake_it(waiting) -> None:
    waiting.change_pod(metadata={"labels": {"a": "b"}})
    assert waiting.places() == {"unschedulable": ["p"]}


@pytest.mark.parametrize(("node", "awake"), [("n0", True), ("n1", False)])
async def test_a_resize_that_fits_is_tried_again_when_others_grow(world, node, awake) -> None:
    for name in ("n0", "n1"):
        world.add_node(name, cpu="4")
        world.add_pod(f"other-{name}", node_name=name, cpu="1", priority=0)
    add_deferred(world, cpu="3")
    await world.attempt()
    assert world.places() == {"unschedulable": ["p"]}
    world.change_pod(f"other-{node}", spec=requesting("2"))
    assert ("unschedulable" not in world.places()) is awake


# ---- pod groups ----------------------------------------------------------------------------------


def add_group(world, min_count: int) -> None:
    group = {
        "metadata": {"name": "g", "namespace": "default", "uid": "uid-of-g"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": min_count}}},
    }
    world.api.put(POD_GROUPS, decoder_for(PodGroup).convert(group))


async def test_a_pod_of_a_group_is_tried_alone(make_world) -> None:
    names = [*DEFAULT, "GangScheduling"]
    world = make_world(names=names, features=(GATE, "GenericWorkload=true"))
    world.add_node("n0", cpu="2")
    spec = {"schedulingGroup": {"podGroupName": "g"}}
    add_deferred(world, cpu="2", spec=spec)
    world.add_pod("low", node_name="n0", cpu="1", priority=0)
    # Its PreEnqueue still looks at the group.
    assert world.places() == {"gated": ["p"]}
    add_group(world, 1)
    assert world.places() == {"active": ["p"]}
    assert world.queue.pod_groups is not None
    assert world.queue.pod_groups.group_of(world.pod()) is None
    await world.attempt()
    await world.settle()
    assert sorted(pods_of(world)) == ["p"]
    assert world.queue.get("default/p") is not None
    world.change_pod(status=held("2"))
    assert world.places() == {}
    world.validate()


# ---- compared with the informers -----------------------------------------------------------------


async def compare(world) -> list[str]:
    async def checkpoint() -> None:
        pass

    comparer = world.assembly.comparer
    found = await comparer.differences(checkpoint)
    for difference in found:
        comparer.heal(difference)
    assert await comparer.differences(checkpoint) == []
    world.validate()
    return [str(difference) for difference in found]


async def test_a_deferred_pod_is_in_both_places_rightly(world) -> None:
    world.add_node("n0")
    add_deferred(world)
    assert await compare(world) == []
    world.queue.pop()
    assert await compare(world) == []


async def test_a_deferred_pod_that_is_not_queued_is_healed(world) -> None:
    world.add_node("n0")
    add_deferred(world)
    world.queue.delete(world.queued().info)
    assert await compare(world) == ["Pod default/p is missing"]
    assert world.places() == {"active": ["p"]}
    assert world.cache.pod_count == 1


async def test_a_queued_version_that_is_old_is_healed(world) -> None:
    world.add_node("n0")
    add_deferred(world)
    old = world.queued().info
    world.change_pod(metadata={"labels": {"a": "b"}})
    world.queued().info = old
    assert await compare(world) == ["Pod default/p is outdated"]
    assert world.queued().pod.metadata.labels == {"a": "b"}


async def test_a_pod_that_is_queued_although_it_is_resized_is_healed(world) -> None:
    world.add_node("n0")
    add_deferred(world)
    old = world.queued().info
    world.change_pod(status=held("3"))
    world.queue.add(old)
    assert await compare(world) == ["Pod default/p is queued although it has a node"]
    assert world.places() == {}
    assert world.cache.pod_count == 1


# ---- a changed configuration ---------------------------------------------------------------------


async def test_deferred_pods_of_profiles_come_and_go_with_them(kit) -> None:
    profiles = {"one": list(DEFAULT), "two": list(DEFAULT)}
    world = kit.World(profiles=profiles, features=(GATE,), emulate=V1_37)
    world.add_node("n0")
    add_deferred(world, "first", scheduler_name="one")
    add_deferred(world, "second", scheduler_name="two")
    handlers, pods = world.assembly._pod_handlers, world.api.store(PODS)
    handlers.use_scheduler_names({"two"}, pods.values())
    assert world.places() == {"active": ["second"]}
    handlers.use_scheduler_names({"one"}, pods.values())
    assert world.places() == {"active": ["first"]}
    assert world.cache.pod_count == 2
