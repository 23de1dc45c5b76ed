"""``proreus sandbox``: the embedded cluster as a process of its own."""

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path

from proreus.sandbox.kubelet import KubeletOptions
from proreus.sandbox.sandbox import Sandbox


async def run(
    *,
    nodes: int = 10,
    zones: int = 3,
    host: str = "127.0.0.1",
    port: int = 0,
    secure_port: int = 0,
    kubeconfig: str | Path | None = None,
    token: str = "",
    kubelet: KubeletOptions | None = KubeletOptions(),  # noqa: B008 - frozen
    say: Callable[[str], None] = print,
    until: asyncio.Event | None = None,
) -> None:
    """Serve an embedded cluster until SIGINT, SIGTERM or ``until``.

    ``kubeconfig``: where to write one (None: nowhere). ``kubelet``: how fast pods start and stop;
    None for nodes that do nothing. ``say`` gets the lines that tell a person where to look.
    Raises ``OSError`` for a port that is taken or a path that cannot be written.
    """
    stop = until or asyncio.Event()
    loop = asyncio.get_running_loop()
    signals = (signal.SIGINT, signal.SIGTERM)
    async with Sandbox(
        nodes,
        zones=zones,
        host=host,
        port=port,
        secure_port=secure_port,
        token=token,
        kubelet=kubelet,
    ) as sandbox:
        for number in signals:
            loop.add_signal_handler(number, stop.set)
        try:
            say(f"an embedded cluster with {nodes} nodes is served at {sandbox.secure_url}")
            say(f"without TLS: {sandbox.url} (token {sandbox.token})")
            if kubeconfig is not None:
                path = sandbox.write_kubeconfig(kubeconfig)
                say(f"look around with: kubectl --kubeconfig {path} get nodes,pods -A -o wide")
            await stop.wait()
        finally:
            for number in signals:
                loop.remove_signal_handler(number)
