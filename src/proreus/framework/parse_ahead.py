"""What is parsed of a large pod before anybody else sees it.

A pod of a megabyte or two takes tens of milliseconds to parse: thousands of terms, containers or
resources, each an object. On the event loop all other pods would wait for that, so a watch has
large pods parsed in a thread first. The interpreter changes between that and the loop every few
milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable

from proreus.framework.affinity_terms import parse_terms_ahead
from proreus.framework.node_affinity import parse_node_affinity_ahead
from proreus.framework.pod_info import PodResourcesOptions, compute_requests_ahead
from proreus.objects.pod import Pod


class PodParser:
    """Parses pods ahead for a scheduler with these options."""

    def __init__(self, options: PodResourcesOptions) -> None:
        self._options = options

    def __call__(self, pod: Pod) -> Callable[[], None]:
        """Parse a pod, in any thread.

        The function that is returned puts the results into the caches in which scheduling looks for
        them; call it on the event loop's thread.
        """
        steps = (
            compute_requests_ahead(pod, self._options.pod_level),
            parse_terms_ahead(pod),
            parse_node_affinity_ahead(pod),
        )

        def keep() -> None:
            for step in steps:
                step()

        return keep
