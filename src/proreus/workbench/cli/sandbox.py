"""``proreus sandbox`` runs the embedded cluster as a process, for kubectl and schedulers."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import click

from proreus.base.errors import ProreusError


@click.command("sandbox")
@click.option(
    "--nodes", type=click.IntRange(0), default=10, show_default=True, help="Number of nodes."
)
@click.option(
    "--zones",
    type=click.IntRange(0),
    default=3,
    show_default=True,
    help="Number of zones that nodes are divided among; 0: no zone labels.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=int, default=0, help="Port for plain HTTP; 0 for any free one.")
@click.option("--secure-port", type=int, default=0, help="Port for HTTPS; 0 for any free one.")
@click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("sandbox.kubeconfig"),
    show_default=True,
    help="Where to write the kubeconfig.",
)
@click.option("--token", default="", help="Bearer token to require; random if empty.")
@click.option(
    "--usage-share",
    type=click.FloatRange(0.0),
    default=0.5,
    show_default=True,
    help="Share of their requests that running pods use, according to metrics.k8s.io (kubectl "
    "top); overridden by the annotations proreus.dev/cpu-usage and -memory-usage of a node or pod.",
)
@click.option(
    "--apply",
    "manifests",
    type=click.Path(path_type=Path, dir_okay=False),
    multiple=True,
    help="YAML file of objects to create, or to update if they exist; may be repeated.",
)
@click.option(
    "--kubelets/--no-kubelets",
    default=True,
    help="Whether fake kubelets run the pods.",
)
def command(
    nodes: int,
    zones: int,
    host: str,
    port: int,
    secure_port: int,
    kubeconfig: Path,
    token: str,
    usage_share: float,
    manifests: tuple[Path, ...],
    kubelets: bool,
) -> None:
    """Serve an apiserver with fake nodes until interrupted.

    All objects are kept in memory: when the process ends, the cluster is gone.
    """
    from proreus.workbench.sandbox import KubeletOptions, ListenOptions, Sandbox
    from proreus.workbench.sandbox.manifests import apply_file

    async def serve() -> None:
        sandbox = Sandbox(
            nodes,
            zones=zones,
            kubelet=KubeletOptions() if kubelets else None,
            listen=ListenOptions(host, port, secure_port, token=token),
            usage_share=usage_share,
        )
        for manifest in manifests:
            click.echo(f"applied {', '.join(apply_file(sandbox.store, manifest))}")
        async with sandbox:
            path = sandbox.write_kubeconfig(kubeconfig)
            click.echo(f"serving {nodes} nodes at {sandbox.secure_url} and {sandbox.url}")
            click.echo(f"look around: kubectl --kubeconfig {path} get nodes,pods -A -o wide")
            click.echo(f"schedule:    proreus run --kubeconfig {path} --leader-elect=false")
            await forever()

    try:
        run_until_signalled(serve)
    except OSError as error:
        raise ProreusError(f"cannot serve on {host}: {error}") from error


async def forever() -> None:
    """Wait until cancelled, as by a signal in ``run_until_signalled``."""
    await asyncio.Event().wait()


def run_until_signalled(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run an async function on uvloop; SIGTERM and SIGINT cancel it."""
    import uvloop

    async def run() -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, task.cancel)
        with contextlib.suppress(asyncio.CancelledError):
            await work()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())
