"""Plays scripts of recorded cases: steps in virtual time, with observations after each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from proreus.base.errors import ConfigError
from proreus.framework.pod_info import QueuedPodInfo
from proreus.framework.queued_pod_group import QueuedPodGroupInfo
from proreus.objects.kinds import PODS
from proreus.objects.pod import POD_SCHEDULED, Pod, condition_of
from proreus.objects.resource_claims import RESOURCE_CLAIMS
from proreus.objects.scheduling import (
    COMPOSITE_POD_GROUPS,
    POD_GROUPS,
    CompositePodGroup,
    PodGroup,
)
from proreus.objects.storage import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from proreus.offline.api import JsonObject
from proreus.offline.case_errors import CaseError, reading
from proreus.offline.cluster import OfflineCluster
from proreus.offline.fake_extenders import FakeExtenders, check_behaviours

JsonList = list[Any]

_STEP_SECONDS = 0.01
"""The time by which every step of a script advances the clock at first."""

_SELECTED_NODE = "volume.kubernetes.io/selected-node"


class Script:
    """Plays the steps of a case on a cluster. ``observe`` returns additional observations."""

    def __init__(
        self, cluster: OfflineCluster, extenders: FakeExtenders, observe: Sequence[str] = ()
    ) -> None:
        self._cluster = cluster
        self._extenders = extenders
        self._bound_before = 0
        observations: dict[str, Callable[[], object]] = {
            "incomplete": self._incomplete,
            "waiting": self._waiting,
            "bound": self._newly_bound,
            "conditions": self._conditions,
            "groups": self._groups,
            "claims": self._claims,
            "calls": extenders.take_calls,
        }
        unknown = [name for name in observe if name not in observations]
        if unknown:
            raise ConfigError(f"observe: {', '.join(unknown)} cannot be observed")
        self._observations = {name: observations[name] for name in observe}

    async def play(self, place: str, step: JsonObject) -> JsonObject:
        """Play one step; return the observations once everything has settled.

        ``place``: where it is in the case, for errors. Raises ``CaseError``.
        """
        cluster = self._cluster
        await cluster.pass_time(_STEP_SECONDS)
        gone_before, self._bound_before = len(cluster.api.deleted), len(cluster.api.bound)
        popped: list[JsonList] = []
        if "advance" in step:
            await cluster.pass_time(step["advance"])
        elif "schedule" in step:
            popped = await self._schedule(step["schedule"])
        else:
            self._change(place, step)
        await cluster.settle()
        return self._moment(popped, cluster.api.deleted[gone_before:])

    def _change(self, place: str, step: JsonObject) -> None:
        api = self._cluster.api
        match step:
            case {"add": obj}:
                with reading(f"{place}.add", obj):
                    api.add(obj)
            case {"patch": patch}:
                with reading(f"{place}.patch"):
                    api.merge(patch["kind"], _key(patch), patch["patch"])
            case {"delete": reference}:
                with reading(f"{place}.delete"):
                    api.remove(reference["kind"], _key(reference))
            case {"extenders": behaviours}:
                self._extenders.behaviours.update(check_behaviours(behaviours))
            case _:
                raise CaseError(
                    f"{place}: none of add, patch, delete, advance, schedule and extenders"
                )

    async def _schedule(self, times: int) -> list[JsonList]:
        popped = []
        queue = self._cluster.scheduler.queue
        for turn in range(times):
            if not queue.poppable:
                break
            if turn:
                await self._cluster.pass_time(_STEP_SECONDS)
            outcome = await self._schedule_next()
            if outcome is None:
                break
            popped.append(outcome)
        return popped

    async def _schedule_next(self) -> JsonList | None:
        """Schedule the next pod or group; return its name and node, or the nodes of its pods."""
        cluster = self._cluster
        queued = cluster.scheduler.queue.pop()
        if queued is None:
            return None
        pods = [pod.info for pod in queued.queued_pods]
        key, node_name = await cluster.schedule_popped(queued)
        if isinstance(queued, QueuedPodGroupInfo):
            cache = cluster.scheduler.cache
            return [queued.root.name, {pod.name: cache.node_of(pod.uid) for pod in pods}]
        return [_name(key), node_name]

    def _moment(self, popped: list[JsonList], gone: list[str]) -> JsonObject:
        queue = self._cluster.scheduler.queue
        moment: JsonObject = {
            "popped": popped,
            "active": _names(queue.active_pods()),
            "backoff": _names(queue.backoff_pods()),
            "unschedulable": _names([*queue.unschedulable_pods(), *queue.gated_pods()]),
            "nominated": {
                pod.metadata.name: pod.status.nominated_node_name
                for pod in self._pods()
                if pod.status.nominated_node_name and not pod.spec.node_name
            },
            "gone": sorted(map(_name, gone)),
            **{name: observe() for name, observe in self._observations.items()},
        }
        return {field: value for field, value in moment.items() if value}

    # ---- observations --------------------------------------------------------------------------

    def _pods(self) -> Iterable[Pod]:
        return self._cluster.api.store(PODS).values()

    def _incomplete(self) -> list[str]:
        groups = self._cluster.scheduler.queue.pod_groups
        return [] if groups is None else _names(groups.incomplete)

    def _groups(self) -> dict[str, dict[str, list[str]]]:
        return {
            group.metadata.name: {
                one.type: [one.status, one.reason, _without_placement(one.message)]
                for one in group.status.conditions
            }
            for group in self._pod_groups()
            if group.status.conditions
        }

    def _pod_groups(self) -> Iterable[PodGroup | CompositePodGroup]:
        yield from self._cluster.api.store(POD_GROUPS).values()
        yield from self._cluster.api.store(COMPOSITE_POD_GROUPS).values()

    def _waiting(self) -> list[str]:
        assumed = self._cluster.scheduler.cache.assumed_pods()
        return sorted(pod.name for pod in assumed)

    def _newly_bound(self) -> dict[str, str]:
        return {_name(key): node for key, node in self._cluster.api.bound[self._bound_before :]}

    def _conditions(self) -> dict[str, str]:
        found = {}
        for pod in self._pods():
            condition = condition_of(pod, POD_SCHEDULED)
            if not pod.spec.node_name and condition is not None:
                message = _without_placement(condition.message)
                found[pod.metadata.name] = f"{condition.reason}: {message}"
        return found

    def _claims(self) -> dict[str, str]:
        api, found = self._cluster.api, {}
        for claim in api.store(PERSISTENT_VOLUME_CLAIMS).values():
            name, node = claim.metadata.name, claim.metadata.annotations.get(_SELECTED_NODE)
            if claim.spec.volume_name:
                found[name] = f"volume {claim.spec.volume_name}"
            elif node:
                found[name] = f"selected {node}"
        for volume in api.store(PERSISTENT_VOLUMES).values():
            if volume.spec.claim_ref is not None:
                found[volume.metadata.name] = f"for {volume.spec.claim_ref.name}"
        for device_claim in api.store(RESOURCE_CLAIMS).values():
            allocation = device_claim.status.allocation
            if allocation is None:
                continue
            results = " ".join(
                sorted(f"{r.request}={r.pool}/{r.device}" for r in allocation.devices.results)
            )
            users = ",".join(sorted(user.name for user in device_claim.status.reserved_for))
            found[device_claim.metadata.name] = f"{results} for {users}"
        return found


def _names(pods: Iterable[QueuedPodInfo]) -> list[str]:
    return sorted(queued.info.name for queued in pods)


def _without_placement(message: str) -> str:
    """Return a message without its part about one of several placements, an arbitrary one."""
    return message.partition(", first placement status")[0]


def _name(key: str) -> str:
    return key.rpartition("/")[2]


def _key(reference: JsonObject) -> str:
    namespace = reference.get("namespace")
    return f"{namespace}/{reference['name']}" if namespace else str(reference["name"])
