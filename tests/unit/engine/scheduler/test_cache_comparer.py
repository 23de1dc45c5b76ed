"""Each structure is corrupted; the comparer names what is wrong, and heals it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from proreus.engine.debugger.cache_comparer import Difference
from proreus.framework.cluster_table import ClusterTable
from proreus.framework.node_info import NodeInfo
from proreus.framework.plugin import PermitPlugin
from proreus.framework.pod_info import PodInfo
from proreus.framework.pod_label_groups import PodMatch, PodQuery
from proreus.framework.status import Status
from proreus.objects.kinds import NODES, PODS
from proreus.objects.selectors import LabelSelector, parse_label_selector

QUERY = PodQuery((PodMatch(None, parse_label_selector(LabelSelector(match_labels={"app": "a"}))),))
ANTI_AFFINITY = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "a"}}}
        ]
    }
}


class Steps:
    """Counts the steps between two slices."""

    def __init__(self) -> None:
        self.count = 0

    async def checkpoint(self) -> None:
        self.count += 1


@pytest.fixture
def world(kit):
    """Two nodes with pods, one of somebody else's, and pending pods in two queues."""
    world = kit.World(kit.rejecting("No", Status.unschedulable("no")))
    world.add_node("n0", images={"i": 5}, resources={"example.com/gpu": 3})
    world.add_node("n1", labels={"zone": "z"}, taints=["k=v:NoSchedule"])
    world.add_pod("a", node_name="n0", cpu="1", host_ports=[80], labels={"app": "a"})
    world.add_pod("b", node_name="n1", memory="1Gi", affinity=ANTI_AFFINITY, labels={"app": "a"})
    world.add_pod("c", node_name="n1", scheduler_name="somebody-else")
    world.add_pod("d", node_name="n9")
    world.add_pod("p")
    world.add_pod("q")
    world.add_pod("foreign", scheduler_name="somebody-else")
    world.cache.table.count_pods(QUERY)
    world.cache.table.label("zone")
    (existing,) = world.cache.table.pod_index.required_anti.counted.values()
    world.cache.table.count_terms([(existing, 1)])
    return world


async def compare(world) -> list[Difference]:
    return await world.assembly.comparer.differences(Steps().checkpoint)


async def heal(world) -> list[str]:
    """Heal all differences; return them, once it is certain that none is left."""
    found = await compare(world)
    comparer = world.assembly.comparer
    for difference in found:
        if comparer.persists(difference):
            comparer.heal(difference)
    assert await compare(world) == []
    world.validate()
    return sorted(f"{one.structure}: {one}" for one in found)


async def test_what_agrees_is_no_difference(world) -> None:
    steps = Steps()
    assert await world.assembly.comparer.differences(steps.checkpoint) == []
    # A step for each node, stored pod, cached pod and queued pod: none is longer than one object.
    assert steps.count == 2 + 7 + 4 + 2


async def test_pods_that_are_being_scheduled_are_no_difference(kit) -> None:
    hold = kit.plugin("Hold", PermitPlugin, permit=Status.wait(60))
    world = kit.World(hold)
    world.add_node("n0")
    world.add_pod()
    queued = world.queue.pop()
    assert await compare(world) == []  # popped
    await world.scheduler.schedule_one(queued)
    await world.settle()
    assert world.cache.is_assumed("uid-of-default-p")
    assert await compare(world) == []  # held by Permit
    world.change_pod(metadata={"labels": {"a": "b"}})
    assert await compare(world) == []
    for waiting in world.scheduler.waiting_pods:
        waiting.allow("Hold")
    await world.settle()
    assert not world.cache.is_assumed("uid-of-default-p")
    assert await compare(world) == []


async def test_a_pod_that_is_being_deleted_may_be_nowhere(world) -> None:
    world.change_pod("p", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    world.queue.delete(world.queued("p").info)
    assert await compare(world) == []


# ---- the columns ---------------------------------------------------------------------------------

COLUMNS: dict[str, Callable[..., object]] = {
    "pod_count": lambda t, row: t._node_state.pod_count.__setitem__(row, 7),
    "allowed_pods": lambda t, row: t._node_state.allowed_pods.__setitem__(row, 7),
    "unschedulable": lambda t, row: t._node_state.unschedulable.__setitem__(row, True),
    "taint_set": lambda t, row: t._node_state.taint_set.__setitem__(row, 99),
    "port_set": lambda t, row: t._node_state.port_set.__setitem__(row, 99),
    "image_set": lambda t, row: t._node_state.image_set.__setitem__(
        row, t._node_state.image_set[row] ^ 1
    ),
    "allocatable": lambda t, row: t.allocatable._put_sparse(row, "example.com/gpu", 9),
    "requested": lambda t, row: t.requested.arrays["cpu"].__setitem__(row, 1),
    "nonzero_requested": lambda t, row: t.nonzero_requested.arrays["cpu"].__setitem__(row, 1),
    "label zone": lambda t, row: t._labels._columns.get("zone").codes.__setitem__(row, 99),
    "row": lambda t, row: setattr(t.infos[row], "row", 5),
    "order": lambda t, row: t.infos[row].order.clear(),
    "used_ports": lambda t, row: set.add(t.infos[row].used_ports, "x"),
}


@pytest.mark.parametrize("column", COLUMNS)
async def test_a_wrong_cell_is_healed(world, column) -> None:
    COLUMNS[column](world.cache.table, world.cache.table.rows["n0"])
    found = await heal(world)
    # A wrong set in the NodeInfo is found where the column is compared with it.
    column = "port_set" if column == "used_ports" else column
    assert found == [f"columns: Node n0 has a wrong {column}"]


async def test_wrong_sums_of_a_node_are_healed_in_node_and_columns(world) -> None:
    table = world.cache.table
    row = table.rows["n0"]
    dict.__setitem__(table.infos[row].requested, "cpu", 3000)
    table.requested.arrays["cpu"][row] = 3000
    assert await heal(world) == ["columns: Node n0 has a wrong requested"]
    assert table.requested["cpu"][row] == 1000


@pytest.mark.parametrize("what", ["groups", "query", "term", "term column"])
async def test_wrong_counts_of_pods_are_healed(world, what) -> None:
    table = world.cache.table
    row, index = table.rows["n1"], table.pod_index
    (existing,) = index.required_anti.counted.values()
    match what:
        case "groups":
            for group in index._groups:
                if row in group.by_row:
                    group.by_row[row] += 1
        case "query":
            index._columns[QUERY].counts[row] = 4
        case "term":
            existing.by_row[row] = 2
        case "term column":
            existing.column.counts[row] = 2
    assert await heal(world) == ["columns: Node n1 has a wrong pod_index"]
    assert table.count_pods(QUERY).tolist() == [1, 1]


async def test_rows_that_are_mixed_up_are_healed(world) -> None:
    rows = world.cache.table.rows
    dict.update(rows, n0=rows["n1"])
    dict.pop(rows, "n1")
    assert [one for one in await heal(world) if "Node" in one] == [
        "columns: Node n0 has a wrong row number",
        "columns: Node n1 has a wrong row number",
    ]


async def test_a_healed_column_wakes_pods_that_it_may_have_kept_waiting(world) -> None:
    await world.attempt()
    assert "unschedulable" in world.places()
    world.cache.table._node_state.pod_count[0] = 110
    world.advance(20)
    await heal(world)
    assert "unschedulable" not in world.places()


# ---- the cache -----------------------------------------------------------------------------------


async def test_a_pod_that_the_cache_lacks_is_added(world) -> None:
    world.cache._drop("uid-of-default-a")
    assert await heal(world) == ["cache: Pod default/a is missing"]
    assert world.cache.node_of("uid-of-default-a") == "n0"


async def test_a_pod_that_only_the_node_has_goes(world) -> None:
    del world.cache._pods["uid-of-default-a"]
    del world.api.store(PODS)["default/a"]
    assert await heal(world) == ["columns: Node n0 has a wrong pods"]
    assert world.cache.table.requested["cpu"].tolist() == [0, 0]


@pytest.mark.parametrize(("name", "node"), [("a", "n0"), ("d", "n9")])
async def test_a_pod_that_its_node_lacks_is_put_there(world, name, node) -> None:
    world.cache.node_info(node).remove_pod(f"uid-of-default-{name}")
    found = await heal(world)
    assert f"columns: Pod default/{name} is not on its node" in found
    assert f"uid-of-default-{name}" in world.cache.node_info(node).pods


async def test_a_pod_that_the_store_lacks_is_removed(world) -> None:
    del world.api.store(PODS)["default/a"]
    assert await heal(world) == ["cache: Pod default/a does not exist any more"]
    assert world.cache.get_pod("uid-of-default-a") is None


async def test_another_version_of_a_pod_is_replaced(world) -> None:
    store = world.api.store(PODS)
    world.change_pod("a", metadata={"labels": {"x": "y"}})
    newer = store["default/a"]
    old = PodInfo(newer)
    world.change_pod("a", metadata={"labels": {"x": "z"}})
    world.cache.update_pod(old)
    assert await heal(world) == ["cache: Pod default/a is outdated"]
    assert world.cache.get_pod("uid-of-default-a").labels["x"] == "z"


async def test_a_pod_on_the_wrong_node_moves(world) -> None:
    pod = world.cache._drop("uid-of-default-a")
    world.cache._put(pod, "n1", assumed=False)
    assert await heal(world) == ["cache: Pod default/a is on another node"]
    assert world.cache.node_of("uid-of-default-a") == "n0"


async def test_an_assumption_that_was_not_confirmed_is_confirmed(world) -> None:
    pod = world.cache._drop("uid-of-default-a")
    world.cache._put(pod, "n0", assumed=True)
    assert await heal(world) == ["cache: Pod default/a is assumed although it is bound"]
    assert not world.cache.is_assumed("uid-of-default-a")


async def test_an_abandoned_assumption_is_forgotten_and_its_pod_queued(world) -> None:
    info = world.queued("p").info
    world.queue.delete(info)
    world.cache.assume(info, "n0")
    assert await heal(world) == ["cache: Pod default/p is assumed although nothing binds it"]
    assert not world.cache.is_assumed("uid-of-default-p")
    assert "p" in world.places()["active"]


async def test_an_assumed_pod_that_is_gone_is_forgotten(world) -> None:
    info = world.queued("p").info
    world.queue.delete(info)
    world.cache.assume(info, "n0")
    del world.api.store(PODS)["default/p"]
    assert await heal(world) == ["cache: Pod default/p does not exist any more"]
    assert world.cache.get_pod("uid-of-default-p") is None


async def test_nodes_come_and_go(world, kit) -> None:
    nodes = world.api.store(NODES)
    info = world.cache.table.infos[world.cache.table.rows["n0"]]
    world.cache.remove_node("n0")
    nodes["n2"] = kit.make_node("n2")
    del nodes["n1"]
    assert await heal(world) == [
        "cache: Node n0 is missing",
        "cache: Node n1 does not exist any more",
        "cache: Node n2 is missing",
    ]
    assert sorted(world.cache.table.rows) == ["n0", "n2"]
    assert set(info.pods) == {"uid-of-default-a"}


async def test_another_version_of_a_node_is_replaced(world) -> None:
    old = world.api.store(NODES)["n0"]
    world.api.merge("Node", "n0", {"status": {"allocatable": {"cpu": "9"}}})
    world.cache.update_node(old)
    assert await heal(world) == ["cache: Node n0 is outdated"]
    assert world.cache.table.allocatable["cpu"][world.cache.table.rows["n0"]] == 9000


# ---- the queue -----------------------------------------------------------------------------------


async def test_a_pod_that_the_queue_lacks_is_added(world) -> None:
    world.queue.delete(world.queued("p").info)
    assert await heal(world) == ["queue: Pod default/p is missing"]
    assert sorted(world.places()["active"]) == ["p", "q"]


async def test_a_pod_that_the_queue_should_not_have_goes(world) -> None:
    del world.api.store(PODS)["default/p"]
    assert await heal(world) == ["queue: Pod default/p does not exist any more"]
    assert world.places() == {"active": ["q"]}


async def test_a_bound_pod_does_not_wait(world) -> None:
    world.queue.add(world.cache.get_pod("uid-of-default-a"))
    assert await heal(world) == ["queue: Pod default/a is queued although it has a node"]
    assert sorted(world.places()["active"]) == ["p", "q"]
    assert world.cache.node_of("uid-of-default-a") == "n0"


async def test_another_version_of_a_queued_pod_is_replaced(world) -> None:
    old = world.queued("p").info
    world.change_pod("p", metadata={"labels": {"x": "y"}})
    world.queued("p").info = old
    assert await heal(world) == ["queue: Pod default/p is outdated"]
    assert world.queued("p").info.labels["x"] == "y"


async def test_a_pod_of_the_same_name_takes_the_place_of_the_one_before(world, kit) -> None:
    info = world.queued("p").info
    del world.api.store(PODS)["default/p"]
    handlers, world.api._handlers["Pod"] = world.api._handlers["Pod"], []
    world.add_pod("p", metadata={"uid": "another"})
    world.api._handlers["Pod"] = handlers
    assert info.uid == "uid-of-default-p"
    assert await heal(world) == [
        "queue: Pod default/p does not exist any more",
        "queue: Pod default/p is missing",
    ]
    assert world.queued("p").uid == "another"


def test_a_row_beyond_int64_is_no_difference(kit) -> None:
    """The column saturates, the sum does not."""
    table, info = ClusterTable(), NodeInfo("n")
    info.set_node(kit.make_node("n"))
    table.add_node(info)
    for number in range(2):
        table.add_pod(0, kit.make_pod(f"p{number}", memory=2**62, metadata={"uid": str(number)}))
    assert info.requested["memory"] == 2**63
    assert table.row_difference(0) == ""
    assert table.requested["memory"].tolist() == [np.iinfo(np.int64).max]
