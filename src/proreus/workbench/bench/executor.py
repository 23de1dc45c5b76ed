"""One pass through a workload: its operations in order, with scheduler_perf's meaning.

Background operations (churn, slow deletions) end with the workload.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Protocol

from proreus.base.errors import ApiError, ProreusError
from proreus.workbench.bench import devices, objects
from proreus.workbench.bench import operations as ops
from proreus.workbench.bench.api import Api, for_each, retry_until_served
from proreus.workbench.bench.measures import PeriodCollector
from proreus.workbench.bench.pod_creation import PODS, PodCreation
from proreus.workbench.bench.pods import PodTracker
from proreus.workbench.bench.templates import DEFAULT_NODE, JsonObject, Template, template_of
from proreus.workbench.bench.workloads import ResolvedWorkload

NAMESPACES = "/api/v1/namespaces"
NODES = "/api/v1/nodes"
CSI_NODES = "/apis/storage.k8s.io/v1/csinodes"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"


class Backlog(Protocol):
    """Holds the scheduler back, so that all measured pods exist before it starts on them."""

    async def hold(self) -> None:
        """Make the scheduler stand by."""
        ...

    async def release(self) -> None:
        """Let the scheduler start, and return once it leads."""
        ...


class Executor:
    """Runs a workload. ``current_operation`` names the running operation, for progress reports.

    ``timeout_seconds``: how long no pod may make progress before an operation fails.
    ``priority_classes``: give pods their priority by a PriorityClass, which the Priority admission
    plugin requires.
    """

    def __init__(
        self,
        plan: ResolvedWorkload,
        api: Api,
        pods: PodTracker,
        collector: PeriodCollector,
        backlog: Backlog | None = None,
        *,
        timeout_seconds: float = 600.0,
        priority_classes: bool = False,
    ) -> None:
        self.current_operation = ""
        self.expected = 0
        """The number of pods that the running operation waits for."""
        self.created: list[str] = []
        """Paths of objects that are not deleted with a namespace, in the order of creation."""
        self.namespaces: dict[str, int] = {}
        """The number of pods in each namespace that no operation has waited for yet."""
        self._plan = plan
        self._api = api
        self._pods = pods
        self._collector = collector
        self._backlog = backlog
        self._timeout_seconds = timeout_seconds
        self._nodes = 0
        self._creation = PodCreation(plan, api, pods, self.created, classes=priority_classes)
        self._background: list[asyncio.Task[None]] = []

    async def run(self) -> None:
        """Run all operations; raises ``ProreusError`` with the operation that failed."""
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                for index, operation in enumerate(self._plan.operations):
                    self.current_operation = (
                        f"{operation.opcode} ({index + 1}/{len(self._plan.operations)})"
                    )
                    await self._run(operation, index)
                for task in self._background:
                    task.cancel()
        except* ProreusError as failures:
            raise ProreusError(f"{self.current_operation}: {failures.exceptions[0]}") from failures

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run ``work`` in the background, until the end of the workload."""
        self._background.append(self._tasks.create_task(work))

    @property
    def _background_goes_on(self) -> bool:
        # A scheduler that churn keeps busy does not become idle, and nodes may fill up meanwhile.
        return any(not task.done() for task in self._background)

    async def _run(self, operation: ops.Operation, index: int) -> None:
        match operation:
            case ops.CreateNodes():
                await self._create_nodes(operation, index)
            case ops.CreateNamespaces():
                await self._create_namespaces(operation)
            case ops.CreatePods():
                await self._create_pods(operation, index)
            case ops.DeletePods():
                await self._delete_pods(operation)
            case ops.Churn():
                await self._churn(operation, index)
            case ops.Barrier():
                await self._barrier(operation)
            case ops.Sleep():
                await asyncio.sleep(operation.duration)
            case ops.StartCollectingMetrics():
                await self._collector.start(
                    operation.name,
                    operation.namespaces,
                    operation.label_selector,
                    at_once=self._background_goes_on,
                )
            case ops.StopCollectingMetrics():
                await self._collector.stop()
            case ops.CreateAny():
                await self._create_any(operation)
            case ops.CreatePodGroups():
                await self._ensure_namespace(operation.namespace)
                await self._creation.create_groups(operation)
            case ops.CreateCompositePodGroups():
                await self._ensure_namespace(operation.namespace)
                await self._creation.create_trees(operation)
            case ops.UpdateAny():
                await self._update_any(operation)
            case ops.CreateResourceDriver():
                await devices.publish(self._api, operation)
                self.created.append(SLICES)
            case ops.AllocResourceClaims():
                await devices.allocate(self._api, operation.namespace)
            case _:
                raise ProreusError(f"{operation.opcode} is not implemented")

    # nodes and namespaces

    async def _create_nodes(self, operation: ops.CreateNodes, index: int) -> None:
        template = self._template(operation.node_template_path) or DEFAULT_NODE

        async def create(number: int) -> None:
            node = template.object(number, operation.count, operation.template_params)
            if template is DEFAULT_NODE:
                node["metadata"]["generateName"] = f"node-{index}-"
            csi_node = objects.finish_node(node, operation, number, first + number)
            await self._api.create(NODES, node)
            self.created.append(f"{NODES}/{node['metadata']['name']}")
            if csi_node:
                await self._api.create(CSI_NODES, csi_node)
                self.created.append(f"{CSI_NODES}/{node['metadata']['name']}")

        first = self._nodes
        self._nodes += operation.count
        await for_each(range(operation.count), create)

    async def _create_namespaces(self, operation: ops.CreateNamespaces) -> None:
        template = self._template(operation.namespace_template_path)

        async def create(number: int) -> None:
            body = template.object(number, operation.count) if template else {}
            body.setdefault("metadata", {})["name"] = name = f"{operation.prefix}-{number}"
            await self._api.create(NAMESPACES, body)
            self.namespaces.setdefault(name, 0)

        await for_each(range(operation.count), create)

    async def _ensure_namespace(self, name: str) -> None:
        if name not in self.namespaces:
            await self._api.create(NAMESPACES, {"metadata": {"name": name}})
            self.namespaces[name] = 0

    # pods

    async def _create_pods(self, operation: ops.CreatePods, index: int) -> None:
        namespace = operation.namespace or f"namespace-{index}"
        await self._ensure_namespace(namespace)
        backlog = self._backlog if operation.collect_metrics else None
        if operation.steady_state:
            backlog = None
        if backlog:
            self.current_operation += ", the scheduler stands by"
            await backlog.hold()
            await self._creation.create(operation, namespace)
        if operation.collect_metrics:
            await self._collector.start(
                namespace, [namespace], {}, at_once=self._background_goes_on
            )
        if backlog:
            await backlog.release()
            self._collector.restart_clock()
        elif operation.steady_state:
            await self._create_steadily(operation, namespace)
        else:
            await self._creation.create(operation, namespace)
        if operation.skip_wait_to_completion:
            self.namespaces[namespace] += operation.count
        elif not operation.steady_state:
            self.expected = operation.count
            await self._wait_for("Scheduled", operation.count, namespace)
        if operation.collect_metrics:
            await self._collector.stop()

    async def _create_steadily(self, operation: ops.CreatePods, namespace: str) -> None:
        """Create pods, wait until they are bound, and delete them, until the duration is over."""
        deadline = time.perf_counter() + operation.duration
        with suppress(TimeoutError):
            async with asyncio.timeout(operation.duration):
                while time.perf_counter() < deadline:
                    await self._creation.create(operation, namespace)
                    await self._wait_for("Scheduled", operation.count, namespace)
                    await self._api.delete(PODS.format(namespace), now=True)
                    await devices.delete_claims_of_pods(self._api, namespace)
        if not self._pods.bound[namespace] and not self._pods.bindings:
            raise ProreusError(f"no pod at all was bound in {operation.duration} s")

    async def _delete_pods(self, operation: ops.DeletePods) -> None:
        async def delete_slowly() -> None:
            for pod in self._pods.matching([operation.namespace], operation.label_selector):
                await asyncio.sleep(1 / operation.delete_pods_per_second)
                await self._api.delete(f"{PODS.format(operation.namespace)}/{pod.metadata.name}")

        async def delete_at_once() -> None:
            async def delete(name: str) -> None:
                await self._api.delete(f"{PODS.format(operation.namespace)}/{name}")

            pods = self._pods.matching([operation.namespace], operation.label_selector)
            await for_each([pod.metadata.name for pod in pods], delete)

        work = delete_slowly() if operation.delete_pods_per_second else delete_at_once()
        if operation.skip_wait_to_completion:
            self._start(work)
        else:
            await work

    async def _barrier(self, operation: ops.Barrier) -> None:
        if unknown := set(operation.namespaces) - set(self.namespaces):
            raise ProreusError(f"unknown namespaces: {', '.join(sorted(unknown))}")
        for namespace in operation.namespaces or list(self.namespaces):
            self.expected = self.namespaces[namespace]
            await self._wait_for(
                operation.stage_requirement, self.expected, namespace, operation.label_selector
            )
            if operation.stage_requirement == "Scheduled":
                self.namespaces[namespace] = 0

    async def _wait_for(
        self, stage: Any, count: int, namespace: str, labels: dict[str, str] | None = None
    ) -> None:
        await self._pods.wait_for(
            stage, count, namespace, labels=labels, timeout_seconds=self._timeout_seconds
        )

    # anything else

    async def _create_any(self, operation: ops.CreateAny) -> None:
        if operation.namespace:
            await self._ensure_namespace(operation.namespace)
        template = template_of(self._plan.path(operation.template_path))

        async def create(index: int) -> None:
            body = template.object(index, operation.count, operation.template_params)
            path = await self._collection(body, operation.namespace)
            made = await retry_until_served(lambda: self._api.create(path, body))
            if not operation.namespace and made:
                self.created.append(f"{path}/{made['metadata']['name']}")

        await for_each(range(operation.count), create)

    async def _update_any(self, operation: ops.UpdateAny) -> None:
        template = template_of(self._plan.path(operation.template_path))
        subresource = "".join(f"/{part}" for part in operation.subresources)

        async def update(index: int) -> None:
            body = template.object(index, operation.count)
            path = await self._collection(body, operation.namespace)
            path = f"{path}/{body['metadata']['name']}"
            await self._api.put(path + subresource, body)
            await self._api.put(f"{path}/status", body)

        if not operation.update_per_second:
            await for_each(range(operation.count), update)
            return
        for index in range(operation.count):
            await asyncio.sleep(1 / operation.update_per_second)
            await update(index)

    async def _churn(self, operation: ops.Churn, index: int) -> None:
        namespace = operation.namespace or f"namespace-{index}"
        await self._ensure_namespace(namespace)
        bodies = [template_of(self._plan.path(path)).object() for path in operation.template_paths]
        collections = []
        for body in bodies:
            if body["kind"] == "Pod":
                await self._creation.admit(body)
            mapping = await self._api.rest_mapping_for(body)
            collections.append(mapping.path(namespace if mapping.namespaced else ""))
        slots: list[list[str]] = [[""] * max(operation.number, 1) for _ in bodies]

        async def turn(number: int) -> None:
            for body, path, names in zip(bodies, collections, slots, strict=True):
                slot = number % len(names)
                with suppress(ApiError):  # scheduler_perf ignores errors of churn too
                    if operation.mode == "recreate" and names[slot]:
                        name, names[slot] = names[slot], ""
                        await self._api.delete(f"{path}/{name}")
                    else:
                        made = await self._api.create(path, body)
                        names[slot] = made.get("metadata", {}).get("name", "")
                        if names[slot] and "/namespaces/" not in path:
                            self.created.append(f"{path}/{names[slot]}")

        async def turns() -> None:
            limit = operation.number if operation.mode == "create" else 0
            number = 0
            while not limit or number < limit:
                await asyncio.sleep(operation.interval_milliseconds / 1000)
                await turn(number)
                number += 1

        self._start(turns())

    async def _collection(self, body: JsonObject, namespace: str) -> str:
        mapping = await self._api.rest_mapping_for(body)
        if mapping.namespaced != bool(namespace):
            problem = "needs a namespace" if mapping.namespaced else "must not have a namespace"
            raise ProreusError(f"{body['kind']} {problem}")
        return mapping.path(namespace)

    def _template(self, path: str | None) -> Template | None:
        return template_of(self._plan.path(path)) if path else None
