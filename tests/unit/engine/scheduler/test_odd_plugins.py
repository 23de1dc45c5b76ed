"""Plugins that return or raise odd things at every point: no other pod suffers, and none is lost.

Each case is a whole scheduler with a plugin that is odd for the pods ``odd-…``, for each in another
way, and correct for all others. An exception that leaves the scheduler, which would end a live
process, fails the test.
"""

from __future__ import annotations

import asyncio
import io
import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Set
from fractions import Fraction
from typing import Any

import msgspec
import numpy as np
import pytest

from proreus.base import logs
from proreus.engine.runtime.plugin_health import FailureRules
from proreus.framework.events import ADD, NODE, ClusterEvent, plugin_event
from proreus.framework.plugin import (
    BindPlugin,
    FeasibleFilterPlugin,
    FetchingPlugin,
    FilterPlugin,
    PermitPlugin,
    Plugin,
    PostBindPlugin,
    PostFilterPlugin,
    PreBindPlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    PreScorePlugin,
    ReservePlugin,
    ScorePlugin,
)
from proreus.framework.post_filter_result import NominatingInfo, PostFilterResult, Victims
from proreus.framework.status import Code, Status
from proreus.insight.explain import Explainer
from proreus.objects.kinds import PODS
from proreus.offline.cluster import OfflineOptions

SURROGATE = "caf\ud800e"
LONG = "x" * 2_000_000
NO = Status.unschedulable("no")


class Text(str):
    """As NumPy's texts are."""


def fails(*_: Any, **__: Any) -> Any:
    raise LookupError(SURROGATE)


class Bad:
    """An object all of whose methods raise."""

    __eq__ = __ne__ = __lt__ = __hash__ = __bool__ = __len__ = __iter__ = fails
    __getitem__ = __contains__ = __str__ = __repr__ = __array__ = __int__ = __float__ = fails


class OnDevice:
    """An array that NumPy cannot read."""

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("no implicit conversion")


class LazySet(Set[str]):
    """A set whose names are made when they are asked for."""

    __contains__ = __iter__ = fails

    def __len__(self) -> int:
        return 2


class LeavingSet(LazySet):
    """A set that wants to end the process."""

    def __iter__(self) -> Iterator[str]:
        raise SystemExit("set")


def nested(depth: int) -> tuple[Any, ...]:
    value: tuple[Any, ...] = ()
    for _ in range(depth):
        value = (value,)
    return value


def read_only() -> Any:
    scores = np.array([1, 2, 3])
    scores.setflags(write=False)
    return scores


def coroutine() -> Coroutine[Any, Any, None]:
    """Return a coroutine that nobody awaits, closed so that Python does not warn of it."""

    async def nothing() -> None:
        """Do nothing."""

    made = nothing()
    made.close()
    return made


def with_note() -> Exception:
    error = ValueError("noted")
    error.add_note(SURROGATE)
    return error


class TextOfNoText(Exception):
    """An exception whose text is no text."""

    def __str__(self) -> Any:
        return 5


VALUES: tuple[Callable[[], Any], ...] = (
    lambda: SURROGATE,
    lambda: Text("n1"),
    lambda: True,
    lambda: 2**63,
    lambda: -(10**400),
    lambda: float("nan"),
    lambda: np.float32(3),
    lambda: np.True_,
    lambda: np.ones(3),
    lambda: np.array([1, None, "x"], dtype=object),
    lambda: np.ones((3, 3), dtype=np.int64),
    lambda: np.array(5),
    lambda: np.array([1.0, float("nan"), 2.0]),
    read_only,
    lambda: np.array([2**64 - 1, 1, 2], dtype=np.uint64),
    lambda: np.arange(6)[::2],
    lambda: np.zeros(3, dtype=[("a", np.int64)]),
    lambda: [1, [2], 3],
    lambda: [10**30, 1, 2],
    lambda: [OnDevice()] * 3,
    OnDevice,
    lambda: (one for one in "ab"),
    coroutine,
    Bad,
    LazySet,
    LeavingSet,
    lambda: frozenset({"n1", None, 5}),
    lambda: {SURROGATE, Text("n1")},
    lambda: {"n1": 1}.keys(),
    lambda: {"n1": 1},
    lambda: b"\xff",
    lambda: Status,
    lambda: nested(400),
    lambda: Status.unschedulable(SURROGATE),
    lambda: Status.unschedulable("a\0b\nc\u2028\u202e"),
    lambda: Status.unschedulable(Text(SURROGATE)),
    lambda: Status.unschedulable(LONG),
    Status.unschedulable,
    lambda: Status.error(SURROGATE),
    lambda: Status.pending(SURROGATE),
    lambda: Status.unresolvable(SURROGATE),
    lambda: Status.success(SURROGATE),
    Status.skip,
    lambda: Status.wait(Fraction(1, 1000), SURROGATE),
    lambda: Status.wait(float("-inf")),
    lambda: Status.wait(-(10**400)),
    lambda: Status.wait(np.float32(0.001)),
    lambda: Status(Code.UNSCHEDULABLE, ("x",), SURROGATE),
    lambda: Status(Code.UNSCHEDULABLE, ("x",), 5),  # type: ignore[arg-type]
    lambda: Status(Code.PENDING, ("x",), ("a",)),  # type: ignore[arg-type]
    lambda: PostFilterResult(nominating=NominatingInfo(SURROGATE)),
    lambda: PostFilterResult(nominating=NominatingInfo("no such node")),
    lambda: PostFilterResult(nominating=NominatingInfo(np.str_("n1"))),
    lambda: PostFilterResult(NO, NominatingInfo(Text("n1"))),
    lambda: PostFilterResult(Status.success(SURROGATE)),
    lambda: PostFilterResult(Status.wait(5)),
    lambda: PostFilterResult(
        nominating=NominatingInfo("n1"),
        victims=Victims((Bad(),), float("nan")),  # type: ignore
    ),
)
EXCEPTIONS: tuple[Callable[[], BaseException], ...] = (
    lambda: ValueError(SURROGATE),
    lambda: ValueError(LONG),
    lambda: BaseExceptionGroup("group", [SystemExit(1), MemoryError()]),
    lambda: StopIteration(3),
    lambda: StopAsyncIteration(3),
    RecursionError,
    MemoryError,
    lambda: SystemExit(3),
    asyncio.CancelledError,
    TextOfNoText,
    with_note,
    lambda: OSError(2, SURROGATE, SURROGATE),
)


def raising(make: Callable[[], BaseException]) -> Callable[[], Any]:
    def raise_it() -> Any:
        raise make()

    return raise_it


ODD = (*VALUES, *map(raising, EXCEPTIONS))
"""Functions that return something odd, or raise it."""


def odd_of(*args: Any) -> Callable[[], Any] | None:
    """Return what is odd about the pod among some arguments; None: nothing."""
    for arg in args:
        name = str(getattr(arg, "name", ""))
        if name.startswith("odd-"):
            return ODD[int(name.removeprefix("odd-"))]
    return None


def is_odd(*args: Any) -> bool:
    return odd_of(*args) is not None


# ---- plugins -----------------------------------------------------------------------------------

Methods = Mapping[str, Any]
SHARED = {"row_local": True, "sign": lambda self, pod: pod.name if is_odd(pod) else "plain"}
REJECTS = {"filter": lambda self, state, pod, node: NO if is_odd(pod) else None}
SCORES = {"score": lambda *_: 1}
GATES = {"pre_enqueue": lambda self, pod: NO if is_odd(pod) else None}
HOLDS = {"permit": lambda self, state, pod, node_name: NO if is_odd(pod) else None}
CORRECT = {"score": 1, "score_all": 1, "sign": 1, "sort_key": 0, "invalidation_key": 0}

POINTS: dict[str, tuple[tuple[type[Plugin], ...], Methods]] = {
    "pre_enqueue": ((PreEnqueuePlugin,), {}),
    "pre_filter": ((PreFilterPlugin,), {}),
    "filter": ((FilterPlugin,), {}),
    "filter, shared": ((FilterPlugin,), SHARED),
    "filter_all": ((FilterPlugin,), {}),
    "sign": ((FilterPlugin, ScorePlugin), {"row_local": True, "filter": lambda *_: None, **SCORES}),
    "filter_feasible": ((FeasibleFilterPlugin, PreFilterPlugin), {"pre_filter": lambda *_: None}),
    "post_filter": ((PostFilterPlugin, FilterPlugin), REJECTS),
    "pre_score": ((PreScorePlugin,), {}),
    "score": ((ScorePlugin,), {}),
    "score, shared": ((ScorePlugin,), SHARED),
    "score_all": ((ScorePlugin,), {}),
    "score_all, shared": ((ScorePlugin,), SHARED),
    "normalize": ((ScorePlugin,), SCORES),
    "normalize, shared": ((ScorePlugin,), {**SCORES, **SHARED}),
    "reserve": ((ReservePlugin,), {}),
    "unreserve": ((ReservePlugin, PermitPlugin), HOLDS),
    "permit": ((PermitPlugin,), {}),
    "pre_bind_pre_flight": ((PreBindPlugin,), {}),
    "pre_bind": ((PreBindPlugin,), {}),
    "pre_bind, parallel": ((PreBindPlugin,), {"allow_parallel": True}),
    "bind": ((BindPlugin,), {}),
    "post_bind": ((PostBindPlugin,), {}),
    "fetch_pre_filter": ((FetchingPlugin, PreFilterPlugin), {"pre_filter": lambda *_: None}),
    "fetch_filter": ((FetchingPlugin, FilterPlugin), {"filter": lambda *_: None}),
    "fetch_score": ((FetchingPlugin, ScorePlugin), SCORES),
    "fetch_reserve": ((FetchingPlugin, ReservePlugin), {}),
    "fetch_permit": ((FetchingPlugin, PermitPlugin), {"permit": lambda *_: None}),
}
UNNAMED = ("post_filter", "unreserve")
"""Points whose exceptions are only logged with the plugin's name, or that reject the pod anyway."""


def odd_plugin(kit: Any, point: str) -> type[Plugin]:
    """Return a plugin one of whose methods is odd."""
    bases, methods = POINTS[point]
    name = point.partition(",")[0]

    def method(self: Plugin, *args: Any) -> Any:
        odd = odd_of(*args)
        if odd is not None:
            return odd()
        return args[-1] if name == "normalize" else CORRECT.get(name)

    async def waiting_method(self: Plugin, *args: Any) -> Any:
        odd = odd_of(*args)
        if odd is not None:
            return odd()
        return {"bind": Status.skip(), "post_filter": PostFilterResult(NO)}.get(name)

    waits = name in ("post_filter", "pre_bind", "bind") or name.startswith("fetch_")
    own = {name: waiting_method if waits else method}
    if name == "pre_bind_pre_flight":
        own["pre_bind"] = waiting_method
    made: type[Plugin] = kit.plugin("Odd", *bases, **methods, **own)
    return made


# ---- a case ------------------------------------------------------------------------------------


def new_world(kit: Any, plugin: type[Plugin], *features: str, **options: Any) -> Any:
    rules = OfflineOptions(rules=FailureRules(budget_seconds=60), decision_record_bytes=1 << 24)
    world = kit.World(plugin, features=features, options=rules, **options)
    for name in ("n1", "n2", "n3"):
        world.add_node(name)
    return world


async def drain(world: Any) -> None:
    for _ in range(2):
        while await world.schedule_next() is not None:
            pass
        world.advance(1.5)
        await world.settle()


def check(world: Any, odd: Iterable[str], plain: Iterable[str]) -> None:
    """Check what must be so whatever a plugin did."""
    world.validate()
    for name in plain:
        assert world.pod(name).spec.node_name, world.condition(name)
    explainer = Explainer(world.scheduler, world.recorder, world.api.store(PODS), world.clock)
    for name in odd:
        uid = world.pod(name).metadata.uid
        waits = world.queue.get(f"default/{name}") is not None
        assert waits or world.cache.get_pod(uid) is not None, f"{name} is lost"
        msgspec.json.encode(explainer.pod("default", name, changes=False))
    msgspec.json.encode((world.events.events, explainer.queue()))
    assert max(map(len, map(msgspec.json.encode, world.patches)), default=0) < 1_000_000


@pytest.fixture(autouse=True)
def without_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Log nothing: pytest keeps texts as they are, and its workers cannot encode all of them."""
    monkeypatch.setattr(logging.getLogger("proreus"), "disabled", True)
    for name, found in logging.root.manager.loggerDict.items():
        if name.startswith("proreus.") and isinstance(found, logging.Logger):
            monkeypatch.setattr(found, "disabled", True)


@pytest.fixture(autouse=True)
def as_in_a_process() -> Iterator[None]:
    """Write logs as a process does."""
    raises, logging.raiseExceptions = logging.raiseExceptions, True
    logs.configure(stream=io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="strict"))

    yield
    logging.getLogger().removeHandler(logs._Settings.handler)
    logs._Settings.handler = None
    logging.raiseExceptions = raises


@pytest.mark.parametrize("point", POINTS)
async def test_odd_results(kit: Any, point: str) -> None:
    world = new_world(kit, odd_plugin(kit, point))
    odd, plain = [f"odd-{number}" for number in range(len(ODD))], ["plain-1", "plain-2", "plain-3"]
    for name in ("plain-1", *odd, "plain-2"):
        world.add_pod(name)
    await drain(world)
    world.add_node("n4")
    world.add_pod("plain-3")
    await drain(world)
    check(world, odd, plain)
    if point in UNNAMED:
        return
    for name in odd[len(VALUES) :]:
        condition = world.condition(name)
        assert condition is None or '"Odd"' in condition.message, name


# ---- what is not called for one pod ------------------------------------------------------------


async def schedules(kit: Any, plugin: type[Plugin], *features: str) -> Any:
    """Return a world in which a plugin was odd for all pods, and all pods were scheduled."""
    world = new_world(kit, plugin, *features)
    for number in range(3):
        world.add_pod(f"plain-{number}")
    await drain(world)
    world.add_node("n4")
    world.add_pod("plain-3")
    await drain(world)
    check(world, (), [f"plain-{number}" for number in range(4)])
    return world


FUNCTIONS = {"hint": {}, "pre_queueing_hint": {}, "ungated_pods": GATES}
FEATURE = "SchedulerPreQueueingHints=true"


@pytest.mark.parametrize("name", FUNCTIONS)
async def test_odd_functions_of_events(kit: Any, name: str) -> None:
    for odd in ODD:
        event = ClusterEvent(NODE, ADD, **{name: lambda *_, odd=odd: odd()})
        base = PreEnqueuePlugin if name == "ungated_pods" else FilterPlugin
        methods = GATES if name == "ungated_pods" else REJECTS
        plugin = kit.plugin("Odd", base, events_to_register=(event,), **methods)
        world = new_world(kit, plugin, FEATURE)
        world.add_pod("odd-0")
        await world.schedule_next()
        world.add_node("n4")
        world.add_pod("plain")
        while await world.schedule_next() is not None:
            pass
        check(world, ["odd-0"], ["plain"])


@pytest.mark.parametrize(
    "keys", [("default/a",), {"default/a"}, iter(["default/a"]), [["a"], None]]
)
async def test_pods_to_activate_may_be_anything_that_has_keys(kit: Any, keys: Any) -> None:
    def permit(self: Plugin, state: Any, pod: Any, node_name: str) -> None:
        if isinstance(keys, list):
            state.pods_to_activate.extend(keys)
        else:
            state.pods_to_activate = keys

    await schedules(kit, kit.plugin("Odd", PermitPlugin, permit=permit))


@pytest.mark.parametrize("pods", [5, ["n1"], {"n1": None}, {"n1": ["a pod"]}, {"n1": "a"}])
async def test_replaceable_pods_that_are_none_are_the_plugins_failure(kit: Any, pods: Any) -> None:
    def pre_filter(self: Plugin, state: Any, pod: Any, nodes: Any) -> None:
        if is_odd(pod):
            state.replaceable_pods = pods

    world = new_world(kit, kit.plugin("Odd", PreFilterPlugin, pre_filter=pre_filter))
    for name in ("odd-0", "plain"):
        world.add_pod(name)
    await drain(world)
    check(world, ["odd-0"], ["plain"])
    assert 'running PreFilter plugin "Odd"' in world.condition("odd-0").message


@pytest.mark.parametrize("clone", [fails, raising(lambda: SystemExit(3)), 5])
async def test_data_that_cannot_be_cloned_fail_the_attempt(kit: Any, clone: Any) -> None:
    class Data:
        pass

    Data.clone = clone  # type: ignore[attr-defined]

    def pre_filter(self: Plugin, state: Any, pod: Any, nodes: Any) -> None:
        if is_odd(pod):
            state.write("Odd", Data())

    world = new_world(kit, kit.plugin("Odd", PreFilterPlugin, pre_filter=pre_filter))
    nominated = kit.make_pod("nominated", priority=50, status={"nominatedNodeName": "n1"}).pod
    world.api.put(PODS, nominated)
    world.queue.pop()
    for name in ("odd-0", "plain"):
        world.add_pod(name)
    await drain(world)
    check(world, ["odd-0"], ["plain"])
    assert 'cloning the data of "Odd"' in world.condition("odd-0").message


@pytest.mark.parametrize("shared", [{}, SHARED])
async def test_a_rejection_is_of_the_plugin_that_returned_it(kit: Any, shared: Methods) -> None:
    def filter_all(self: Plugin, state: Any, pod: Any, nodes: Any, verdicts: Any) -> None:
        status = Status(Code.UNSCHEDULABLE, ("no",), "NodeResourcesFit")
        verdicts.reject_with(np.ones(len(nodes), dtype=np.bool_), status)

    world = new_world(kit, kit.plugin("Odd", FilterPlugin, filter_all=filter_all, **shared))
    world.add_pod("p")
    await world.attempt()
    assert world.queued("p").unschedulable_plugins == {"Odd"}


async def test_only_events_can_be_announced(kit: Any) -> None:
    def permit(self: Plugin, state: Any, pod: Any, node_name: str) -> None:
        if is_odd(pod):
            self.handle.announce(SURROGATE)  # type: ignore[arg-type]
        self.handle.announce(plugin_event(SURROGATE))

    world = new_world(kit, kit.plugin("Odd", PermitPlugin, permit=permit))
    for name in ("odd-0", "plain"):
        world.add_pod(name)
    await drain(world)
    check(world, ["odd-0"], ["plain"])
    assert "event must be a ClusterEvent" in world.condition("odd-0").message
