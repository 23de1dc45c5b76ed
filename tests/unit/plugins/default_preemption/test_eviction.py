"""How long a preemptor has to wait for its victims."""

from __future__ import annotations

import asyncio

from proreus.errors import ApiError
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
    going = {"deletionTimestamp": "2026-01-01T00:00:00Z"}

    store["default/v1"] = make_pod("v1", node_name="n", metadata=going).pod

    assert not evictor.running.is_running(preemptor.uid)


async def test_victims_that_could_not_be_evicted_gate_nobody() -> None:
    evictor, _, preemptor = await _evictor(LateWatch(refuses=True))

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
