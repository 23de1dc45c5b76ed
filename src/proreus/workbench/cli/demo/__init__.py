"""``proreus demo``: schedule a thousand pods with two profiles on an embedded cluster.

The cluster runs in this process, the scheduler is ``proreus run`` in a process of its own, so that
the demo includes HTTP, as with a real cluster. ``workload`` has the pods and the configuration,
``progress`` follows the pods and prints the result.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click

from proreus.base.errors import ConfigError, ProreusError
from proreus.process.cli.documented_options import documented_options
from proreus.process.cli.plugin_options import plugin_options

if TYPE_CHECKING:
    from proreus.config.types import Plugins

_Count = Annotated[int, click.IntRange(1)]

_LIMIT_SECONDS = 120.0
_STOP_SECONDS = 10.0
_DASHBOARD_PORT = 10260
_SECURE_PORT = 10259


@click.command("demo")
@documented_options
@plugin_options
def command(
    *,
    nodes: _Count = 100,
    pods: Annotated[int, click.IntRange(20)] = 1000,
    zones: _Count = 3,
    serve: bool = False,
    plugin: tuple[str, ...],
    plugin_dir: tuple[str, ...],
) -> None:
    """Watch proreus schedule pods on an embedded cluster.

    Plugins given with --plugin and --plugin-dir are enabled in both profiles.

    --nodes
        Number of nodes. [default]
    --pods
        Number of pods. [default]
    --zones
        Number of zones that nodes are divided among. [default]
    --serve
        Serve the dashboard on loopback, and keep the cluster running afterwards.
    """
    from proreus.workbench.cli.sandbox import run_until_signalled

    enabled = _plugins_to_enable(plugin, plugin_dir)
    flags = [f"--plugin={one}" for one in plugin] + [f"--plugin-dir={one}" for one in plugin_dir]
    done: list[str] = []
    run_until_signalled(lambda: _demo(nodes, pods, zones, enabled, flags, serve, done.append))
    if not done:
        raise click.Abort


def _plugins_to_enable(plugin: tuple[str, ...], plugin_dir: tuple[str, ...]) -> Plugins:
    """Return plugin sets with the given plugins; raises ``ConfigError`` if one is refused."""
    from proreus.process.loading.load import PluginSources, load

    loaded_plugins = load(PluginSources(plugin, plugin_dir, packages=False))
    if loaded_plugins.refusals:
        raise ConfigError(*map(str, loaded_plugins.refusals))
    return loaded_plugins.enabling(loaded_plugins.out_of_tree)


async def _demo(
    nodes: int,
    pods: int,
    zones: int,
    plugins: Plugins,
    plugin_flags: list[str],
    serve: bool,
    on_report: Callable[[str], None],
) -> None:
    from rich.console import Console

    from proreus.workbench.cli.demo import workload
    from proreus.workbench.cli.demo.progress import Progress, print_commands, print_report
    from proreus.workbench.cli.sandbox import forever
    from proreus.workbench.sandbox import Sandbox

    console = Console()
    with tempfile.TemporaryDirectory(prefix="proreus-demo-") as folder:
        async with Sandbox(nodes, zones=zones) as sandbox:
            kubeconfig = sandbox.write_kubeconfig(Path(folder) / "kubeconfig")
            console.print(f"a cluster of {nodes} nodes in {zones} zones, at {sandbox.secure_url}")
            config = workload.write_configuration(
                Path(folder) / "config.yaml", str(kubeconfig), plugins
            )
            progress = Progress(sandbox.store)
            flags = [*plugin_flags, "--config", str(config)]
            if serve:
                address, secure_address = free_address(_DASHBOARD_PORT), free_address(_SECURE_PORT)
                flags += _serving_flags(address, secure_address, kubeconfig)
                console.print(f"the dashboard: http://{address}/dashboard/", soft_wrap=True)
            else:
                flags += ["--secure-port=0"]
            async with _scheduler(Path(folder), flags) as process:
                # Without waiting for the scheduler: the throughput is measured from just before the
                # first binding, so that its start does not count.
                workload.create_pods(sandbox.store, pods)
                wait = partial(_wait_until, process=process, log=Path(folder) / "scheduler.log")
                with progress.shown(console):
                    await wait(progress.follow, progress.problem)
                print_report(console, progress, sandbox.store)
                on_report("printed")
                if serve:
                    # The scheduler begins to listen after it has begun to schedule.
                    await wait(partial(_listens, address), lambda: "the dashboard is not served")
                    pod = next(iter(progress.reason_of), "web-0000")
                    print_commands(console, kubeconfig, address, secure_address, pod)
                    await forever()


def free_address(port: int) -> str:
    """Return an address on loopback: with this port if it is free, or else with any free one."""
    for number in (port, 0):
        with socket.socket() as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                tried.bind(("127.0.0.1", number))
                return f"127.0.0.1:{tried.getsockname()[1]}"
    raise ProreusError("there is no free port on 127.0.0.1")


def _serving_flags(address: str, secure_address: str, kubeconfig: Path) -> list[str]:
    """Return the flags with which the dashboard and ``proreus explain`` are answered."""
    host, _, port = secure_address.partition(":")
    return [
        f"--dashboard-insecure-local={address}",
        f"--bind-address={host}",
        f"--secure-port={port}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
    ]


@contextlib.asynccontextmanager
async def _scheduler(folder: Path, flags: list[str]) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run the scheduler as a child process; its log is shown only if it fails."""
    with (folder / "scheduler.log").open("wb") as stderr:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "proreus.workbench.cli.demo.scheduler", str(folder), *flags),
            stdin=asyncio.subprocess.PIPE,
            stderr=stderr,
            # Without the terminal, whose SIGHUP would reload and whose Ctrl-C would come twice.
            start_new_session=True,
        )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            try:
                await asyncio.wait_for(process.wait(), _STOP_SECONDS)
            except TimeoutError:
                process.kill()
                await process.wait()


async def _wait_until(
    done: Callable[[], bool],
    problem: Callable[[], str],
    process: asyncio.subprocess.Process,
    log: Path,
) -> None:
    """Wait until something is done; ``problem`` is the text of the error if it takes too long.

    Raises ``ProreusError`` then, or if the scheduler ends.
    """
    deadline = time.monotonic() + _LIMIT_SECONDS
    while not done():
        if process.returncode is not None:
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-5:])  # noqa: ASYNC240
            raise ProreusError(f"the scheduler ended with code {process.returncode}:\n{tail}")
        if time.monotonic() > deadline:
            raise ProreusError(f"{problem()} after {_LIMIT_SECONDS:.0f} seconds")
        await asyncio.sleep(0.01)


def _listens(address: str) -> bool:
    """Return whether a server listens on an address of loopback."""
    host, _, port = address.partition(":")
    try:
        socket.create_connection((host, int(port)), timeout=1).close()
    except OSError:
        return False
    return True
