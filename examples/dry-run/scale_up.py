"""How many nodes of which group make these pods fit? The question of a cluster autoscaler.

It asks a running ``proreus run --enable-dry-run``. Nothing but the standard library is needed;
files are JSON, or YAML where PyYAML is installed.
"""

from __future__ import annotations

import argparse
import json
import ssl
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PATH = "/apis/scheduling.proreus.dev/v1alpha1/dryrunreviews"
ATTEMPTS = 10

Ask = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""Takes the spec of a DryRunReview, and returns its status."""


@dataclass
class Step:
    """Nodes of one group, and how many of the pods that were left they make fit."""

    group: str
    nodes: int
    pods: int


@dataclass
class Plan:
    """Nodes to add, group by group, and the messages of the pods that no group helps."""

    fitting_now: int = 0
    steps: list[Step] = field(default_factory=list)
    left_over: list[str] = field(default_factory=list)


def plan(ask: Ask, pods: Sequence[Any], groups: Sequence[Mapping[str, Any]]) -> Plan:
    """Return which nodes to add.

    ``pods``: items of ``spec.pods``. ``groups``: ``name``, ``node``, ``max`` and perhaps ``pods``,
    those of DaemonSets. The group that makes the most pods fit comes first, the one with the fewest
    nodes among equals. Raises ``ValueError`` for pods that this scheduler does not place.
    """
    chosen: dict[str, int] = {}

    def answer(more: Mapping[str, int]) -> Mapping[str, Any]:
        counts = {name: chosen.get(name, 0) + more.get(name, 0) for name in {**chosen, **more}}
        templates = [
            {
                "name": group["name"],
                "count": counts[group["name"]],
                "node": group["node"],
                "pods": group.get("pods", []),
            }
            for group in groups
            if counts.get(group["name"])
        ]
        return ask({"pods": pods, "nodeTemplates": templates})

    def fitting(more: Mapping[str, int]) -> int:
        return sum(pod["fits"] for pod in answer(more)["pods"])

    status = answer({})
    for pod in status["pods"]:
        if pod.get("reason") == "OtherScheduler":
            raise ValueError(f"{pod['pod']}: spec.schedulerName: {pod['message']}")
    result = Plan(fitting_now=sum(pod["fits"] for pod in status["pods"]))
    now = result.fitting_now
    while now < len(status["pods"]):
        best: tuple[int, int, str] | None = None
        for group in groups:
            name, most = group["name"], group["max"] - chosen.get(group["name"], 0)
            reached = fitting({name: most}) if most > 0 else now
            if reached > now:
                needed = _fewest(1, most, lambda n, g=name, r=reached: fitting({g: n}) >= r)
                best = max(best or (0, 0, ""), (reached, -needed, name))
        if best is None:
            break
        reached, needed, name = best[0], -best[1], best[2]
        chosen[name] = chosen.get(name, 0) + needed
        result.steps.append(Step(name, needed, reached - now))
        now = reached
    if now < len(status["pods"]):
        left = [pod for pod in answer({})["pods"] if not pod["fits"]]
        result.left_over = [f"{pod['pod']}: {pod.get('message', '')}" for pod in left]
    return result


def _fewest(low: int, high: int, enough: Callable[[int], bool]) -> int:
    """Return the smallest number that is enough; ``high`` is."""
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle + 1, high)
    return low


class Client:
    """Posts dry runs to a scheduler, and asks again when it has too many of them."""

    def __init__(self, url: str, token: str, context: ssl.SSLContext | None) -> None:
        self._url = url.rstrip("/") + PATH
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self._context = context
        self.requests = 0

    def __call__(self, spec: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the status of one dry run; raises ``urllib.error.HTTPError``."""
        review = {
            "apiVersion": "scheduling.proreus.dev/v1alpha1",
            "kind": "DryRunReview",
            "spec": spec,
        }
        body = json.dumps(review).encode()
        for attempt in range(ATTEMPTS):
            request = urllib.request.Request(self._url, body, self._headers, method="POST")
            try:
                with urllib.request.urlopen(request, timeout=70, context=self._context) as response:
                    self.requests += 1
                    status: Mapping[str, Any] = json.load(response)["status"]
                    return status
            except urllib.error.HTTPError as error:
                # 429: too many at once; 409: the cluster changed. Both say when to ask again.
                if error.code not in (409, 429) or attempt == ATTEMPTS - 1:
                    raise
                time.sleep(int(error.headers.get("Retry-After", 1)))
        raise AssertionError("not reached: the last attempt returns or raises")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the plan; return 1 if pods are left over. Exit with 2 for input that is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scheduler", default="https://127.0.0.1:10259")
    parser.add_argument("--token-file", type=Path, required=True)
    parser.add_argument("--certificate-authority")
    parser.add_argument("--insecure-skip-tls-verify", action="store_true")
    parser.add_argument("pods", type=Path, help="a list of items of spec.pods")
    parser.add_argument("groups", type=Path, help="a list of node groups: name, max, node, pods")
    options = parser.parse_args(arguments)
    context = ssl.create_default_context(cafile=options.certificate_authority)
    if options.insecure_skip_tls_verify:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    client = Client(options.scheduler, options.token_file.read_text().strip(), context)
    try:
        found = plan(client, read(options.pods), read(options.groups))
    except ValueError as error:
        parser.error(f"{options.pods}: {error}")
    print(f"{found.fitting_now} pods fit as it is")
    for step in found.steps:
        print(f"{step.nodes} x {step.group}: {step.pods} more pods fit")
    for line in found.left_over:
        print(f"no group helps {line}")
    print(f"asked {client.requests} times")
    return 1 if found.left_over else 0


def read(path: Path) -> Any:
    """Return what is in a JSON or YAML file."""
    text = path.read_text()
    if path.suffix == ".json":
        return json.loads(text)
    import yaml

    return yaml.safe_load(text)


if __name__ == "__main__":
    sys.exit(main())
