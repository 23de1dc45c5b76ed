"""``proreus explain`` and ``proreus why``: ask a running scheduler about its decisions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import click

from proreus.process.cli.documented_options import documented_options
from proreus.process.cli.scheduler_access import SchedulerAccess, access_options

if TYPE_CHECKING:
    from proreus.insight.explain.explanation import Explanation

_Output = Literal["table", "json", "yaml"]


@click.group("explain", short_help="Explain where pods are, and why they wait.")
def command() -> None:
    """Ask a running scheduler to explain a pod, a node or its queue.

    The scheduler is found through the apiserver, by its Service, or by --scheduler URL.
    Callers need the right to get the nonResourceURLs /explain/*.
    """


@click.command("pod")
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
    """Explain a pod: why it got its node, or why it waits and what would help it.

    -n, --namespace
        Namespace of the pod.
    --names
        Rejected nodes to name by reason. [default]
    --no-changes
        Do not look for what would make the pod fit.
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
    """Explain a node: its pods, its free resources, and the waiting pods that it rejects.

    -o, --output
        Output format. [default]
    """
    from proreus.insight.explain import NodeExplanation

    _show(SchedulerAccess(**access).get("/explain/node", name=node), output, NodeExplanation)


@click.command("queue")
@documented_options
@access_options
def queue_command(*, output: _Output = "table", **access: Any) -> None:
    """List the waiting pods with their reasons and times.

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
    if output != "table":
        from proreus.process.cli.documents import echo_document

        echo_document(body, output)
        return
    import msgspec

    from proreus.process.cli.console import new_console
    from proreus.process.cli.explain.tables import tables_of

    explained = msgspec.json.decode(body, type=of)
    console = new_console()
    for part in tables_of(explained):
        console.print(part)
