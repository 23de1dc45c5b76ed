"""``proreus sandbox`` runs the embedded cluster as a process, for kubectl and schedulers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Annotated, Any

import click

from proreus.base.errors import ProreusError
from proreus.process.cli.documented_options import documented_options

_Count = Annotated[int, click.IntRange(0)]
_File = Annotated[Path, click.Path(path_type=Path, dir_okay=False)]
_LOOK_SECONDS = 1.0
_SCHEDULER = "--scheduler https://127.0.0.1:10259 --insecure-skip-tls-verify"


@click.command("sandbox")
@documented_options
def command(
    *,
    nodes: _Count = 10,
    zones: _Count = 3,
    host: str = "127.0.0.1",
    port: int = 0,
    secure_port: int = 0,
    kubeconfig: _File = Path("sandbox.kubeconfig"),
    token: str = "",
    usage_share: Annotated[float, click.FloatRange(0.0)] = 0.5,
    apply: tuple[_File, ...] = (),
    kubelets: bool = True,
) -> None:
    """Serve an apiserver with fake nodes until interrupted.

    All objects are kept in memory: when the process ends, the cluster is gone.

    --nodes
        Number of nodes. [default]
    --zones
        Number of zones that nodes are divided among; 0: no zone labels. [default]
    --host
        Address to listen on. [default]
    --port
        Port for plain HTTP; 0 for any free one.
    --secure-port
        Port for HTTPS; 0 for any free one.
    --kubeconfig
        Where to write the kubeconfig. [default]
    --token
        Bearer token to require; random if empty.
    --usage-share
        Share of their requests that running pods use, according to metrics.k8s.io (kubectl top);
        overridden by the annotations proreus.dev/cpu-usage and -memory-usage of a node or pod.
        [default]
    --apply
        YAML file of objects to create, or to update if they exist; may be repeated.
    --kubelets/--no-kubelets
        Whether fake kubelets run the pods.
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
        for manifest in apply:
            click.echo(f"applied {', '.join(apply_file(sandbox.store, manifest))}")
        async with sandbox:
            path = sandbox.write_kubeconfig(kubeconfig)
            run = f"proreus run --kubeconfig {path} --leader-elect=false"
            review = f"--authentication-kubeconfig {path} --authorization-kubeconfig {path}"
            click.echo(f"serving {nodes} nodes at {sandbox.secure_url} and {sandbox.url}")
            click.echo(f"look around: kubectl --kubeconfig {path} get nodes,pods -A -o wide")
            click.echo(f"schedule:    {run} {review}")
            click.echo(f"explain:     proreus explain queue --kubeconfig {path} {_SCHEDULER}")
            await forever()

    try:
        run_until_signalled(serve)
    except OSError as error:
        raise ProreusError(f"cannot serve on {host}: {error}") from error


async def forever() -> None:
    """Wait until cancelled, as by a signal in ``run_until_signalled``."""
    await asyncio.Event().wait()


async def _cancel_at_hangup(task: asyncio.Task[Any]) -> None:
    """Cancel a task when the terminal is gone.

    Its SIGHUP goes to the first process of the session alone; make, say, keeps it to itself.
    """
    if not os.isatty(0):
        return
    terminal = select.poll()
    terminal.register(0, 0)
    while not terminal.poll(0):  # noqa: ASYNC110 - nothing calls back
        await asyncio.sleep(_LOOK_SECONDS)
    task.cancel()


def run_until_signalled(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run an async function on uvloop; SIGTERM, SIGINT and a closed terminal cancel it."""
    import uvloop

    async def run() -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        numbers = [signal.SIGTERM, signal.SIGINT]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as nohup sets it
            numbers.append(signal.SIGHUP)
        for number in numbers:
            loop.add_signal_handler(number, task.cancel)
        hangup = asyncio.create_task(_cancel_at_hangup(task))
        with contextlib.suppress(asyncio.CancelledError):
            await work()
        hangup.cancel()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())
