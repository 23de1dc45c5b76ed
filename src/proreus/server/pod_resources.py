"""/metrics/resources: each pod's requests and limits, a line a pod and resource (KEP-1748).

Written directly and in slices: a large cluster has hundreds of thousands of lines, and the
scheduler runs on the same event loop. The list of pods is copied first, so that a scrape shows one
point in time.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from functools import partial

from proreus.base.metrics.exposition import bound_text
from proreus.objects.pod import Pod, ResourceList, is_terminal
from proreus.objects.quantity import NANO, parse_quantity
from proreus.objects.requests import limits_of_containers, requests_of_containers
from proreus.objects.resource_names import is_pod_level_resource

_SLICE = 500

_HELP = {
    "kube_pod_resource_request": (
        "[STABLE] Resources requested by a pod, as the scheduler counts them: the largest init "
        "container or all containers together."
    ),
    "kube_pod_resource_limit": ("[STABLE] Resource limits of a pod, calculated like its requests."),
}

Amounts = dict[str, int]


async def write_pod_resources(
    pods: Iterable[Pod], *, openmetrics: bool = False, partial_limits: bool = True
) -> AsyncIterator[bytes]:
    """Yield the page in slices; the caller has to yield to the event loop between them.

    ``partial_limits``: see ``pod_limits``.
    """
    alive = [pod for pod in pods if not _is_terminal(pod)]
    metrics: tuple[tuple[str, Callable[[Pod], Amounts]], ...] = (
        ("kube_pod_resource_limit", partial(pod_limits, partial_limits=partial_limits)),
        ("kube_pod_resource_request", pod_requests),
    )
    for name, amounts_of in metrics:
        head = f"# HELP {name} {_HELP[name]}\n# TYPE {name} gauge\n"
        for start in range(0, len(alive), _SLICE):
            lines = [
                line
                for pod in alive[start : start + _SLICE]
                for line in _lines(name, pod, amounts_of(pod))
            ]
            if lines:
                yield (head + "".join(lines)).encode()
                head = ""
    if openmetrics:
        yield b"# EOF\n"


def pod_requests(pod: Pod) -> Amounts:
    """Return the pod's effective requests of every resource, in nano-units."""
    total = requests_of_containers(pod)
    if pod.spec.resources is not None:
        total |= _pod_level(pod.spec.resources.requests)
    for name, amount in pod.spec.overhead.items():
        total[name] = total.get(name, 0) + parse_quantity(amount)
    return total


def pod_limits(pod: Pod, *, partial_limits: bool = True) -> Amounts:
    """Return the pod's effective limits, in nano-units.

    Overhead counts only for resources that have a limit. Without ``partial_limits`` cpu and memory
    have one only if each container has.
    """
    total = limits_of_containers(pod)
    for name in () if partial_limits else ("cpu", "memory"):
        if not all(
            parse_quantity(container.resources.limits.get(name, 0))
            for container in (*pod.spec.init_containers, *pod.spec.containers)
        ):
            total.pop(name, None)
    if pod.spec.resources is not None:
        total |= _pod_level(pod.spec.resources.limits)
    for name, amount in pod.spec.overhead.items():
        if total.get(name):
            total[name] += parse_quantity(amount)
    return total


def unit_of(resource: str) -> str:
    """Return the unit label of a resource, as kube-scheduler's."""
    if resource == "cpu":
        return "cores"
    if resource in ("memory", "storage", "ephemeral-storage") or resource.startswith("hugepages-"):
        return "bytes"
    return "integer" if resource.startswith("attachable-volumes-") else ""


def _pod_level(amounts: ResourceList) -> Amounts:
    return {
        name: parse_quantity(amount)
        for name, amount in amounts.items()
        if is_pod_level_resource(name)
    }


def _lines(name: str, pod: Pod, amounts: Amounts) -> Iterable[str]:
    meta, spec = pod.metadata, pod.spec
    priority = "" if spec.priority is None else str(spec.priority)
    scheduler = spec.scheduler_name.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    for resource, nano in sorted(amounts.items()):
        if nano:
            yield (
                f'{name}{{namespace="{meta.namespace}",node="{spec.node_name or ""}",'
                f'pod="{meta.name}",priority="{priority}",resource="{resource}",'
                f'scheduler="{scheduler}",unit="{unit_of(resource)}"}} '
                f"{bound_text(nano / NANO)}\n"
            )


def _is_terminal(pod: Pod) -> bool:
    return bool(pod.spec.node_name) and is_terminal(pod)
