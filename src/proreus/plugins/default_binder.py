"""DefaultBinder: bind the pod to the node at the apiserver."""

from __future__ import annotations

from proreus.base.errors import ApiError
from proreus.framework.cycle_state import CycleState
from proreus.framework.plugin import BindPlugin
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import Status


class DefaultBinder(BindPlugin):
    """Creates the Binding object."""

    async def bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Bind the pod. An error of the apiserver is an Error status, which requeues the pod."""
        try:
            await self.handle.api.bind(pod.pod, node_name)
        except ApiError as error:
            return Status.error(str(error))
        return None
