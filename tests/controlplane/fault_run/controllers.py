"""What kubelets, the volume and the claim controller would do, and the end of old pods."""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from envtest import fake_storage
from envtest.assertions import node_of
from envtest.kube_client import ApiFailure, KubeClient

from fault_run.judge import CLAIMS, PODS, VOLUME_CLAIMS, VOLUMES, Judge
from fault_run.load import create_volume
from fault_run.pod_kinds import DEVICE_CLAIMS, GANG_SIZE, KIND, LOCAL, POD_KINDS, PROVISIONED
from fault_run.pod_kinds import PODS as POD_PATH

Json = dict[str, Any]

_TICK_SECONDS = 0.2
_FULL = 0.8
"""The share of a kind's limit above which its oldest bound pods end."""


class Controllers:
    """Works on what the judge has seen; what fails is tried again a moment later.

    Each controller has a thread, as each would have a process of its own.
    """

    def __init__(self, client: KubeClient, judge: Judge, rng: random.Random) -> None:
        self.ended: dict[str, str] = {}
        """The pods that were deleted here: uid -> name."""
        self._client = client
        self._judge = judge
        self._rng = rng
        self._over = threading.Event()
        self._all_stay = threading.Event()
        self._made = 0
        self._ending_gangs: set[str] = set()
        works = (self._end_terminating, self._bind_volumes, self._clean_up)
        self._ending = self._thread(self._end_old, self._all_stay)
        self._threads = [self._ending, *(self._thread(work, self._over) for work in works)]

    def start(self) -> None:
        """Start all controllers."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End after this round."""
        self._all_stay.set()
        self._over.set()
        for thread in self._threads:
            thread.join()

    def stop_ending_pods(self) -> None:
        """Let the pods that are there stay; ``cleaned_up`` then comes true and remains so."""
        self._all_stay.set()
        self._ending.join()

    def cleaned_up(self) -> bool:
        """Return whether the pods that were ended are gone, and their claims and volumes with them.

        Between the end of a claim and that of its volume the volume is kept for a claim that is
        gone, which is no scheduler's doing.
        """
        present = {pod["metadata"]["uid"] for pod in self._judge.pods()}
        if not present.isdisjoint(self.ended):
            return False
        names = set(self.ended.values())
        claims = [*self._judge.listed(CLAIMS).values(), *self._judge.listed(VOLUME_CLAIMS).values()]
        references = (
            volume["spec"].get("claimRef") or {} for volume in self._judge.listed(VOLUMES).values()
        )
        return names.isdisjoint(claim["metadata"]["name"] for claim in claims) and names.isdisjoint(
            reference.get("name") for reference in references
        )

    def _thread(self, work: Callable[[], None], over: threading.Event) -> threading.Thread:
        return threading.Thread(target=self._repeat, args=(work, over), daemon=True)

    def _repeat(self, work: Callable[[], None], over: threading.Event) -> None:
        while not over.wait(_TICK_SECONDS):
            self._try(work)

    def _try(self, work: Callable[..., None], *arguments: Any) -> None:
        try:
            work(*arguments)
        except (ApiFailure, OSError):
            return  # the apiserver is away, or has a newer version: the next round looks again

    def end(self, pod: Json) -> None:
        """Delete a pod at once, as a kubelet does whose containers have ended."""
        meta = pod["metadata"]
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": meta["uid"]}}
        self.ended[meta["uid"]] = meta["name"]
        try:
            self._client.delete(f"{POD_PATH}/{meta['name']}", body)
        except ApiFailure as failure:
            if failure.status != 409:
                raise

    def _end_terminating(self) -> None:
        """End evicted pods, and those whose deletion here failed."""
        for pod in self._judge.pods():
            meta = pod["metadata"]
            if meta.get("deletionTimestamp") or meta["uid"] in self.ended:
                self._try(self.end, pod)

    def _end_old(self) -> None:
        by_kind: dict[str, list[Json]] = defaultdict(list)
        for pod in self._judge.pods():
            if not pod["metadata"].get("deletionTimestamp"):
                by_kind[pod["metadata"].get("labels", {}).get(KIND, "")].append(pod)
        for kind, pods in by_kind.items():
            too_many = len(pods) - int(POD_KINDS[kind].at_most * _FULL)
            if too_many <= 0 or kind == "filler":  # fillers end by eviction
                continue
            bound = [pod for pod in pods if node_of(pod)]
            if kind == "gang":
                self._end_gang(bound)
                continue
            for pod in self._rng.sample(bound, min(too_many, len(bound))):
                self._try(self.end, pod)

    def _end_gang(self, bound: list[Json]) -> None:
        """End a whole gang: one that has lost a member can never be whole again."""
        groups: dict[str, list[Json]] = defaultdict(list)
        for pod in bound:
            groups[pod["spec"]["schedulingGroup"]["podGroupName"]].append(pod)
        for name, pods in groups.items():
            if len(pods) == GANG_SIZE or name in self._ending_gangs:
                self._ending_gangs.add(name)
                for pod in pods:
                    self._try(self.end, pod)
                return

    def _bind_volumes(self) -> None:
        volumes = self._judge.listed(VOLUMES)
        claims = self._judge.listed(VOLUME_CLAIMS)
        promised = {
            uid: volume
            for volume in volumes.values()
            if (uid := volume["spec"].get("claimRef", {}).get("uid"))
        }
        for claim in claims.values():
            volume = promised.get(claim["metadata"]["uid"])
            node = claim["metadata"].get("annotations", {}).get(fake_storage.SELECTED)
            if volume is None and node:
                self._try(self._provision, claim, node)
            elif volume and not claim["spec"].get("volumeName"):
                name = claim["metadata"]["name"]
                self._try(fake_storage.bind, self._client, name, volume["metadata"]["name"])

    def _provision(self, claim: Json, node: str) -> None:
        meta = claim["metadata"]
        ref = {"kind": "PersistentVolumeClaim", "namespace": "default"}
        ref |= {"name": meta["name"], "uid": meta["uid"]}
        name = f"made-for-{meta['name']}"
        create_volume(self._client, node, name, PROVISIONED, claimRef=ref)

    def _clean_up(self) -> None:
        """Remove the claims of pods that are gone, and replace their volumes by fresh ones."""
        present = {name.partition("/")[2] for name in self._judge.listed(PODS)}
        over = set(self.ended.values()) - present
        for claim in self._judge.listed(CLAIMS).values():
            if claim["metadata"]["name"] in over:
                self._try(self._free_devices, claim)
        claims = self._judge.listed(VOLUME_CLAIMS)
        for claim in claims.values():
            if claim["metadata"]["name"] in over:
                self._try(self._free_volume, claim)
        alive = {claim["metadata"]["uid"] for claim in claims.values()}
        for volume in self._judge.listed(VOLUMES).values():
            reference = volume["spec"].get("claimRef") or {}
            # by name: a claim that we do not see yet may be new
            if reference.get("name") in over and reference.get("uid") not in alive:
                self._try(self._replace_volume, volume)

    def _free_devices(self, claim: Json) -> None:
        meta = claim["metadata"]
        path = f"{DEVICE_CLAIMS}/{meta['name']}"
        version = {"metadata": {"resourceVersion": meta["resourceVersion"]}}
        if claim.get("status", {}).get("allocation"):
            status = {"reservedFor": None, "allocation": None}
            self._client.patch(f"{path}/status", version | {"status": status})
            return
        if meta.get("finalizers"):
            no_finalizers = {"resourceVersion": meta["resourceVersion"], "finalizers": None}
            self._client.patch(path, {"metadata": no_finalizers})
            return
        self._client.delete(path)

    def _free_volume(self, claim: Json) -> None:
        path = f"{fake_storage.CLAIMS}/{claim['metadata']['name']}"
        if claim["metadata"].get("finalizers"):
            self._client.patch(path, {"metadata": {"finalizers": None}})
        self._client.delete(path)

    def _replace_volume(self, volume: Json) -> None:
        path = f"{fake_storage.VOLUMES}/{volume['metadata']['name']}"
        if volume["metadata"].get("finalizers"):
            self._client.patch(path, {"metadata": {"finalizers": None}})
        self._client.delete(path)
        if volume["spec"]["storageClassName"] == PROVISIONED:
            return
        [term] = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
        self._made += 1
        name = f"{volume['metadata']['name'].rpartition('-')[0]}-{self._made}"
        create_volume(self._client, term["matchExpressions"][0]["values"][0], name, LOCAL)
