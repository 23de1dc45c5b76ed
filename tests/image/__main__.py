"""Tries the image's steps without a container engine: ``make image-steps``.

The steps of the Dockerfile are run on a root file system made of Debian's packages, which stands
for the base image: Debian's Python of the same version. The result is then run as a container would
be, with a read-only root file system, as user 65532, by the image's entry point, on an embedded
cluster. Needs root and mmdebstrap or debootstrap; without them it says so and fails.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from image.dockerfile import Image, build
from proreus.workbench.sandbox import Sandbox

ROOT = Path(__file__).resolve().parents[2]
WORK = ROOT / "build" / "image"
SUITE = "bookworm"  # its Python is 3.11
PACKAGES = "python3,python3-venv,ca-certificates"
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
USER = 65532
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
    """A step did not do what it should; the text says what."""


def main() -> int:
    """Build, check and run; return the exit code."""
    try:
        image = make_image()
        check_packages(image)
        check_files(image)
        check_allocator(image)
        asyncio.run(run_on_sandbox(image))
    except (Failed, subprocess.CalledProcessError) as error:
        print(f"image-steps: {error}", file=sys.stderr)
        return 1
    print(f"installed: {mebibytes(image.root / 'opt')} MiB in /opt, all: ", end="")
    print(f"{mebibytes(image.root)} MiB with Debian's Python")
    return 0


# ---- the root file system ------------------------------------------------------------------------


def make_image() -> Image:
    """Return the last stage of the Dockerfile on a root file system of Debian's packages."""
    if os.geteuid() != 0:
        raise Failed("nothing was tried: chroot and mount need root")
    base = WORK / "base"
    if not (base / "usr/bin/python3").exists():
        shutil.rmtree(base, ignore_errors=True)
        WORK.mkdir(parents=True, exist_ok=True)
        subprocess.run(_bootstrap(base), check=True)
        (base / "usr/local/bin/python").symlink_to("/usr/bin/python3")
    with _network(base):
        env = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
        # Only the lock and the registry: local wheels would have other hashes.
        env.pop("PIP_FIND_LINKS", None)
        return build(ROOT / "Dockerfile", base, WORK / "stages", env)


def _bootstrap(target: Path) -> list[str]:
    if shutil.which("mmdebstrap"):
        variant = ["--variant=minbase", "--quiet", f"--include={PACKAGES}"]
        return ["mmdebstrap", *variant, SUITE, str(target)]
    if shutil.which("debootstrap"):
        return ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", SUITE, str(target)]
    raise Failed(
        "nothing was tried: neither mmdebstrap nor debootstrap is installed "
        "(on Debian: apt install mmdebstrap)"
    )


@contextmanager
def _network(base: Path) -> Iterator[None]:
    """Give the build the resolver and the certificates of this machine, as an engine does."""
    given = {Path("/etc/resolv.conf"): "", CERTIFICATES: ""}
    kept = {file: (base / str(file)[1:]) for file in given if file.exists()}
    saved = {place: place.read_bytes() for place in kept.values() if place.is_file()}
    for file, place in kept.items():
        place.unlink(missing_ok=True)
        shutil.copyfile(file, place)
    try:
        yield
    finally:
        for place in kept.values():
            place.unlink()
            if place in saved:
                place.write_bytes(saved[place])


def mebibytes(folder: Path) -> int:
    """Return the size of a folder's files, links not followed."""
    files = (Path(at) / name for at, _, names in os.walk(folder) for name in names)
    return round(sum(file.lstat().st_size for file in files) / 2**20)


# ---- checks --------------------------------------------------------------------------------------


def run_in(image: Image, *command: str, read_only: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a command in the image as its user."""
    arguments = image.arguments(list(command), read_only=read_only)
    return subprocess.run(arguments, capture_output=True, text=True)


def check_packages(image: Image) -> None:
    """Check that what is installed is what the lock says, and nothing else."""
    done = run_in(image, "python", "-c", _LIST)
    installed = {_normal(one) for one in done.stdout.split()}
    lock = (ROOT / "requirements" / "runtime.txt").read_text()
    wanted = {_normal(one) for one in re.findall(r"^\S+==[^\s;]+", lock, re.MULTILINE)}
    extra = {one for one in installed - wanted if not one.startswith("proreus==")}
    if extra or wanted - installed:
        raise Failed(f"installed but not locked: {extra}; the reverse: {wanted - installed}")
    print(f"{len(installed)} distributions are installed, as locked")


def _normal(pin: str) -> str:
    name, _, version = pin.partition("==")
    return f"{re.sub(r'[-_.]+', '-', name).lower()}=={version}"


def check_files(image: Image) -> None:
    """Check that the image's user can write nothing, and that nothing of ours is setuid."""
    for place in ("/opt/proreus/x", "/tmp/x", "/x"):
        if (
            "Read-only file system"
            not in (done := run_in(image, "python", "-c", _WRITE, place)).stderr
        ):
            raise Failed(f"{place} could be written to: {done.stderr}")
    done = run_in(image, "python", "-c", _WRITE, "/opt/proreus/x", read_only=False)
    if "Permission denied" not in done.stderr:
        raise Failed(f"user {image.user} may write to /opt/proreus: {done.stderr}")
    for at, _, names in os.walk(image.root / "opt"):
        for name in names:
            mode = (Path(at) / name).lstat().st_mode
            if not stat.S_ISLNK(mode) and mode & (stat.S_ISUID | stat.S_ISGID | stat.S_IWOTH):
                raise Failed(f"{at}/{name} has mode {mode:o}")
    print("nothing can be written, with and without a read-only root file system")


def check_allocator(image: Image) -> None:
    """Check that Python's objects come from jemalloc."""
    done = run_in(image, "python", "-c", _ALLOCATOR)
    if done.returncode or done.stderr or done.stdout.split() != ["True", "0"]:
        raise Failed(f"jemalloc is not what allocates: {done.stdout}{done.stderr}")
    print("jemalloc allocates")


# ---- run -----------------------------------------------------------------------------------------


async def run_on_sandbox(image: Image) -> None:
    """Run the entry point on an embedded cluster: pods get nodes, and SIGTERM ends it with 0."""
    async with Sandbox(nodes=3) as sandbox:
        with tempfile.TemporaryDirectory() as folder:
            kubeconfig = sandbox.write_kubeconfig(f"{folder}/kubeconfig")
            os.chmod(kubeconfig, 0o644)
            os.chmod(folder, 0o755)
            os.makedirs(f"{image.root}/etc/proreus", exist_ok=True)
            flags = ["--kubeconfig=/etc/proreus/kubeconfig", "--leader-elect=false"]
            flags += ["--bind-address=127.0.0.1", "--secure-port=0", "-v=2"]
            command = [*image.entry_point, *image.command, *flags]
            print(" ".join(command), flush=True)
            process = await asyncio.create_subprocess_exec(
                *image.arguments(
                    command,
                    read_only=True,
                    empty=["/tmp"],  # as in deploy/
                    mounts={"/etc/proreus": Path(folder)},
                ),
                stderr=asyncio.subprocess.PIPE,
            )
            try:
                await _schedule(sandbox, process)
            finally:
                await _end(process)


async def _schedule(sandbox: Sandbox, process: asyncio.subprocess.Process) -> None:
    names = [f"pod-{number}" for number in range(_PODS)]
    for name in names:
        sandbox.store.create("pods", _pod(name))
    for _ in range(20 * _SECONDS):
        found = [sandbox.store.get("pods", name, "default").object() for name in names]
        if all(pod["spec"].get("nodeName") for pod in found):
            break
        if process.returncode is not None:
            raise Failed("the process has ended")
        await asyncio.sleep(0.05)
    else:
        raise Failed(f"not all pods have a node after {_SECONDS} s")
    users = {_uid(pid) for pid in _processes("proreus")}
    if users != {USER}:
        raise Failed(f"proreus runs as {users}")
    print(f"{_PODS} pods got nodes; the process runs as user {USER}")


async def _end(process: asyncio.subprocess.Process) -> None:
    for pid in _processes("proreus"):
        os.kill(pid, 15)
    _, err = await asyncio.wait_for(process.communicate(), _SECONDS)
    if process.returncode != 0:
        raise Failed(f"exit code {process.returncode}\n{err.decode()[-2000:]}")
    print("SIGTERM ended it with 0")


def _processes(name: str) -> Iterator[int]:
    """Yield the processes whose root is the image's."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            inside = os.readlink(entry / "root").startswith(str(WORK))
            command = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if inside and any(part.endswith(name.encode()) for part in command[:2]):
            yield int(entry.name)


def _uid(pid: int) -> int:
    (line,) = re.findall(r"^Uid:\t(\d+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return int(line)


def _pod(name: str) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }


if __name__ == "__main__":
    sys.exit(main())
