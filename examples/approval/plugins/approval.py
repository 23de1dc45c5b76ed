"""Approval: a pod that has found a node is bound once an external controller agrees.

The plugin writes the node to the pod's annotation ``example.com/proposed-node``. A controller of
any kind watches pods, and answers with the annotation ``example.com/approval``: ``granted`` or
``denied``.
"""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import Field

from proreus.framework import (
    ApiError,
    ClusterEvent,
    CycleState,
    Handle,
    PermitPlugin,
    PluginArgs,
    PodInfo,
    Seconds,
    Status,
    events,
)
from proreus.objects import PODS, Pod

DENIED = "the controller denied it"


class Approval(PermitPlugin):
    """Pods with a label wait at Permit for the answer of a controller."""

    class Args(PluginArgs):
        """Which pods need an approval, and how question and answer are written."""

        label: str = Field("example.com/needs-approval", description="Label of pods that wait.")
        question: str = Field("example.com/proposed-node", description="Annotation: the node.")
        answer: str = Field("example.com/approval", description="Annotation: granted or denied.")
        wait_seconds: Seconds = Field(300.0, gt=0, le=900, description="How long a pod waits.")

    args: Args

    def __init__(self, args: Args, handle: Handle) -> None:
        super().__init__(args, handle)
        handle.on_change(PODS, self._on_pod)

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        if self.args.label not in pod.labels:
            return None
        match self._answer_of(pod.pod):
            case "granted":
                return None
            case "denied":
                return Status.unschedulable(DENIED)
        self.handle.spawn(self._ask(pod, node_name))
        return Status.wait(self.args.wait_seconds, "an approval")

    async def _ask(self, pod: PodInfo, node_name: str) -> None:
        patch = {"metadata": {"annotations": {self.args.question: node_name}}}
        try:
            await self.handle.api.patch(PODS, pod.namespace, pod.name, patch)
        except ApiError as error:
            self._reject(pod.uid, f"the question could not be written: {error}")

    def _on_pod(self, old: Pod | None, new: Pod | None) -> None:
        """Pass the answer on to a pod that waits for it."""
        if new is None:
            return
        uid, answer = new.metadata.uid, self._answer_of(new)
        if answer == "granted" and (waiting := self.handle.get_waiting_pod(uid)):
            waiting.allow(self.name)
        elif answer == "denied":
            self._reject(uid, DENIED)

    def _reject(self, uid: str, why: str) -> None:
        if waiting := self.handle.get_waiting_pod(uid):
            waiting.reject(self.name, why)

    def _answer_of(self, pod: Pod) -> str:
        return pod.metadata.annotations.get(self.args.answer, "")

    def events_to_register(self) -> Iterable[ClusterEvent]:
        return (ClusterEvent(events.TARGET_POD, events.UPDATE, self._is_answered),)

    def _is_answered(self, pod: PodInfo, old: Pod, new: Pod) -> bool:
        same = new.metadata.uid == pod.uid
        return same and self._answer_of(old) != self._answer_of(new)
