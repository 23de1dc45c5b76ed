from __future__ import annotations

from proreus.testing import Harness, make_node, make_pod


def wants(name: str, *nodes: str, cpu: str = "1"):
    annotations = {"example.com/prefer-nodes": ", ".join(nodes)}
    return make_pod(name, cpu, metadata={"annotations": annotations})


def busy(node: str, cpu: str = "4", name: str = "busy"):
    return make_pod(name, cpu, node_name=node)


def counted(cluster: Harness, where: str) -> float:
    return cluster.metric("proreus_delay_scheduling_pods_total", where)


def test_a_feasible_preferred_node_is_chosen(plugin, config) -> None:
    nodes = [make_node("data"), make_node("other", cpu="64")]
    cluster = Harness([plugin], nodes, [busy("data", "3")], config=config)
    assert cluster.schedule(wants("p", "data", "elsewhere")).node == "data"
    assert counted(cluster, "preferred") == 1


def test_it_waits_a_few_opportunities_and_then_takes_any_node(plugin, config) -> None:
    cluster = Harness(
        [plugin], [make_node("data"), make_node("other")], [busy("data")], config=config
    )
    outcome = cluster.schedule(wants("p", "data"))
    assert outcome.state == "unschedulable"
    assert "waiting for data: opportunity 1 of 3 passed" in outcome.message
    for _ in range(2):
        cluster.advance(1)
        assert cluster.schedule("p").state == "unschedulable"
    cluster.advance(1)
    assert cluster.schedule("p").node == "other"
    assert counted(cluster, "other") == 1


def test_capacity_on_the_preferred_node_wakes_it(plugin, config) -> None:
    nodes = [make_node("data"), make_node("other"), make_node("third")]
    pods = [busy("data"), busy("third", name="unrelated")]
    cluster = Harness([plugin], nodes, pods, args={"DelayScheduling": {"retrySeconds": "1h"}},
                      weights={"DelayScheduling": 100})  # fmt: skip
    assert not cluster.schedule(wants("p", "data")).bound
    cluster.remove("Pod", "unrelated")
    assert cluster.queue_of("p") == "unschedulable"
    cluster.remove("Pod", "busy")
    cluster.advance(2)
    assert cluster.schedule("p").node == "data"


def test_no_pod_waits_for_a_node_that_cannot_come_free(plugin, config) -> None:
    nodes = [make_node("data", unschedulable=True), make_node("other")]
    cluster = Harness([plugin], nodes, config=config)
    assert cluster.schedule(wants("p", "data", "gone")).node == "other"


def test_no_opportunity_is_counted_while_there_is_no_other_node(plugin, config) -> None:
    cluster = Harness([plugin], [make_node("data")], [busy("data")], config=config)
    outcome = cluster.schedule(wants("p", "data"))
    assert "Insufficient cpu" in outcome.message
    assert "opportunity" not in outcome.message


def test_a_pod_that_fits_nowhere_is_not_tried_again_and_again(plugin, config) -> None:
    cluster = Harness(
        [plugin], [make_node("data"), make_node("other")], [busy("data")], config=config
    )
    assert not cluster.schedule(wants("p", "data")).bound
    cluster.add(busy("other", name="late"))
    cluster.advance(1)
    assert "Insufficient cpu" in cluster.schedule("p").message
    cluster.advance(60)
    assert cluster.queue_of("p") == "unschedulable"


def test_a_pod_that_let_others_go_first_keeps_its_place(plugin, config) -> None:
    cluster = Harness([plugin], [make_node("data"), make_node("other", cpu="2")], [busy("data")],
                      config=config)  # fmt: skip
    assert not cluster.schedule(wants("patient", "data", cpu="2")).bound
    cluster.advance(1.5)
    cluster.add(make_pod("late", cpu="2"))
    assert [outcome.pod for outcome in cluster.schedule_all()] == [
        "default/patient",
        "default/late",
    ]


def test_a_deleted_pod_is_forgotten(plugin, config) -> None:
    cluster = Harness(
        [plugin], [make_node("data"), make_node("other")], [busy("data")], config=config
    )
    assert not cluster.schedule(wants("p", "data")).bound
    cluster.remove("Pod", "p")
    assert "opportunity 1 of 3" in cluster.schedule(wants("p", "data")).message
