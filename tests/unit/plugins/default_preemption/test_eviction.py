"""How long a preemptor has to wait for its victims."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection

import pytest

from proreus.base.errors import ApiError
from proreus.objects.meta import key_of
from proreus.objects.pod import Pod
from proreus.plugins.default_preemption.eviction import Evictor, Preemptor
from proreus.plugins.default_preemption.select_candidate import Candidate
from proreus.testing import FakeHandle, make_node, make_pod


class LateWatch:
    """An apiserver that deletes pods at once, and a watch that has not reported it yet."""

    def __init__(self, *, refuses: bool = False) -> None:
        self.deleted: list[str] = []
        self._refuses = refuses

    async def patch_pod_status(self, pod: Pod, patch: object) -> None:
        pass

    async def delete_pod(self, pod: Pod) -> None:
        if self._refuses:
            raise ApiError(500, "InternalError", "not today")
        self.deleted.append(pod.metadata.name)


class Held:
    """A victim that waits on permit."""

    def preempt(self, plugin: str, message: str) -> bool:
        return True


async def _evictor(
    api: LateWatch, *, held: bool = False
) -> tuple[Evictor, dict[str, Pod], Preemptor]:
    """Return an evictor that has evicted two pods, the informer's store, and the preemptor."""
    victims = tuple(make_pod(f"v{i}", node_name="n", priority=0) for i in range(2))
    handle = FakeHandle([make_node("n")], victims)
    handle.api = api  # type: ignore[assignment]
    if held:
        handle.waiting = {victims[1].uid: Held()}  # type: ignore[dict-item]
    store = {key_of(one.pod): one.pod for one in victims}
    evictor, preemptor = Evictor(handle, store, "DefaultPreemption"), make_pod("p", priority=9)
    evictor.evict_in_background(Candidate("n", victims, 0), Preemptor.of_pod(preemptor))
    assert evictor.running.is_running(preemptor.uid)
    for _ in range(20):
        await asyncio.sleep(0)
    return evictor, store, Preemptor.of_pod(preemptor)


async def test_a_preemptor_is_gated_until_the_watch_reports_the_last_victim() -> None:
    """Scheduled before, it would find its node full and preempt on a second one."""
    api = LateWatch()
    evictor, store, preemptor = await _evictor(api)
    assert api.deleted == ["v0", "v1"]

    assert evictor.running.is_running(preemptor.uid)
    del store["default/v0"]
    assert evictor.running.is_running(preemptor.uid)
    del store["default/v1"]
    assert not evictor.running.is_running(preemptor.uid)


async def test_a_terminating_victim_gates_no_longer() -> None:
    evictor, store, preemptor = await _evictor(LateWatch())
    going = {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 30}

    store["default/v1"] = make_pod("v1", node_name="n", metadata=going).pod

    assert not evictor.running.is_running(preemptor.uid)


async def test_a_victim_without_grace_period_gates_until_it_is_deleted() -> None:
    evictor, store, preemptor = await _evictor(LateWatch())
    going = {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0}

    store["default/v1"] = make_pod("v1", node_name="n", metadata=going).pod
    assert evictor.running.is_running(preemptor.uid)
    # Somebody's finalizer may keep it for hours.
    kept = going | {"finalizers": ["example.com/keep"]}
    store["default/v1"] = make_pod("v1", node_name="n", metadata=kept).pod
    assert not evictor.running.is_running(preemptor.uid)


@pytest.mark.looptime
async def test_victims_that_could_not_be_evicted_gate_for_a_back_off_only() -> None:
    evictor, _, preemptor = await _evictor(LateWatch(refuses=True))

    assert evictor.running.is_running(preemptor.uid)
    await asyncio.sleep(1.001)
    assert not evictor.running.is_running(preemptor.uid)


async def test_victims_that_were_not_bound_yet_gate_nobody() -> None:
    evictor, _, preemptor = await _evictor(LateWatch(), held=True)

    assert not evictor.running.is_running(preemptor.uid)


async def test_the_last_victims_deletion_ungates_pods() -> None:
    evictor, store, preemptor = await _evictor(LateWatch())
    running, (key,) = evictor.running, preemptor.pods
    store[key] = make_pod("p").pod
    assert running.is_gated(preemptor.uid, key)
    gone = store.pop("default/v0")
    assert running.ungated_by(gone.metadata.uid) == ()
    gone = store.pop("default/v1")
    assert running.ungated_by("somebody else") == (key,), "seen to be gone, whoever it is that goes"
    assert running.ungated_by(gone.metadata.uid) == (key,), "as long as its gate does not know"
    assert not running.is_gated(preemptor.uid, key)
    assert running.ungated_by(gone.metadata.uid) == ()


async def test_deleted_pods_are_not_ungated() -> None:
    evictor, store, preemptor = await _evictor(LateWatch())
    running, (key,) = evictor.running, preemptor.pods
    assert running.is_gated(preemptor.uid, key)
    gone = store.pop("default/v1")
    assert running.ungated_by(gone.metadata.uid) == ()


async def test_a_failed_eviction_ungates_pods() -> None:
    evictor, store, preemptor = await _evictor(LateWatch())
    running, (key,) = evictor.running, preemptor.pods
    store[key] = make_pod("p").pod
    another = running.begin("another")
    assert running.is_gated("another", key)
    running.end(another)
    running.end(another)
    assert running.ungated_by("nobody") == (key,)
    assert running.is_running(preemptor.uid)


async def test_ending_a_replaced_preemption_does_not_end_its_successor() -> None:
    evictor, store, _ = await _evictor(LateWatch())
    running, victim = evictor.running, store["default/v0"]
    first = running.begin("p")
    second = running.begin("p")
    running.set_last_victim(first, victim)
    running.last_victim_deleted(first)
    running.end(first)
    assert running.is_running("p")
    running.set_last_victim(second, victim)
    assert running.is_running("p")
    del store["default/v0"]
    assert not running.is_running("p")


# ---- failures, many victims, versions ----------------------------------------------------------


class Api:
    """An apiserver that refuses to delete some pods, and to patch others."""

    def __init__(
        self, *, refuses: str = "", keeps_nominations: bool = False, slow: bool = False
    ) -> None:
        self.deleted: list[str] = []
        self.at_once = self.most_at_once = 0
        self._random = random.Random(7)
        self._refuses, self._keeps_nominations, self._slow = refuses, keeps_nominations, slow

    async def patch_pod_status(self, pod: Pod, patch: dict[str, dict[str, object]]) -> None:
        if self._keeps_nominations and "nominatedNodeName" in patch["status"]:
            raise ApiError(500, "InternalError", "not today")

    async def delete_pod(self, pod: Pod) -> None:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        for _ in range(self._random.randrange(5, 40) if self._slow else 1):
            await asyncio.sleep(0)
        self.at_once -= 1
        if pod.metadata.name == self._refuses:
            raise ApiError(500, "InternalError", "not today")
        self.deleted.append(pod.metadata.name)


class Preemption:
    """Victims v0, v1, … on node n, those of ``terminating`` terminating, and an evictor."""

    def __init__(
        self,
        victims: int,
        api: Api,
        *,
        version: str = "1.37",
        held: int | None = None,
        terminating: Collection[int] = (),
    ) -> None:
        gone = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
        pods = [
            make_pod(f"v{i}", node_name="n", priority=0, metadata=gone if i in terminating else {})
            for i in range(victims)
        ]
        self.handle = FakeHandle([make_node("n")], pods, kubernetes_version=version)
        self.handle.api = api  # type: ignore[assignment]
        if held is not None:
            self.handle.waiting = {pods[held].uid: Held()}  # type: ignore[dict-item]
        self.store = {key_of(one.pod): one.pod for one in pods}
        self.evictor = Evictor(self.handle, self.store, "DefaultPreemption")
        self.preemptor = Preemptor.of_pod(make_pod("p", priority=9))
        self.candidate = Candidate("n", tuple(pods), 0)

    async def run(self) -> None:
        self.evictor.evict_in_background(self.candidate, self.preemptor)
        for _ in range(400):
            await asyncio.sleep(0)

    @property
    def results(self) -> dict[str, float]:
        total = self.handle.metrics.preemption_goroutines_execution_total
        return {name: total.labels(name).value for name in ("success", "error")}

    @property
    def counted(self) -> tuple[int, float]:
        victims = self.handle.metrics.preemption_victims
        return victims.count, victims.sum


@pytest.mark.looptime
async def test_an_eviction_that_fails_ends_the_preemption() -> None:
    """What is left would be evicted in vain; the preemptor is tried again after a back-off."""
    api = Api(refuses="v0")
    preemption = Preemption(100, api)
    await preemption.run()

    assert len(api.deleted) == 15, "those that were under way"
    assert "v99" not in api.deleted
    assert preemption.handle.activated == []
    await asyncio.sleep(1.001)
    assert preemption.handle.activated == ["default/p"]
    assert not preemption.evictor.running.is_running(preemption.preemptor.uid)
    assert preemption.results == {"success": 0, "error": 1}


@pytest.mark.looptime
async def test_a_last_victim_that_cannot_be_evicted_activates_the_preemptor() -> None:
    api = Api(refuses="v2")
    preemption = Preemption(3, api)
    await preemption.run()
    await asyncio.sleep(1.001)

    assert api.deleted == ["v0", "v1"]
    assert preemption.handle.activated == ["default/p"]


async def test_many_victims_are_evicted_sixteen_at_a_time_and_the_last_one_last() -> None:
    api = Api()
    preemption = Preemption(100, api)
    await preemption.run()

    assert api.most_at_once == 16
    assert len(api.deleted) == 100
    assert api.deleted[-1] == "v99"
    assert preemption.handle.activated == []
    assert preemption.results == {"success": 1, "error": 0}


async def test_of_many_preemptions_the_first_one_is_done_first() -> None:
    """Its preemptor can be bound then, while the victims of the others are evicted."""
    api, names = Api(slow=True), [f"v{i}" for i in range(400)]
    victims = [make_pod(name, node_name="n", priority=0) for name in names]
    handle = FakeHandle([make_node("n")], victims)
    handle.api = api  # type: ignore[assignment]
    evictor = Evictor(handle, {key_of(one.pod): one.pod for one in victims}, "DefaultPreemption")
    for number in range(40):
        preemptor = Preemptor.of_pod(make_pod(f"p{number}", priority=9))
        its_own = tuple(victims[10 * number : 10 * (number + 1)])
        evictor.evict_in_background(Candidate("n", its_own, 0), preemptor)
    for _ in range(2000):
        await asyncio.sleep(0)

    assert sorted(api.deleted) == sorted(names)
    assert api.most_at_once == 64
    evicted_by = [api.deleted.index(name) for name in names[9::10]]
    assert max(evicted_by[:10]) < 230
    assert max(evicted_by[:20]) < 320


async def test_victims_of_two_preemptions_are_deleted_once() -> None:
    """Where groups are evicted as a whole, nodes near each other lose the same ones."""
    api = Api(slow=True)
    preemption = Preemption(100, api)
    store, evictor = preemption.store, preemption.evictor
    victims = tuple(reversed(preemption.candidate.victims))
    evictor.evict_in_background(Candidate("m", victims, 0), Preemptor.of_pod(make_pod("q")))
    assert evictor.pods_leaving_other_nodes == {"n": 100}
    evictor.evict_in_background(preemption.candidate, preemption.preemptor)
    assert evictor.pods_leaving_other_nodes == {"n": 100}, "these leave the preemptor's own node"

    for _ in range(2000):
        await asyncio.sleep(0)
        for name in api.deleted:
            store.pop(f"default/{name}", None)
    assert sorted(api.deleted) == sorted(pod.name for pod in victims)
    assert len(preemption.handle.event_recorder.events) == 100
    assert preemption.results == {"success": 2, "error": 0}
    assert not evictor.pods_leaving_other_nodes


@pytest.mark.looptime
async def test_an_eviction_that_is_refused_again_and_again_is_tried_ever_more_rarely(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A webhook may refuse it for hours: neither hundreds of requests nor of lines a second."""
    api = Api(refuses="v0")
    preemption = Preemption(1, api)
    activated = preemption.handle.activated
    for pause in (1, 2, 4, 8, 10, 10):
        await preemption.run()
        await asyncio.sleep(pause - 0.1)
        assert activated == []
        await asyncio.sleep(0.101)
        assert activated == ["default/p"]
        activated.clear()
    assert [record.levelname for record in caplog.records] == ["ERROR"]


@pytest.mark.looptime
async def test_a_victim_that_another_preemption_cannot_delete_is_tried_again() -> None:
    api = Api(refuses="v0")
    preemption = Preemption(1, api)
    another = Preemptor.of_pod(make_pod("q"))
    preemption.evictor.evict_in_background(preemption.candidate, another)
    await preemption.run()
    await asyncio.sleep(1.001)
    assert preemption.handle.activated == ["default/q", "default/p"]
    assert preemption.results == {"success": 0, "error": 2}


async def test_without_a_background_the_first_error_is_raised() -> None:
    api = Api(refuses="v0")
    preemption = Preemption(100, api)
    nominator = preemption.handle.nominator
    nominator.pods["n"] = [make_pod("low", priority=1)]
    with pytest.raises(ApiError, match="not today"):
        await preemption.evictor.evict(preemption.candidate, preemption.preemptor)

    assert len(api.deleted) == 15
    assert api.at_once == 0, "none is under way any more"
    assert nominator.nominated_pods("n"), "the preemptor will not go there"


@pytest.mark.parametrize(("version", "activated"), [("1.37", ["default/p"]), ("1.36", [])])
async def test_a_last_victim_in_memory_has_no_event_that_would_requeue_the_preemptor(
    version: str, activated: list[str]
) -> None:
    preemption = Preemption(2, Api(), version=version, held=1)
    await preemption.run()

    assert preemption.handle.activated == activated


async def test_another_victim_in_memory_leaves_the_preemptor_to_the_last_ones_event() -> None:
    preemption = Preemption(2, Api(), held=0)
    await preemption.run()

    assert preemption.handle.activated == []


@pytest.mark.parametrize(("version", "counted"), [("1.37", (1, 2)), ("1.36", (0, 0))])
async def test_a_preemption_of_terminating_victims_is_counted_from_1_37_on(
    version: str, counted: tuple[int, int]
) -> None:
    api = Api()
    preemption = Preemption(2, api, version=version, terminating=(0, 1))
    await preemption.run()

    assert api.deleted == []
    assert preemption.counted == counted
    assert not preemption.evictor.running.is_running(preemption.preemptor.uid)


async def test_terminating_victims_are_counted_and_not_deleted_again() -> None:
    api = Api()
    preemption = Preemption(3, api, terminating=(1, 2))
    await preemption.run()

    assert api.deleted == ["v0"]
    assert preemption.counted == (1, 3)
    assert preemption.evictor.running.is_running(preemption.preemptor.uid), "until v0 terminates"


async def test_a_nomination_that_stays_is_an_error_but_evicts_all() -> None:
    api = Api(keeps_nominations=True)
    preemption = Preemption(2, api)
    low = make_pod("low", priority=1, status={"nominatedNodeName": "n"})
    preemption.handle.nominator.pods["n"] = [low]
    await preemption.run()

    assert api.deleted == ["v0", "v1"]
    assert preemption.results == {"success": 0, "error": 1}
    assert preemption.handle.activated == ["default/p"]
