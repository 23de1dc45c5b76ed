"""Pods that a plugin provides: scheduled as any other, though the apiserver does not have them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from proreus.framework.plugin import Plugin
from proreus.framework.pod_info import PodInfo
from proreus.objects.pod import Pod

PROVIDED = "/"
"""The part of the name of a provided pod that no name of the API can have."""


def is_provided(pod: Pod) -> bool:
    """Return whether a plugin provides the pod."""
    return PROVIDED in pod.metadata.name


class PodSourcePlugin(Plugin):
    """Provides pods that the apiserver does not have: room that is held on a node, for instance.

    It is no extension point of the configuration. The plugin calls ``handle.put_pod`` and
    ``handle.remove_pod``, and the scheduler treats such a pod as if a watch had shown it: without a
    node it is queued and scheduled, with one it counts there, and it may be a victim of preemption.
    To other plugins it is a pod of a ``NodeInfo`` and at extension points, with these differences:

    - It is no object of the API: ``handle.store`` and ``handle.on_change`` do not have it, unless
      they are asked to. What would be written about it to the apiserver comes back to its plugin;
      Events about it are not recorded.
    - No kubelet runs it: it uses nothing that is measured, and is a member of no gang or job. A
      plugin that keeps such accounts from Reserve on leaves it out (``is_provided``).
    - It is requested once: what a pod takes of its room, by ``provided_for``, is taken off its
      requests at that pod's Reserve. Before, the two are not to be added up: Filter sees nodes
      without it (``CycleState.replaceable_pods``), and what counts across nodes asks
      ``handle.provided_for``.

    Such a plugin has to be enabled when the scheduler starts. Its pods stay until it removes them.
    """

    def provided_for(self, pod: PodInfo) -> Mapping[str, PodInfo]:
        """Return the provided pods whose room a pod may take, by node.

        The events that ``events_to_register`` returns are to say when there is more of it: they
        wake pods whatever plugin rejected them.
        """
        return {}

    async def bind_provided_pod(self, pod: Pod, node_name: str) -> None:
        """Store that the pod has this node, then put it with that node; raises ``ApiError``."""
        raise NotImplementedError

    async def patch_provided_pod_status(self, pod: Pod, patch: dict[str, Any]) -> None:
        """Called with a patch ``{"status": …}``: conditions, a nomination. Raises ``ApiError``."""

    async def patch_provided_pod(self, pod: Pod, patch: dict[str, Any]) -> None:
        """Called with any other merge patch, such as annotations of PreBind; it may be ignored."""

    async def delete_provided_pod(self, pod: Pod) -> None:
        """Remove a victim of preemption; raises ``ApiError``."""
        raise NotImplementedError
