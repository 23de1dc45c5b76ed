"""One dry run: nodes are added to the copy of the cluster, then pods are placed one after another.

    sync ─► remove ignored nodes, add hypothetical ones ─► for each pod: the scheduling cycle's
    PreFilter to select_host, assume, Reserve ─► everything undone, in reverse

It lets other work have a turn between pods, and between nodes that it adds. Pods of one item that
follow a rejected one are rejected for the same reasons, as long as nothing was placed in between.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from time import perf_counter, thread_time

import msgspec
import numpy as np

from proreus.base.clock import rfc3339
from proreus.engine.cycles.attempt import Attempt, Failure
from proreus.engine.runtime.find_nodes import FeasibleNodes
from proreus.engine.runtime.prioritize_nodes import ComputedScores
from proreus.engine.runtime.profile import Profile
from proreus.engine.runtime.select_host import NodeScores
from proreus.framework.attempt_budget import AttemptBudget
from proreus.framework.cycle_state import CycleState
from proreus.framework.pod_info import PodInfo, QueuedPodInfo
from proreus.framework.verdicts import Rows
from proreus.insight.dry_run.api import (
    DryRunSpec,
    DryRunStatus,
    NodeTotal,
    PodOutcome,
    Reason,
    RejectedNodeCount,
    ScoreWeight,
    TemplateUse,
)
from proreus.insight.dry_run.environment import DryRunEnvironment
from proreus.insight.dry_run.limits import check_resources
from proreus.insight.dry_run.objects import (
    DecodedTemplate,
    InvalidDryRun,
    decode_pod,
    numbered_pods,
)
from proreus.insight.dry_run.slices import Slices
from proreus.objects.pod import Pod
from proreus.objects.requests import PodResourcesOptions

_ATTEMPT_SECONDS = 0.4
"""CPU time of one pod, which is the longest that other work has to wait for a turn."""


class _FeasibleRows:
    """Notes how many nodes can take a pod (``engine.cycles.attempt.AttemptRecorder``)."""

    def __init__(self, names: int, best: int) -> None:
        self._names = names
        self._best = best
        self.clear()

    def clear(self) -> None:
        """Forget the last pod."""
        self.count = 0
        self.rows: Rows = np.empty(0, dtype=np.intp)
        self.best: list[tuple[int, int]] = []
        """Rows with their total scores, the highest first."""

    def chosen(
        self,
        attempt: Attempt,
        found: FeasibleNodes,
        row: int,
        totals: NodeScores | None = None,
        computed: ComputedScores | None = None,
    ) -> None:
        """Note the nodes that can take the pod."""
        self.count = found.count
        if self._names:
            self.rows = found.rows[: self._names].copy()
        if self._best and totals is not None:
            scores = totals.scores[found.rows]
            first = np.argsort(-scores, kind="stable")[: self._best]
            self.best = list(zip(found.rows[first].tolist(), scores[first].tolist(), strict=True))

    def failed(self, attempt: Attempt, failure: Failure, message: str) -> None:
        """Do nothing, since the failure is returned."""


class DryRunAttempts:
    """The pods and nodes of one dry run, and their removal afterwards."""

    def __init__(self, environment: DryRunEnvironment, spec: DryRunSpec, slices: Slices) -> None:
        self._environment = environment
        self._spec = spec
        self._slices = slices
        self._cache = environment.replica.cache
        self._resources_options = PodResourcesOptions.of(environment.environment.feature_gates)
        self._assumed: list[tuple[Attempt, str]] = []
        self._template_of: dict[str, str] = {}
        self._recorder = _FeasibleRows(spec.node_names, spec.best_nodes)
        self._weights = ScoreWeights(environment.profile_set.profiles)

    async def answer(self) -> DryRunStatus:
        """Return where the pods would be; raises ``InvalidDryRun``."""
        spec, environment = self._spec, self._environment
        templates = [
            DecodedTemplate(f"spec.nodeTemplates[{number}]", template)
            for number, template in enumerate(spec.node_templates)
        ]
        check_resources(templates)
        self._weights.change(spec.score_weights)
        await environment.replica.sync(self._slices)
        time = rfc3339(environment.environment.clock.now())
        environment.begin(spec.include_extenders)
        environment.cycle.recorder = self._recorder
        unknown = []
        for name in spec.ignored_nodes:
            if not environment.replica.remove_node(name):
                unknown.append(name)
            await self._slices.pause_if_due()
        cluster_nodes = self._cache.table.size
        for template in templates:
            for node, pods in template.nodes(self._cache.table.rows):
                name = node.metadata.name
                self._template_of[name] = template.name
                environment.replica.differs_at([name])
                self._cache.add_node(node)
                for pod in pods:
                    self._cache.assume(PodInfo(pod, self._resources_options), name)
                    await self._slices.pause_if_due()
                await self._slices.pause_if_due()
        outcomes = []
        for number, item in enumerate(spec.pods):
            pod = decode_pod(f"spec.pods[{number}].pod", item.pod)
            outcomes += await self._place_item(number, pod, item.count)
        return DryRunStatus(
            time=time,
            all_fit=all(one.fits for one in outcomes),
            cluster_nodes=cluster_nodes,
            pods=tuple(outcomes),
            node_templates=tuple(self._uses(outcomes)),
            unknown_nodes=tuple(unknown),
            plugins_left_out=environment.left_out,
        )

    async def undo(self) -> None:
        """Take everything back; the next ``sync`` copies the changed nodes anew."""
        replica, cycle = self._environment.replica, self._environment.cycle
        cycle.recorder = cycle.extenders = None
        self._weights.restore()
        while self._assumed:
            attempt, node_name = self._assumed.pop()
            cycle.unreserve_and_forget(attempt, node_name)
            replica.differs_at([node_name])
            await self._slices.pause_if_due()
        # In slices: to free all of the copy at once would block the loop.
        for name in self._template_of:
            replica.remove_node(name)
            await self._slices.pause_if_due()
        self._template_of.clear()
        self._environment.forget_results()

    # ---- pods ----------------------------------------------------------------------------------

    async def _place_item(self, number: int, pod: Pod, replicas: int) -> list[PodOutcome]:
        outcomes: list[PodOutcome] = []
        sequential = self._spec.placement == "Sequential"
        for one in numbered_pods(pod, number, replicas, self._is_taken):
            key = f"{one.metadata.namespace}/{one.metadata.name}"
            # Nothing has changed since the last one was rejected, or was asked about by itself.
            if outcomes and (not sequential or not outcomes[-1].fits):
                outcomes.append(msgspec.structs.replace(outcomes[-1], pod=key))
                continue
            outcomes.append(await self._place(number, one, key))
            await self._slices.pause_if_due()
        return outcomes

    def _is_taken(self, uid: str) -> bool:
        return self._cache.get_pod(uid) is not None

    async def _place(self, item: int, pod: Pod, key: str) -> PodOutcome:
        def rejected(reason: Reason, message: str) -> PodOutcome:
            return PodOutcome(item=item, pod=key, fits=False, reason=reason, message=message)

        profiles = self._environment.profile_set.profiles
        profile = profiles.get(pod.spec.scheduler_name)
        if profile is None:
            text = f"no profile is named {pod.spec.scheduler_name}; there are {', '.join(profiles)}"
            return rejected("OtherScheduler", text)
        if pod.spec.node_name:
            return rejected("AlreadyAssigned", f"the pod is on node {pod.spec.node_name}")
        if pod.spec.scheduling_gates:
            text = "Scheduling is blocked due to non-empty scheduling gates"
            return rejected("SchedulingGated", text)
        attempt = self._begin(pod, profile)
        self._recorder.clear()
        cycle = self._environment.cycle
        cycle.set_interested_extenders(attempt)
        found: str | Failure | None = await cycle.schedule_pod(attempt)
        node = found if isinstance(found, str) else ""
        if node and self._spec.placement == "Sequential":
            found = await cycle.assume_and_reserve(attempt, node)
            if found is None:
                self._assumed.append((attempt, node))
        if isinstance(found, Failure):
            reason: Reason = "Unschedulable" if found.fit_error is not None else "SchedulerError"
            return PodOutcome(
                item=item,
                pod=key,
                fits=False,
                reason=reason,
                message=found.message,
                rejections=_rejections(found),
            )
        table = self._cache.table
        names = tuple(table[row].name for row in self._recorder.rows.tolist())
        return PodOutcome(
            item=item,
            pod=key,
            fits=True,
            node=node,
            node_template=self._template_of.get(node, ""),
            feasible_nodes=self._recorder.count,
            feasible_node_names=names,
            best_nodes=tuple(
                NodeTotal(node=table[row].name, score=score) for row, score in self._recorder.best
            ),
        )

    def _begin(self, pod: Pod, profile: Profile) -> Attempt:
        info = PodInfo(pod, self._resources_options)
        now = self._environment.environment.clock.monotonic()
        state = CycleState()
        state.budget = AttemptBudget(_ATTEMPT_SECONDS, thread_time)
        queued = QueuedPodInfo(info=info, timestamp=now)
        return Attempt(queued, info, profile, state, perf_counter(), may_preempt=False)

    def _uses(self, outcomes: list[PodOutcome]) -> Iterator[TemplateUse]:
        used: Mapping[str, list[str]] = {one.name: [] for one in self._spec.node_templates}
        for outcome in outcomes:
            if outcome.node_template:
                used[outcome.node_template].append(outcome.node)
        for template in self._spec.node_templates:
            nodes = used[template.name]
            yield TemplateUse(
                name=template.name,
                nodes=template.count,
                nodes_used=len(set(nodes)),
                pods=len(nodes),
            )


def _rejections(failure: Failure) -> tuple[RejectedNodeCount, ...]:
    if failure.fit_error is None:
        return ()
    counts = failure.fit_error.diagnosis.complete().counts()
    found = [
        RejectedNodeCount(plugin=status.plugin, reasons=status.reasons, nodes=count)
        for status, count in counts.items()
        if count
    ]
    return tuple(sorted(found, key=lambda one: (-one.nodes, one.plugin, one.reasons)))


class ScoreWeights:
    """Other weights of score plugins, for one dry run.

    Scores are kept with the weights that they were added up with. So ``change`` comes before the
    first pod, and the shared results are cleared (``DryRunEnvironment.forget_results``) before the
    next dry run.
    """

    def __init__(self, profiles: Mapping[str, Profile]) -> None:
        self._profiles = profiles
        self._before: dict[tuple[str, str], int] = {}

    def change(self, weights: tuple[ScoreWeight, ...]) -> None:
        """Change weights; raises ``InvalidDryRun``, which names the field, and changes none then.

        A weight can be changed where the plugin scores: none is added to a profile.
        """
        asked: dict[tuple[str, str], int] = {}
        for number, one in enumerate(weights):
            place = f"spec.scoreWeights[{number}]"
            profile = self._profiles.get(one.scheduler_name)
            if profile is None:
                raise InvalidDryRun(
                    f"{place}.schedulerName: no profile is named {one.scheduler_name}; "
                    f"there are {', '.join(self._profiles)}"
                )
            if one.plugin not in profile.weights:
                raise InvalidDryRun(
                    f"{place}.plugin: {one.plugin} scores no nodes in the profile "
                    f"{one.scheduler_name}; those that do: {', '.join(profile.weights)}"
                )
            key = one.scheduler_name, one.plugin
            if key in asked:
                raise InvalidDryRun(f"{place}: each plugin may be there once for a profile")
            asked[key] = one.weight
        for (name, plugin), weight in asked.items():
            current = self._profiles[name].weights
            self._before[name, plugin] = current[plugin]
            current[plugin] = weight

    def restore(self) -> None:
        """Restore the weights of the configuration."""
        for (name, plugin), weight in self._before.items():
            self._profiles[name].weights[plugin] = weight
        self._before.clear()
