"""``proreus explain`` and ``proreus why``: ask a running scheduler about its decisions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import click

from proreus.process.cli.documented_options import documented_options
from proreus.process.cli.scheduler_access import SchedulerAccess, access_options

if TYPE_CHECKING:
    from proreus.insight.explain.explanation import Explanation

_Output = Literal["table", "json", "yaml"]


@click.group("explain", short_help="Ask a running scheduler about a pod, a node or its queue.")
def command() -> None:
    """Ask a running scheduler about a pod, a node or its queue.

    The scheduler is found by its Service, through the apiserver, or at --scheduler URL.
    You need the right to get the nonResourceURLs /explain/*.
    """


@click.command("pod", short_help="Say why a pod waits, or why it got its node.")
@click.argument("pod", metavar="[NAMESPACE/]NAME")
@documented_options
@access_options
def pod_command(
    *,
    pod: str,
    namespace: str = "default",
    names: int = 10,
    no_changes: bool = False,
    output: _Output = "table",
    **access: Any,
) -> None:
    """Say why a pod got its node, or why it waits and what would help it.

    Exits with 1 if there is no such pod.

    -n, --namespace
        Namespace of the pod.
    --names
        How many rejected nodes to name for each reason. [default]
    --no-changes
        Do not look for changes that would help.
    -o, --output
        Output format. [default]
    """
    if "/" in pod:
        namespace, _, pod = pod.partition("/")
    query = {"namespace": namespace, "name": pod, "names": str(names)}
    if no_changes:
        query["changes"] = "false"
    from proreus.insight.explain import PodExplanation

    _show(SchedulerAccess(**access).get("/explain/pod", **query), output, PodExplanation)


@click.command("node")
@click.argument("node", metavar="NAME")
@documented_options
@access_options
def node_command(*, node: str, output: _Output = "table", **access: Any) -> None:
    """Show a node's pods and free resources, and the waiting pods that it rejects.

    Exits with 1 if there is no such node.

    -o, --output
        Output format. [default]
    """
    from proreus.insight.explain import NodeExplanation

    _show(SchedulerAccess(**access).get("/explain/node", name=node), output, NodeExplanation)


@click.command("queue")
@documented_options
@access_options
def queue_command(*, output: _Output = "table", **access: Any) -> None:
    """Show the waiting pods and groups: how many, since when, and why.

    -o, --output
        Output format. [default]
    """
    from proreus.insight.explain import QueueExplanation

    _show(SchedulerAccess(**access).get("/explain/queue"), output, QueueExplanation)


for _one in (pod_command, node_command, queue_command):
    command.add_command(_one)


@click.group(
    "kubectl-proreus",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
def kubectl_command() -> None:
    """Ask a running proreus about its decisions."""


kubectl_command.add_command(command)
kubectl_command.add_command(pod_command, "why")


def _show(body: bytes, output: str, of: type[Explanation]) -> None:
    from proreus.insight.explain.documents import from_json

    explained = from_json(body, of)
    if output != "table":
        from proreus.process.cli.documents import echo_document

        echo_document(body, output)
        _exit(explained)
        return
    from proreus.process.cli.console import new_console
    from proreus.process.cli.explain.tables import tables_of

    console = new_console()
    for part in tables_of(explained):
        console.print(part)
    _exit(explained)


def _exit(explained: Explanation) -> None:
    """Exit with 1 if there is no such pod or node."""
    from proreus.insight.explain import NodeExplanation, PodExplanation

    no_pod = isinstance(explained, PodExplanation) and explained.is_unknown
    if no_pod or (isinstance(explained, NodeExplanation) and not explained.known):
        click.get_current_context().exit(1)
