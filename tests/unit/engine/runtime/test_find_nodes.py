"""The search: order of plugins, sampling, rotation, named nodes, nominated pods, errors."""

from __future__ import annotations

import pytest

from proreus.base.errors import PluginError
from proreus.engine.runtime.node_points import raise_filter_error
from proreus.engine.runtime.num_nodes_to_find import num_feasible_nodes_to_find
from proreus.framework.cycle_state import CycleState
from proreus.framework.plugin import FilterPlugin, PreFilterPlugin, ScorePlugin
from proreus.framework.status import Code, Status

NO = Status.unschedulable("no")


class Visits:
    """A per-node plugin that writes down which nodes it was called for."""

    def __init__(self, kit, name: str = "Visits", rejects=lambda node_name: False) -> None:
        self.names: list[str] = []

        def run_filter(plugin, state, pod, node):
            self.names.append(node.name)
            return NO if rejects(node.name) else None

        self.plugin = kit.plugin(name, FilterPlugin, filter=run_filter)


def columnar(kit, name: str, *rejected: str, status: Status = NO):
    def run_filter_all(self, state, pod, nodes, verdicts) -> None:
        for row, node in enumerate(nodes):
            if node.name in rejected:
                verdicts.reject_row(row, status)

    return kit.plugin(name, FilterPlugin, filter_all=run_filter_all)


def scoring(kit):
    return kit.plugin("Scoring", ScorePlugin, score=1)


def harness_of(kit, *plugins, nodes: int = 0):
    harness = kit.SearchHarness(*plugins)
    harness.add_nodes(*(f"n{i:03}" for i in range(nodes)))
    return harness


# ---- how many ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nodes", "profile", "overall", "wanted"),
    [
        (99, None, 5, 99),
        (100, None, 1, 100),
        (1000, None, 0, 420),
        (5000, None, 0, 500),
        (6000, None, 0, 300),
        (100_000, None, 0, 5000),
        (1000, None, 20, 200),
        (1000, 30, 20, 300),
        (1000, 0, 20, 420),
        (1999, None, 10, 199),
        (1000, None, 100, 1000),
        (0, None, 0, 0),
    ],
)
def test_num_feasible_nodes_to_find(nodes, profile, overall, wanted) -> None:
    assert num_feasible_nodes_to_find(nodes, profile, overall) == wanted


# ---- per-node plugins ----------------------------------------------------------------------------


def test_per_node_plugins_see_a_sample_and_then_the_next_one(kit) -> None:
    visits = Visits(kit)
    harness = harness_of(kit, visits.plugin, scoring(kit), nodes=250)
    found = harness.find(kit.make_pod("a"))
    # pct = 50 - 250/125 = 48: 120 of 250; the one too many is filtered and does not count
    assert found.count == 120
    assert visits.names == [f"n{i:03}" for i in range(121)]
    assert harness.search.next_start_node_index == 120

    visits.names.clear()
    found = harness.find(kit.make_pod("b"))
    assert visits.names[0] == "n120"
    assert found.count == 120
    assert harness.search.next_start_node_index == 240

    visits.names.clear()
    harness.find(kit.make_pod("c"))
    assert visits.names[9:11] == ["n249", "n000"]
    assert harness.search.next_start_node_index == 110


def test_what_is_rejected_on_the_way_to_the_one_too_many_counts(kit) -> None:
    visits = Visits(kit, rejects=lambda name: 118 <= int(name[1:]) < 130)
    harness = harness_of(kit, visits.plugin, scoring(kit), nodes=250)
    found = harness.find(kit.make_pod("a"))
    assert found.count == 120
    assert harness.search.next_start_node_index == 132  # 120 found, 12 rejected


def test_rejections_between_the_last_node_wanted_and_the_one_too_many(kit) -> None:
    visits = Visits(kit, rejects=lambda name: 120 <= int(name[1:]) < 125)
    harness = harness_of(kit, visits.plugin, scoring(kit), nodes=250)
    found = harness.find(kit.make_pod("a"))
    assert found.count == 120
    assert harness.search.next_start_node_index == 125
    assert len(found.evaluated) == 125


def test_all_of_a_small_cluster_is_seen(kit) -> None:
    visits = Visits(kit)
    harness = harness_of(kit, visits.plugin, scoring(kit), nodes=99)
    assert harness.find(kit.make_pod("a")).count == 99
    assert harness.search.next_start_node_index == 0


def test_without_score_plugins_one_node_is_enough(kit) -> None:
    visits = Visits(kit)
    harness = harness_of(kit, visits.plugin, nodes=10)
    assert harness.names(harness.find(kit.make_pod("a"))) == ["n000"]
    assert harness.names(harness.find(kit.make_pod("b"))) == ["n001"]


def test_the_order_of_a_choice_is_that_of_its_search(kit) -> None:
    visits = Visits(kit)
    harness = harness_of(kit, visits.plugin, nodes=3)
    harness.find(kit.make_pod("a"))
    assert [harness.nodes[row].name for row in harness.search.order()] == ["n000", "n001", "n002"]
    harness.find(kit.make_pod("b"))
    assert [harness.nodes[row].name for row in harness.search.order()] == ["n001", "n002", "n000"]


def test_nodes_are_visited_zone_by_zone_in_turn(kit) -> None:
    visits = Visits(kit)
    harness = kit.SearchHarness(visits.plugin, scoring(kit))
    for name, zone in [("a1", "a"), ("a2", "a"), ("b1", "b"), ("a3", "a"), ("b2", "b")]:
        harness.cache.add_node(kit.make_node(name, **{"topology.kubernetes.io/zone": zone}))
    harness.find(kit.make_pod("p"))
    assert visits.names == ["a1", "b1", "a2", "b2", "a3"]


# ---- order of plugins ----------------------------------------------------------------------------


def test_a_per_node_plugin_is_not_asked_where_an_earlier_columnar_one_rejected(kit) -> None:
    visits = Visits(kit, rejects=lambda name: True)
    harness = harness_of(kit, columnar(kit, "First", "n000"), visits.plugin, scoring(kit), nodes=2)
    found = harness.find(kit.make_pod("p"))
    assert visits.names == ["n001"]
    assert found.verdicts.status(0) == NO.with_plugin("First")


def test_a_per_node_plugin_is_asked_before_a_later_columnar_one(kit) -> None:
    visits = Visits(kit, rejects=lambda name: name == "n000")
    harness = harness_of(kit, visits.plugin, columnar(kit, "Last", "n000", "n001"), nodes=2)
    found = harness.find(kit.make_pod("p"))
    assert found.verdicts.status(0) == NO.with_plugin("Visits")
    assert found.verdicts.status(1) == NO.with_plugin("Last")


def test_a_skipped_plugin_is_not_asked(kit) -> None:
    visits = Visits(kit, rejects=lambda name: True)
    harness = harness_of(kit, visits.plugin, nodes=2)
    state = CycleState()
    state.skip_filter = frozenset({"Visits"})
    found = harness.search.find(harness.profile, state, kit.make_pod("p"), None)
    assert (visits.names, found.count) == ([], 2)


# ---- named nodes ---------------------------------------------------------------------------------


def test_only_named_nodes_are_judged(kit) -> None:
    visits = Visits(kit, rejects=lambda name: name == "n003")
    harness = harness_of(kit, visits.plugin, scoring(kit), nodes=5)
    found = harness.find(kit.make_pod("p"), frozenset({"n003", "n001", "gone"}))
    assert harness.names(found) == ["n001"]
    assert sorted(visits.names) == ["n001", "n003"]
    assert found.evaluated.tolist() == [1, 3]


def test_a_search_among_named_nodes_moves_the_start_too(kit) -> None:
    harness = harness_of(kit, kit.FitsCpu, nodes=5)
    harness.find(kit.make_pod("p"), frozenset({"n003", "n001"}))
    assert harness.search.next_start_node_index == 2


def test_among_named_nodes_too_nobody_is_asked_after_a_rejection(kit) -> None:
    fragile = kit.plugin("Fragile", FilterPlugin, filter=ValueError("must not be called"))
    harness = harness_of(kit, columnar(kit, "First", "n000"), fragile, nodes=2)
    assert harness.find(kit.make_pod("p"), frozenset({"n000"})).count == 0


# ---- nominated pods ------------------------------------------------------------------------------


def test_a_nominated_pod_takes_its_room(kit) -> None:
    harness = harness_of(kit, kit.FitsCpu, nodes=2)
    harness.nominator.pods["n000"] = [kit.make_pod("big", 950)]
    found = harness.find(kit.make_pod("p", 100))
    assert harness.names(found) == ["n001"]
    assert found.verdicts.status(0) == Status(Code.UNSCHEDULABLE, ("too little cpu",), "FitsCpu")
    assert harness.nodes[0].requested.get("cpu", 0) == 0


@pytest.mark.parametrize(("priority", "feasible"), [(-1, 2), (0, 1), (1, 1)])
def test_less_important_nominated_pods_do_not_count(kit, priority, feasible) -> None:
    harness = harness_of(kit, kit.FitsCpu, nodes=2)
    harness.nominator.pods["n000"] = [kit.make_pod("big", 950, priority=priority)]
    assert harness.find(kit.make_pod("p", 100)).count == feasible


def test_a_pod_does_not_stand_in_its_own_way(kit) -> None:
    harness = harness_of(kit, kit.FitsCpu, nodes=2)
    pod = kit.make_pod("p", 600)
    harness.nominator.pods["n000"] = [pod]
    assert harness.find(pod).count == 2


def test_the_second_pass_is_without_nominated_pods(kit) -> None:
    """What fits only because of a nominated pod (affinity to it, say) does not fit."""
    needs_company = kit.plugin(
        "Company", FilterPlugin, filter=lambda self, state, pod, node: None if node.pods else NO
    )
    harness = harness_of(kit, needs_company, nodes=2)
    harness.nominator.pods["n000"] = [kit.make_pod("friend")]
    assert harness.find(kit.make_pod("p")).count == 0


def test_pre_filter_plugins_hear_of_nominated_pods_in_a_clone_of_the_state(kit) -> None:
    class Count(PreFilterPlugin, FilterPlugin):
        def add_pod(self, state, pod, added, node) -> None:
            assert added.uid in node.pods
            state.write("count", state.get("count") or 0 + 1)

        def filter(self, state, pod, node):
            return Status.unschedulable("counted") if state.get("count") else None

    harness = harness_of(kit, Count, nodes=2)
    harness.nominator.pods["n000"] = [kit.make_pod("other")]
    state = CycleState()
    found = harness.search.find(harness.profile, state, kit.make_pod("p"), None)
    assert harness.names(found) == ["n001"]
    assert state.get("count") is None


def test_an_add_pod_error_is_the_cycles_error(kit) -> None:
    bad = kit.plugin("Bad", PreFilterPlugin, FilterPlugin, add_pod=ValueError("boom"), filter=None)
    harness = harness_of(kit, bad, nodes=2)
    harness.nominator.pods["n000"] = [kit.make_pod("other")]
    with pytest.raises(PluginError, match=r'^running AddPod on PreFilter plugin "Bad": boom$'):
        harness.find(kit.make_pod("p"))


def test_a_skipped_plugin_does_not_hear_of_nominated_pods(kit) -> None:
    bad = kit.plugin("Bad", PreFilterPlugin, FilterPlugin, add_pod=ValueError("boom"), filter=None)
    harness = harness_of(kit, bad, nodes=2)
    harness.nominator.pods["n000"] = [kit.make_pod("other")]
    state = CycleState()
    state.skip_filter = frozenset({"Bad"})
    assert harness.search.find(harness.profile, state, kit.make_pod("p"), None).count == 2


def test_a_walk_does_not_count_nodes_that_nominated_pods_fill(kit) -> None:
    """Otherwise a sample might turn out to be empty although other nodes are free."""
    visits = Visits(kit)
    harness = harness_of(kit, kit.FitsCpu, visits.plugin, nodes=3)
    for name in ("n000", "n001"):
        harness.nominator.pods[name] = [kit.make_pod(f"big-{name}", 950)]
    assert harness.names(harness.find(kit.make_pod("p", 100))) == ["n002"]


def test_many_nominations_are_judged_at_once_with_the_same_result(kit) -> None:
    forks = []
    harness = harness_of(kit, kit.FitsCpu, kit.Cordon, nodes=30)
    fork = harness.nodes.fork
    harness.nodes.fork = lambda rows: forks.append(len(rows)) or fork(rows)
    for number in range(20):
        other = kit.make_pod(f"o{number}", 950, priority=number % 3)
        harness.nominator.pods[f"n{number:03}"] = [other]
    harness.cache.assume(harness.nominator.pods["n001"][0], "n001")
    found = harness.find(kit.make_pod("p", 100, priority=1))
    assert forks == [13], "one fork of the nodes whose nominated pods are to be respected"
    free = [i for i in range(30) if i >= 20 or i % 3 == 0]
    assert harness.names(found) == [f"n{i:03}" for i in free]
    assert harness.nodes[2].requested.get("cpu", 0) == 0
    harness.cache.validate()


def test_what_nodes_came_to_with_nominated_pods_holds_until_something_changes(kit) -> None:
    forks = []
    harness = harness_of(kit, kit.FitsCpu, kit.Cordon, nodes=10)
    fork = harness.nodes.fork
    harness.nodes.fork = lambda rows: forks.append(rows.tolist()) or fork(rows)
    nominated = harness.nominator.pods
    for number in range(8):
        nominated[f"n{number:03}"] = [kit.make_pod(f"o{number}", 950 if number % 2 else 10)]

    def found(name: str, cpu: int = 100) -> list[str]:
        forks.clear()
        return harness.names(harness.find(kit.make_pod(name, cpu)))

    free = ["n000", "n002", "n004", "n006", "n008", "n009"]
    assert found("first") == free
    assert forks == [list(range(8))]
    assert found("second") == free
    assert forks == []
    harness.cache.assume(kit.make_pod("filler", 900), "n000")
    assert found("third") == free[1:]
    assert forks == [[0]]
    nominated["n002"] = [kit.make_pod("bigger", 950)]
    nominated["n001"] = [kit.make_pod("smaller", 10)]
    assert found("fourth") == ["n001", *free[2:]]
    assert forks == [[1, 2]]
    assert found("other", 995) == ["n008", "n009"]
    assert len(forks) == 1, "pods that are not alike share nothing"
    own = kit.make_pod("own", 100)
    nominated["n003"] = [own]
    forks.clear()
    assert "n003" in harness.names(harness.find(own))
    assert "n003" in found("fifth")
    assert forks == [[3]], "for others it stands in the way, though both would fit"


def test_plugins_that_count_across_nodes_hear_of_each_nominated_pod_alone(kit) -> None:
    class Count(PreFilterPlugin, FilterPlugin):
        row_local = True

        def sign(self, pod):
            return ()

        def add_pod(self, state, pod, added, node) -> None:
            state.write("count", (state.get("count") or 0) + 1)

        def filter(self, state, pod, node):
            return NO if (state.get("count") or 0) > 1 else None

    harness = harness_of(kit, Count, nodes=10)
    for number in range(10):
        harness.nominator.pods[f"n{number:03}"] = [kit.make_pod(f"o{number}")]
    assert harness.find(kit.make_pod("p")).count == 10


def test_shared_answers_stay_what_they_are_without_nominated_pods(kit) -> None:
    harness = harness_of(kit, kit.FitsCpu, nodes=2)
    harness.nominator.pods["n000"] = [kit.make_pod("big", 950)]
    assert harness.find(kit.make_pod("p", 100)).count == 1
    harness.nominator.pods.clear()
    assert harness.find(kit.make_pod("p", 100)).count == 2


# ---- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (Status.error("boom"), "boom"),
        (ValueError("boom"), "boom"),
        (Status.skip(), "Filter does not allow the status Skip"),
        (Status.wait(1), "Filter does not allow the status Wait"),
        (False, "Filter must return a Status or None, not False"),
    ],
)
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("nodes", [1, 20])
def test_what_filter_must_not_return(kit, result, text, shared, nodes) -> None:
    extra = {"row_local": True, "sign": ()} if shared else {}
    harness = harness_of(kit, kit.plugin("A", FilterPlugin, filter=result, **extra), nodes=nodes)
    with pytest.raises(PluginError) as caught:
        harness.find(kit.make_pod("p"))
    assert str(caught.value) == f'running "A" filter plugin: {text}'


@pytest.mark.parametrize("names", [None, frozenset({"n000", "n001"})])
def test_an_error_about_a_node_that_was_rejected_before_goes_unnoticed(kit, names) -> None:
    error = columnar(kit, "Error", "n000", status=Status.error("boom"))
    harness = harness_of(kit, columnar(kit, "First", "n000"), error, nodes=2)
    found = harness.find(kit.make_pod("p"), names)
    raise_filter_error(found.verdicts)
    assert harness.names(found) == ["n001"]
    other_way = harness_of(kit, error, columnar(kit, "First", "n000"), nodes=2)
    found = other_way.find(kit.make_pod("p"), names)
    with pytest.raises(PluginError, match=r'^running "Error" filter plugin: boom$'):
        raise_filter_error(found.verdicts)


def test_a_plugin_that_failed_half_way_is_asked_about_every_row_again(kit) -> None:
    broken = [False]

    def run_filter(self, state, pod, node):
        if broken[0] and node.name == "n002":
            raise ValueError("boom")
        return NO if node.name in ("n000", "n003") else None

    harness = harness_of(
        kit, kit.plugin("A", FilterPlugin, filter=run_filter, row_local=True, sign=()), nodes=4
    )
    pod = kit.make_pod("p")
    assert harness.find(pod).count == 2
    harness.add_nodes("n004")
    broken[0] = True
    with pytest.raises(PluginError):
        harness.find(pod)
    broken[0] = False
    assert harness.names(harness.find(pod)) == ["n001", "n002", "n004"]


def test_success_as_a_status_is_success(kit) -> None:
    harness = harness_of(kit, kit.plugin("A", FilterPlugin, filter=Status(Code.SUCCESS)), nodes=2)
    assert harness.find(kit.make_pod("p")).count >= 1
