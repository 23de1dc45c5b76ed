"""PreFilter, PostFilter, Reserve and Permit: the effect of each status, with exact texts."""

from __future__ import annotations

import pytest

from proreus.base.errors import PluginError
from proreus.engine.runtime.points import PluginTimer
from proreus.engine.runtime.scheduling_points import (
    run_permit,
    run_post_filter,
    run_pre_filter,
    run_reserve,
    run_unreserve,
)
from proreus.framework.cycle_state import CycleState
from proreus.framework.plugin import (
    FilterPlugin,
    PermitPlugin,
    PostFilterPlugin,
    PreFilterPlugin,
    ReservePlugin,
)
from proreus.framework.post_filter_result import NominatingInfo, PostFilterResult
from proreus.framework.status import Code, Status
from proreus.framework.verdicts import Verdicts

WAIT, SKIP, ERROR = Status.wait(1), Status.skip(), Status.error("boom")


# ---- PreFilter -----------------------------------------------------------------------------------


def pre_filter(kit, **results: object):
    plugins = [kit.plugin(name, PreFilterPlugin, pre_filter=a) for name, a in results.items()]
    harness, state = kit.SearchHarness(*plugins), CycleState()
    return run_pre_filter(harness.profile, state, kit.make_pod("p")), state


def test_all_nodes_are_left_when_all_plugins_agree(kit) -> None:
    outcome, state = pre_filter(kit, A=None, B=Status(Code.SUCCESS))
    assert (outcome.status, outcome.names, outcome.plugins_with_names) == (None, None, ())
    assert state.skip_filter == frozenset()


def test_skip_is_noted_in_the_state(kit) -> None:
    outcome, state = pre_filter(kit, A=SKIP, B=None, C=SKIP)
    assert outcome.status is None
    assert state.skip_filter == {"A", "C"}


def test_skips_are_noted_even_when_the_point_ends_early(kit) -> None:
    _, state = pre_filter(kit, A=SKIP, B=Status.unresolvable("no"), C=SKIP)
    assert state.skip_filter == {"A"}


def test_the_last_unschedulable_is_remembered_and_others_are_asked(kit) -> None:
    outcome, state = pre_filter(
        kit, A=Status.unschedulable("a"), B=Status.unschedulable("b"), C=SKIP
    )
    assert outcome.status == Status(Code.UNSCHEDULABLE, ("b",), "B")
    assert state.skip_filter == {"C"}


def test_unresolvable_ends_the_point_and_forgets_who_narrowed(kit) -> None:
    outcome, _ = pre_filter(
        kit, A=frozenset({"n"}), B=Status.unresolvable("no"), C=ValueError("never called")
    )
    assert outcome.status == Status(Code.UNRESOLVABLE, ("no",), "B")
    assert outcome.plugins_with_names == ()


def test_names_are_intersected(kit) -> None:
    outcome, _ = pre_filter(kit, A=frozenset({"m", "n"}), B=None, C={"n", "o"})
    assert (outcome.status, outcome.names) == (None, {"n"})
    assert outcome.plugins_with_names == ("A", "C")


def test_unschedulable_goes_before_names_that_are_left(kit) -> None:
    outcome, _ = pre_filter(kit, A=frozenset({"n"}), B=Status.unschedulable("no"))
    assert outcome.status == Status(Code.UNSCHEDULABLE, ("no",), "B")
    assert outcome.plugins_with_names == ("A",)


@pytest.mark.parametrize(
    ("results", "text"),
    [
        ({"A": frozenset()}, "node(s) didn't satisfy plugin A"),
        (
            {"B": {"m"}, "A": {"n"}, "C": ValueError("never called")},
            "node(s) didn't satisfy plugin(s) [A B] simultaneously",
        ),
    ],
)
def test_no_node_left_names_nobody_in_its_status(kit, results, text) -> None:
    outcome, _ = pre_filter(kit, **results)
    assert outcome.status == Status(Code.UNRESOLVABLE, (text,), "")
    assert set(outcome.plugins_with_names) == {name for name in results if name != "C"}


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (ERROR, "boom"),
        (ValueError("boom"), "boom"),
        (WAIT, "PreFilter does not allow the status Wait"),
        (Status.pending("x"), "PreFilter does not allow the status Pending: x"),
        (["n1"], "PreFilter must return a Status, a set of node names or None, not ['n1']"),
    ],
)
def test_what_pre_filter_must_not_return(kit, result, text) -> None:
    with pytest.raises(PluginError) as caught:
        pre_filter(kit, A=result)
    assert str(caught.value) == f'running PreFilter plugin "A": {text}'


class Passing(PreFilterPlugin):
    """Passes a pod that names no node, and counts its calls."""

    name = "Passing"
    passes_without_node_name = True
    calls = 0

    def pre_filter(self, state, pod, nodes) -> frozenset[str] | None:
        self.calls += 1
        wanted = pod.pod.spec.node_name
        return frozenset((wanted,)) if wanted else None


@pytest.mark.parametrize("place", ["first", "last"])
def test_plugins_that_pass_a_pod_are_counted_and_called_only_where_they_count(kit, place) -> None:
    other = kit.plugin("Other", PreFilterPlugin, pre_filter=None)
    plugins = [Passing, other] if place == "first" else [other, Passing]
    profile = kit.SearchHarness(*plugins).profile
    (passing,) = (one for one in profile.plugins if one.name == "Passing")
    assert profile.pre_filter == (*profile.passing_pre_filter, *profile.other_pre_filter)

    outcome = run_pre_filter(profile, CycleState(), kit.make_pod("p"))

    assert (outcome.status, outcome.names) == (None, None)
    assert passing.evaluations.pre_filter.value == 1
    assert passing.calls == (0 if place == "first" else 1)
    outcome = run_pre_filter(profile, CycleState(), kit.make_pod("p", nodeName="n1"))
    assert (outcome.names, outcome.plugins_with_names) == ({"n1"}, ("Passing",))
    assert passing.evaluations.pre_filter.value == 2


def test_the_timed_calls_of_plugins_that_pass_are_made(kit) -> None:
    profile = kit.SearchHarness(Passing).profile
    state = CycleState()
    state.timer = PluginTimer(profile.metrics)
    run_pre_filter(profile, state, kit.make_pod("p"))
    assert profile.pre_filter[0].calls == profile.pre_filter[0].evaluations.pre_filter.value == 1


def test_calls_that_skip_are_not_counted_as_evaluations(kit) -> None:
    skips = kit.plugin("A", PreFilterPlugin, pre_filter=SKIP)
    works = kit.plugin("B", PreFilterPlugin, pre_filter=None)
    harness = kit.SearchHarness(skips, works)
    run_pre_filter(harness.profile, CycleState(), kit.make_pod("p"))
    counted = dict(harness.metrics.plugin_evaluation_total.values())
    assert counted == {("A", "PreFilter", "p"): 0, ("B", "PreFilter", "p"): 1}


def test_a_signature_that_cannot_be_made_is_the_plugins_error(kit) -> None:
    bad = kit.plugin("A", FilterPlugin, filter=None, sign=KeyError("cpu"), row_local=True)
    harness = kit.SearchHarness(bad)
    harness.add_nodes("n")
    with pytest.raises(PluginError, match="cpu"):
        harness.find(kit.make_pod("p"))


def test_a_signature_that_cannot_be_hashed_is_the_plugins_error(kit) -> None:
    bad = kit.plugin("A", FilterPlugin, filter=None, sign={"a": 1}, row_local=True)
    with pytest.raises(PluginError, match="unhashable"):
        kit.SearchHarness(bad).find(kit.make_pod("p"))


# ---- PostFilter ----------------------------------------------------------------------------------


async def post_filter(kit, **results: object):
    plugins = [
        kit.plugin(
            name,
            PostFilterPlugin,
            post_filter=PostFilterResult(*a) if isinstance(a, tuple) else a,
        )
        for name, a in results.items()
    ]
    harness = kit.SearchHarness(*plugins)
    return await run_post_filter(harness.profile, CycleState(), kit.make_pod("p"), Verdicts(0))


NO_A, NO_B = Status.unschedulable("a"), Status.unschedulable("b1", "b2")
ON_N, ON_M = NominatingInfo("n"), NominatingInfo("m")


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        ({"A": (None, ON_N), "B": ValueError("never")}, (Code.SUCCESS, "", ON_N)),
        ({"A": (NO_A,), "B": (NO_B,)}, (Code.UNSCHEDULABLE, "a, b1, b2", None)),
        ({"A": (NO_A, ON_N), "B": (NO_B,)}, (Code.UNSCHEDULABLE, "a, b1, b2", ON_N)),
        ({"A": (NO_A, ON_N), "B": (NO_B, ON_M)}, (Code.UNSCHEDULABLE, "a, b1, b2", ON_M)),
        ({"A": (Status.pending("a"),), "B": (None, ON_N)}, (Code.SUCCESS, "", ON_N)),
        ({"A": (Status.unresolvable("no"),), "B": (None,)}, (Code.UNRESOLVABLE, "no", None)),
        ({"A": (NO_A, ON_N), "B": (Status.error("boom"),)}, (Code.ERROR, "boom", None)),
        ({"A": (NO_A,), "B": ValueError("boom")}, (Code.ERROR, "boom", None)),
        ({"A": (SKIP,)}, (Code.ERROR, "PostFilter does not allow Skip", None)),
        ({"A": (WAIT,)}, (Code.ERROR, "PostFilter does not allow Wait", None)),
        (
            {"A": None},
            (Code.ERROR, "PostFilter must return a PostFilterResult, not None", None),
        ),
    ],
)
async def test_post_filter(kit, results, expected) -> None:
    outcome = await post_filter(kit, **results)
    assert (outcome.code, outcome.message, outcome.nominating) == expected


# ---- Reserve -------------------------------------------------------------------------------------


def reserve(kit, **results: object) -> Status | None:
    plugins = [kit.plugin(name, ReservePlugin, reserve=a) for name, a in results.items()]
    return run_reserve(kit.SearchHarness(*plugins).profile, CycleState(), kit.make_pod("p"), "n")


@pytest.mark.parametrize("make", [Status.unschedulable, Status.unresolvable, Status.pending])
def test_any_rejection_ends_reserve(kit, make) -> None:
    status = reserve(kit, A=None, B=make("no"), C=ValueError("never called"))
    assert status == make("no").with_plugin("B")


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (ERROR, "boom"),
        (ValueError("boom"), "boom"),
        (SKIP, "Reserve does not allow the status Skip"),
        (WAIT, "Reserve does not allow the status Wait"),
    ],
)
def test_what_reserve_must_not_return(kit, result, text) -> None:
    with pytest.raises(PluginError) as caught:
        reserve(kit, A=result)
    assert str(caught.value) == f'running Reserve plugin "A": {text}'


def test_unreserve_undoes_all_in_reverse_whatever_fails(kit) -> None:
    undone = []

    def unreserve(self, state, pod, node_name) -> None:
        undone.append(self.name)
        if self.name == "B":
            raise ValueError("boom")

    plugins = [kit.plugin(name, ReservePlugin, unreserve=unreserve) for name in "ABC"]
    run_unreserve(kit.SearchHarness(*plugins).profile, CycleState(), kit.make_pod("p"), "n")
    assert undone == ["C", "B", "A"]


# ---- Permit --------------------------------------------------------------------------------------


def permit(kit, **results: object):
    plugins = [kit.plugin(name, PermitPlugin, permit=a) for name, a in results.items()]
    return run_permit(kit.SearchHarness(*plugins).profile, CycleState(), kit.make_pod("p"), "n")


def test_every_plugin_that_waits_has_its_own_timeout_of_15_minutes_at_most(kit, caplog) -> None:
    outcome = permit(kit, A=Status.wait(10), B=None, C=Status.wait(3600))
    assert outcome.timeouts == {"A": 10, "C": 900}
    assert "15 minutes at most" in caplog.text
    assert (outcome.status, outcome.code) == (None, Code.WAIT)


def test_a_rejection_withdraws_earlier_waits(kit) -> None:
    outcome = permit(kit, A=WAIT, B=Status.unschedulable("no"), C=ValueError("never called"))
    assert outcome.timeouts == {}
    assert outcome.status == Status(Code.UNSCHEDULABLE, ("no",), "B")


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (ERROR, "boom"),
        (ValueError("boom"), "boom"),
        (SKIP, "Permit does not allow the status Skip"),
    ],
)
def test_what_permit_must_not_return(kit, result, text) -> None:
    with pytest.raises(PluginError) as caught:
        permit(kit, A=result)
    assert str(caught.value) == f'running Permit plugin "A": {text}'
