"""Creation of pods by the thousand, with the objects that each of them needs.

No controllers run, so their work is done here: volumes are bound to their claims, and
ResourceClaims are created from their templates.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from proreus.base.errors import NotFound, ProreusError
from proreus.base.kubernetes_version import SUPPORTED_VERSIONS
from proreus.objects.scheduling import COMPOSITE_POD_GROUPS
from proreus.workbench.bench import devices, objects
from proreus.workbench.bench.api import Api, RestMapping, encode, for_each, retry_until_served
from proreus.workbench.bench.operations import CreateCompositePodGroups, CreatePodGroups, CreatePods
from proreus.workbench.bench.pods import PodTracker
from proreus.workbench.bench.templates import DEFAULT_POD, JsonObject, Template, template_of
from proreus.workbench.bench.workloads import ResolvedWorkload

PODS = "/api/v1/namespaces/{}/pods"
VOLUMES = "/api/v1/persistentvolumes"
VOLUME_CLAIMS = "/api/v1/namespaces/{}/persistentvolumeclaims"
PRIORITY_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"

POD_GROUP_VERSION = "scheduling.k8s.io/v1beta1"
"""The version of scheduler_perf's client, for any template."""
POD_GROUPS = f"/apis/{POD_GROUP_VERSION}/namespaces/{{}}/podgroups"

SIGNATURE = "signature"
"""The label that differs between pods, so that kube-scheduler does not reuse their results."""


class _Served(NamedTuple):
    """The API version of a kind, and its paths."""

    api_version: str
    mapping: RestMapping


class PodCreation:
    """Creates the pods of createPods.

    Paths of objects that are not deleted with a namespace are appended to ``created``.
    ``classes``: give pods their priority by a PriorityClass.
    """

    def __init__(
        self,
        plan: ResolvedWorkload,
        api: Api,
        pods: PodTracker,
        created: list[str],
        *,
        classes: bool,
    ) -> None:
        self.claims_of_groups: devices.ClaimNames = {}
        self._plan = plan
        self._api = api
        self._pods = pods
        self._created = created
        self._classes = classes
        self._numbers: Counter[str] = Counter()

    async def create(self, operation: CreatePods, namespace: str) -> None:
        """Create the pods of an operation concurrently, each after the objects that it needs."""
        path = PODS.format(namespace)
        bodies = self._pod_bodies(operation, namespace)
        example = self._pod(operation, self._pod_template(operation), 0)
        await self.admit(example)
        volumes = self._volumes(operation)
        claims = await devices.claim_templates_of(self._api, [example], namespace)

        async def create(item: tuple[int, str, bytes]) -> None:
            index, name, body = item
            if volumes:
                await self._create_volume(*volumes, namespace, index)
            self._pods.created[f"{namespace}/{name}"] = time.perf_counter()
            made = await self._api.create(path, body)
            if claims and made:
                await devices.create_claims_of(self._api, made, path, claims, self.claims_of_groups)

        await for_each(bodies, create)

    async def create_groups(self, operation: CreatePodGroups) -> None:
        """Create PodGroups, with their claims from templates, in a namespace that exists."""
        # A pod whose group the scheduler has not seen yet waits for it, so nobody else has to.
        template = template_of(self._plan.path(operation.template_path))
        path = POD_GROUPS.format(operation.namespace)
        bodies = [
            template.object(index, operation.count, operation.template_params)
            | {"apiVersion": POD_GROUP_VERSION}
            for index in range(operation.count)
        ]
        claims = await devices.claim_templates_of(self._api, bodies[:1], operation.namespace)

        async def create(body: JsonObject) -> None:
            made = await retry_until_served(lambda: self._api.create(path, body))
            if claims and made:
                await devices.create_claims_of(self._api, made, path, claims, self.claims_of_groups)

        await for_each(bodies, create)

    async def create_trees(self, operation: CreateCompositePodGroups) -> None:
        """Create CompositePodGroups level by level in a namespace that exists."""
        template = template_of(self._plan.path(operation.template_path))
        served = await self._served_composites()
        path = served.mapping.path(operation.namespace)

        async def create(body: JsonObject) -> None:
            await self._api.create(path, body | {"apiVersion": served.api_version})

        for level, (count, children) in enumerate(operation.levels, start=1):
            of_level = operation.template_params | {"Level": level, "ChildrenCount": children}
            bodies = []
            for index in range(count):
                parent = index // max(operation.composites, 1)
                of_parent = {"ParentLevel": level - 1, "ParentIndex": parent} if level > 1 else {}
                bodies.append(template.object(index, count, of_level | of_parent))
            await for_each(bodies, create)

    async def _served_composites(self) -> _Served:
        """Return how the apiserver serves CompositePodGroups, in the newest version that it has."""
        for version in sorted(SUPPORTED_VERSIONS, reverse=True):
            resource = COMPOSITE_POD_GROUPS.as_of(version)
            kind = {"apiVersion": resource.api_version, "kind": resource.kind}
            with suppress(NotFound, KeyError):
                return _Served(resource.api_version, await self._api.rest_mapping_for(kind))
        raise ProreusError("the apiserver does not serve CompositePodGroups")

    async def admit(self, pod: JsonObject) -> None:
        """Create the PriorityClass of a pod, where admission requires one."""
        if self._classes and (made := objects.take_priority_by_class(pod)):
            await self._api.create(PRIORITY_CLASSES, made)
            self._created.append(f"{PRIORITY_CLASSES}/{made['metadata']['name']}")

    def _pod_bodies(
        self, operation: CreatePods, namespace: str
    ) -> Iterator[tuple[int, str, bytes]]:
        """Yield index, name and JSON of each pod; a static template is read only once."""
        template, batch = self._pod_template(operation), operation.signature_batch_size
        pod = self._pod(operation, template, 0)
        for index in range(operation.count):
            if index and not template.static:
                pod = self._pod(operation, template, index)
            if self._classes:
                objects.take_priority_by_class(pod)
            if batch:
                objects.label(pod, SIGNATURE, f"signature-label-{index // batch}")
            if operation.persistent_volume_claim_template_path:
                objects.with_claim(pod, index)
            metadata = pod.get("metadata", {})
            prefix = metadata.get("generateName", "pod-")
            name = metadata.get("name") or f"{prefix}{self._next(namespace, prefix)}"
            yield index, name, encode(pod | {"metadata": metadata | {"name": name}})

    def _next(self, namespace: str, prefix: str) -> int:
        number = self._numbers[f"{namespace}/{prefix}"]
        self._numbers[f"{namespace}/{prefix}"] += 1
        return number

    def _volumes(self, operation: CreatePods) -> tuple[JsonObject, JsonObject] | None:
        """Return the volume and the claim of which each pod gets a copy, or None."""
        volume = self._template(operation.persistent_volume_template_path)
        claim = self._template(operation.persistent_volume_claim_template_path)
        return (volume.object(), claim.object()) if volume and claim else None

    async def _create_volume(
        self, volume: JsonObject, claim: JsonObject, namespace: str, index: int
    ) -> None:
        """Create a volume and its claim, bound to each other as by the volume controller."""
        volume, claim = objects.bound_volume(volume, claim, namespace, index)
        claims, phase = VOLUME_CLAIMS.format(namespace), {"status": {"phase": "Bound"}}
        name = volume["metadata"]["name"]
        await self._api.create(claims, claim)
        await self._api.patch(f"{claims}/pvc-{index}/status", phase)
        await self._api.create(VOLUMES, volume)
        await self._api.patch(f"{VOLUMES}/{name}/status", phase)
        self._created.append(f"{VOLUMES}/{name}")

    def _pod(self, operation: CreatePods, template: Template, index: int) -> JsonObject:
        return template.object(index, max(operation.count, 1), operation.template_params)

    def _template(self, path: str | None) -> Template | None:
        return template_of(self._plan.path(path)) if path else None

    def _pod_template(self, operation: CreatePods) -> Template:
        path = operation.pod_template_path or self._plan.test_case.default_pod_template_path
        return self._template(path) or DEFAULT_POD
