"""Builds the image by Debian's buildah and runs it: ``make image-check``.

The Dockerfile is built as it is. No registry is asked: an image of Debian's packages has the name
of the base image. The container's root file system is then run as the Deployment in deploy/ runs
it, read-only and as a user without a name, on an embedded cluster. Needs root, buildah, and
mmdebstrap or debootstrap; without them it says so and fails.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import re
import ssl
import stat
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

from image.buildah import Buildah, MissingTool
from image.container import Container
from proreus.workbench.bench.processes import free_ports
from proreus.workbench.sandbox import Sandbox

ROOT = Path(__file__).resolve().parents[2]
SECOND = ROOT / "deploy" / "second-scheduler"
BASE = "docker.io/library/python:3.11-slim"
IMAGE = "localhost/proreus:check"
_PODS = 20
_SECONDS = 60
_LIST = (
    "import importlib.metadata as m; print(*(f'{d.name}=={d.version}' for d in m.distributions()))"
)
# Python counts the blocks of its own allocator only.
_ALLOCATOR = (
    "import sys; print('libjemalloc' in open('/proc/self/maps').read(), sys.getallocatedblocks())"
)
_WRITE = "import sys; open(sys.argv[1], 'w')"


class Failed(Exception):
    """A check failed; the text says what is wrong."""


def main() -> int:
    """Build, check and run; return the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--context", default=ROOT, type=Path, help="folder with the Dockerfile")
    parser.add_argument("--built", action="store_true", help="check the image of the last time")
    given = parser.parse_args()
    try:
        buildah = Buildah(ROOT / "build" / "image")
        if not buildah.has(BASE):
            buildah.make_base(BASE)
        if not given.built:
            buildah.build(given.context, IMAGE)
        with buildah.container(IMAGE) as container:
            check_packages(container)
            check_files(container)
            check_allocator(container)
            asyncio.run(run_on_sandbox(container))
            print(f"/opt has {mebibytes(container.root / 'opt')} MiB")
    except (Failed, MissingTool, subprocess.CalledProcessError) as error:
        print(f"image-check failed: {error}", file=sys.stderr)
        return 1
    return 0


def mebibytes(folder: Path) -> int:
    """Return the size of a folder's files, links not followed."""
    files = (Path(at) / name for at, _, names in os.walk(folder) for name in names)
    return round(sum(file.lstat().st_size for file in files) / 2**20)


# ---- checks --------------------------------------------------------------------------------------


def run_in(
    container: Container, *command: str, read_only: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run a command in the container as its user."""
    arguments = container.arguments(command, read_only=read_only)
    return subprocess.run(arguments, capture_output=True, text=True)


def check_packages(container: Container) -> None:
    """Check that exactly the locked packages are installed."""
    done = run_in(container, "python", "-c", _LIST)
    installed = {_normal(one) for one in done.stdout.split()}
    lock = (ROOT / "requirements" / "runtime.txt").read_text()
    wanted = {_normal(one) for one in re.findall(r"^\S+==[^\s;]+", lock, re.MULTILINE)}
    extra = {one for one in installed - wanted if not one.startswith("proreus==")}
    if extra or wanted - installed:
        raise Failed(
            f"installed but not locked: {extra}; the reverse: {wanted - installed}{done.stderr}"
        )
    print(f"{len(installed)} distributions are installed, as locked")


def _normal(pin: str) -> str:
    name, _, version = pin.partition("==")
    return f"{re.sub(r'[-_.]+', '-', name).lower()}=={version}"


def check_files(container: Container) -> None:
    """Check that the image's user has no name and can write nothing."""
    user = container.user.partition(":")[0]
    accounts = (container.root / "etc" / "passwd").read_text().splitlines()
    if any(line.split(":")[2] == user for line in accounts):
        raise Failed(f"user {user} is in /etc/passwd: another image may not have it")
    for place in ("/opt/proreus/x", "/tmp/x", "/x"):
        done = run_in(container, "python", "-c", _WRITE, place)
        if "Read-only file system" not in done.stderr:
            raise Failed(f"{place} could be written to: {done.stderr}")
    done = run_in(container, "python", "-c", _WRITE, "/opt/proreus/x", read_only=False)
    if "Permission denied" not in done.stderr:
        raise Failed(f"user {user} may write to /opt/proreus: {done.stderr}")
    for at, _, names in os.walk(container.root / "opt"):
        for name in names:
            mode = (Path(at) / name).lstat().st_mode
            if not stat.S_ISLNK(mode) and mode & (stat.S_ISUID | stat.S_ISGID | stat.S_IWOTH):
                raise Failed(f"{at}/{name} has mode {mode:o}")
    print("nothing can be written, with and without a read-only root file system")


def check_allocator(container: Container) -> None:
    """Check that Python's objects come from jemalloc."""
    done = run_in(container, "python", "-c", _ALLOCATOR)
    if done.returncode or done.stderr or done.stdout.split() != ["True", "0"]:
        raise Failed(f"jemalloc is not what allocates: {done.stdout}{done.stderr}")
    print("jemalloc allocates")


# ---- run -----------------------------------------------------------------------------------------


async def run_on_sandbox(container: Container) -> None:
    """Run the Deployment's container on an embedded cluster until pods have nodes, and end it."""
    pod = yaml.safe_load((SECOND / "deployment.yaml").read_text())["spec"]["template"]["spec"]
    check_security(container, pod)
    async with Sandbox(nodes=3) as sandbox:
        sandbox.store.create("namespaces", yaml.safe_load((SECOND / "namespace.yaml").read_text()))
        with tempfile.TemporaryDirectory() as folder:
            [port] = free_ports(1)
            write_configuration(Path(folder), sandbox)
            volumes = {one["name"]: one for one in pod["volumes"]}
            mounts = pod["containers"][0]["volumeMounts"]
            command = [*container.entry_point, *pod["containers"][0]["args"]]
            command += ["--bind-address=127.0.0.1", f"--secure-port={port}"]
            print(" ".join(command), flush=True)
            process = await asyncio.create_subprocess_exec(
                *container.arguments(
                    command,
                    empty=[m["mountPath"] for m in mounts if "emptyDir" in volumes[m["name"]]],
                    mounts={
                        m["mountPath"]: Path(folder)
                        for m in mounts
                        if "configMap" in volumes[m["name"]]
                    },
                ),
                stderr=asyncio.subprocess.PIPE,
            )
            try:
                await _schedule(sandbox, process, container, port)
            finally:
                await _end(process, container)


def check_security(container: Container, pod: dict[str, Any]) -> None:
    """Check that the Deployment runs the container as it is run here."""
    context = pod["securityContext"]
    if container.user != f"{context['runAsUser']}:{context['runAsGroup']}":
        raise Failed(f"the image's user is {container.user}, the Deployment's {context}")
    if not pod["containers"][0]["securityContext"]["readOnlyRootFilesystem"]:
        raise Failed("the Deployment's root file system is not read-only")


def write_configuration(folder: Path, sandbox: Sandbox) -> None:
    """Write the Deployment's configuration, with the sandbox's kubeconfig in it."""
    folder.chmod(0o755)
    kubeconfig = Path(sandbox.write_kubeconfig(str(folder / "kubeconfig")))
    kubeconfig.chmod(0o644)
    configuration = yaml.safe_load((SECOND / "scheduler.yaml").read_text())
    configuration["clientConnection"]["kubeconfig"] = "/etc/proreus/kubeconfig"
    (folder / "scheduler.yaml").write_text(yaml.safe_dump(configuration))


async def _schedule(
    sandbox: Sandbox, process: asyncio.subprocess.Process, container: Container, port: int
) -> None:
    names = [f"pod-{number}" for number in range(_PODS)]
    for name in names:
        sandbox.store.create("pods", _pod(name))

    def done() -> bool:
        found = [sandbox.store.get("pods", name, "default").object() for name in names]
        return all(pod["spec"].get("nodeName") for pod in found)

    await _wait("all pods have a node, and /readyz says ok", process, done, port)
    users = {_uid(pid) for pid in _processes(container)}
    if users != {int(container.user.partition(":")[0])}:
        raise Failed(f"proreus runs as {users}")
    print(f"{_PODS} pods got nodes; /readyz says ok; the process runs as user {container.user}")


async def _wait(
    what: str, process: asyncio.subprocess.Process, done: Callable[[], bool], port: int
) -> None:
    for _ in range(10 * _SECONDS):
        if done() and await asyncio.to_thread(_is_ready, port):
            return
        if process.returncode is not None:
            break
        await asyncio.sleep(0.1)
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    _, err = await process.communicate()
    raise Failed(f"not within {_SECONDS} s: {what}\n{err.decode()[-2000:]}")


def _is_ready(port: int) -> bool:
    # the certificate is self-signed
    context = ssl._create_unverified_context()
    try:
        url = f"https://127.0.0.1:{port}/readyz"
        with urllib.request.urlopen(url, timeout=10, context=context) as answer:
            return bool(answer.read() == b"ok")
    except OSError:
        return False


async def _end(process: asyncio.subprocess.Process, container: Container) -> None:
    for pid in _processes(container):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, 15)
    if process.returncode is not None:
        return
    _, err = await asyncio.wait_for(process.communicate(), _SECONDS)
    if process.returncode != 0:
        raise Failed(f"exit code {process.returncode}\n{err.decode()[-2000:]}")
    print("SIGTERM ended it with 0")


def _processes(container: Container) -> Iterator[int]:
    """Yield the processes of proreus whose root is the container's."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            inside = Path(os.readlink(entry / "root")) == container.root
            command = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if inside and any(part.endswith(b"proreus") for part in command[:2]):
            yield int(entry.name)


def _uid(pid: int) -> int:
    (line,) = re.findall(r"^Uid:\t(\d+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return int(line)


def _pod(name: str) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "schedulerName": "spread-out",
            "containers": [{"name": "c", "image": "i"}],
        },
    }


if __name__ == "__main__":
    sys.exit(main())
