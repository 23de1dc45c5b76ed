"""NodesWithoutPods: nodes that an extender returned as objects, without their pods."""

import numpy as np

from proreus.framework.cycle_state import CycleState
from proreus.framework.nodes_without_pods import NodesWithoutPods
from proreus.framework.pod_label_groups import PodMatch, PodQuery
from proreus.objects.selectors import EVERYTHING
from proreus.plugins.image_locality import ImageLocality
from proreus.testing.builders import make_node, make_plugin, make_pod, make_table
from proreus.testing.fake_handle import FakeHandle

NODES = [
    make_node("a", labels={"disk": "ssd"}, images={"nginx:1": 10**9}, taints=["k=v:NoSchedule"]),
    make_node("b"),
    make_node("c", labels={"disk": "hdd"}),
]
PODS = [make_pod("p", cpu="1", memory="1Gi", node_name="c", host_ports=[80])]
TABLE = make_table(NODES, PODS)


def test_columns():
    part = NodesWithoutPods(TABLE, np.array([2, 0]))
    assert len(part) == 2
    assert [node.name for node in part] == ["c", "a"]
    for column in (part.requested["cpu"], part.nonzero_requested["memory"], part.pod_count):
        assert column.tolist() == [0, 0]
    assert part.image_set.tolist() == part.port_set.tolist() == [0, 0]
    assert part.allocatable["cpu"].tolist() == [4000, 4000]
    assert part.label("disk").tolist() == TABLE.label("disk")[[2, 0]].tolist()
    assert part.taint_set.tolist() == TABLE.taint_set[[2, 0]].tolist()
    assert [node.name for node in part.take(np.array([1]))] == ["a"]
    assert part.take(np.array([0])).requested["cpu"].tolist() == [0]


def test_nodes():
    c, a = NodesWithoutPods(TABLE, np.array([2, 0]))
    assert (c.pods, c.requested, c.used_ports) == ({}, {}, set())
    assert (a.node.status.images, a.labels["disk"], len(a.taints)) == ((), "ssd", 1)
    assert (c.allocatable["cpu"], c.row) == (4000, 2)
    assert TABLE[2].pods, "the table is not touched"


def test_pods_are_not_counted():
    query = PodQuery((PodMatch(frozenset({"default"}), EVERYTHING),))
    assert TABLE.count_pods(query).tolist() == [0, 0, 1]
    assert NodesWithoutPods(TABLE, np.array([2, 0])).count_pods(query).tolist() == [0, 0]


def test_images_that_a_node_would_have_are_not_scored():
    handle = FakeHandle(NODES)
    plugin = make_plugin(ImageLocality, handle=handle)
    pod = make_pod(image="nginx:1")
    state, part = CycleState(), NodesWithoutPods(handle.nodes, np.array([0, 1]))
    assert plugin.score(state, pod, handle.nodes[0]) > 0
    assert [plugin.score(state, pod, node) for node in part] == [0, 0]
    assert plugin.score_all(state, pod, part).tolist() == [0, 0]
