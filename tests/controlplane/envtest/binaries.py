"""Find or build the programs of the real control plane.

They are ordinary Go modules, pinned in ``tests/controlplane/binaries``. A program that
KUBEBUILDER_ASSETS names wins over building; everything else is built once into a cache folder keyed
by Kubernetes' version, and again when its go.mod, go.sum or build flags change.

A lock keeps two builders apart and each program is renamed into place, so a test run that starts
while another one builds waits, and one that is killed leaves no half program behind.

``python -m envtest.binaries`` builds all of them and shows how it goes; with ``--where`` it only
says in which folder built ones are.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

MODULES_FOLDER = Path(__file__).resolve().parent.parent / "binaries"

KUBERNETES_VERSION = "v1.36.2"

_STAMP = "-X k8s.io/component-base/version."


@dataclass(frozen=True)
class GoModule:
    """One pinned Go module and the programs to build from it: name -> package."""

    name: str
    programs: dict[str, str]
    ldflags: str = ""
    seconds_from_cold: int = 60

    @property
    def folder(self) -> Path:
        """The folder of its go.mod."""
        return MODULES_FOLDER / self.name

    def fingerprint(self) -> str:
        """Return a digest that changes when the programs must be built again."""
        digest = hashlib.sha256(f"{self.programs} {self.ldflags}".encode())
        for file in ("go.mod", "go.sum"):
            digest.update((self.folder / file).read_bytes())
        return digest.hexdigest()


MODULES = (
    GoModule(
        "kubernetes",
        {
            name: f"k8s.io/kubernetes/cmd/{name}"
            for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
        },
        # without the stamp the apiserver's version is v0.0.0, which some clients reject
        ldflags=f"{_STAMP}gitVersion={KUBERNETES_VERSION} {_STAMP}gitMajor=1 {_STAMP}gitMinor=36",
        seconds_from_cold=250,
    ),
    GoModule("etcd", {"etcd": "go.etcd.io/etcd/server/v3"}, seconds_from_cold=25),
    GoModule(
        "kwok",
        {"kwok": "sigs.k8s.io/kwok/cmd/kwok", "kwokctl": "sigs.k8s.io/kwok/cmd/kwokctl"},
        seconds_from_cold=70,
    ),
)

PROGRAMS = tuple(program for module in MODULES for program in module.programs)


class MissingBinaries(Exception):
    """Programs are not in KUBEBUILDER_ASSETS and cannot be built; the message says why."""


def cache_folder() -> Path:
    """Return the folder of the built programs."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "proreus" / "controlplane" / KUBERNETES_VERSION


def find_or_build(programs: Iterable[str] = PROGRAMS) -> dict[str, Path]:
    """Return the path of each program, building those that are missing (minutes, from cold).

    Raises MissingBinaries when something would have to be built and cannot be.
    """
    wanted = list(programs)
    found = dict(_assets(wanted))
    for module in MODULES:
        missing = [name for name in wanted if name in module.programs and name not in found]
        if missing:
            _ensure_built(module)
            found |= {name: cache_folder() / name for name in missing}
    return found


def find_present(programs: Iterable[str] = PROGRAMS) -> dict[str, Path]:
    """Return the path of each program that exists already."""
    wanted = list(programs)
    built = {
        name: cache_folder() / name
        for module in MODULES
        if _is_built(module)
        for name in module.programs
        if name in wanted
    }
    return built | dict(_assets(wanted))


def _assets(programs: Iterable[str]) -> Iterator[tuple[str, Path]]:
    folder = os.environ.get("KUBEBUILDER_ASSETS")
    for name in programs if folder else ():
        path = Path(str(folder)) / name
        if os.access(path, os.X_OK) and path.is_file():
            yield name, path.resolve()


def _ensure_built(module: GoModule) -> None:
    if _is_built(module):
        return
    with _lock():
        if not _is_built(module):  # another process may have built it meanwhile
            _build(module)


def _is_built(module: GoModule) -> bool:
    folder = cache_folder()
    stamp = folder / f".{module.name}.fingerprint"
    return (
        stamp.is_file()
        and stamp.read_text() == module.fingerprint()
        and all((folder / name).is_file() for name in module.programs)
    )


@contextmanager
def _lock() -> Iterator[None]:
    cache_folder().mkdir(parents=True, exist_ok=True)
    with open(cache_folder() / ".lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build(module: GoModule) -> None:
    go = shutil.which("go")
    if go is None:
        raise MissingBinaries(
            f"neither Go is installed nor does KUBEBUILDER_ASSETS hold {', '.join(module.programs)}"
        )
    _say(f"building {', '.join(module.programs)}: about {module.seconds_from_cold} s from cold")
    started = time.monotonic()
    folder = cache_folder()
    with tempfile.TemporaryDirectory(prefix=".building-", dir=folder) as fresh:
        for name, package in module.programs.items():
            command = [go, "build", "-trimpath", "-ldflags", module.ldflags]
            result = subprocess.run(
                [*command, "-o", f"{fresh}/{name}", package],
                cwd=module.folder,
                env=os.environ | {"CGO_ENABLED": "0", "GOWORK": "off"},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            if result.returncode != 0:
                raise MissingBinaries(f"go build of {name} failed:\n{result.stdout[-2000:]}")
        for name in module.programs:
            os.replace(f"{fresh}/{name}", folder / name)
    (folder / f".{module.name}.fingerprint").write_text(module.fingerprint())
    _say(f"built {', '.join(module.programs)} in {time.monotonic() - started:.0f} s")


def _say(line: str) -> None:
    # pytest captures sys.stderr; minutes of silence would look like a hang
    print(line, file=sys.__stderr__, flush=True)


def main() -> int:
    """Build all programs; where that is impossible, warn, and let the tests be skipped."""
    try:
        paths = find_or_build()
    except MissingBinaries as missing:
        _say(f"NO REAL CONTROL PLANE HERE: {missing}")
        return 0
    for name, path in paths.items():
        print(f"{name:24} {path}")
    return 0


def _where() -> int:
    print(cache_folder())
    return 0


if __name__ == "__main__":
    sys.exit(_where() if sys.argv[1:] == ["--where"] else main())
