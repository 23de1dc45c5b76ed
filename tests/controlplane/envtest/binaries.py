"""Find or build the programs of the real control plane.

They are ordinary Go modules, pinned in ``tests/controlplane/binaries``; Kubernetes has one for each
release that the tests know, and the environment variable KUBERNETES (``1.36``) chooses among them.
A program that KUBEBUILDER_ASSETS names wins over building; everything else is built once into a
cache folder keyed by Kubernetes' version, and again when its go.mod, go.sum or build flags change.

A lock keeps two builders apart and each program is renamed into place, so a test run that starts
while another one builds waits, and one that is killed leaves no half program behind.

``python -m envtest.binaries`` builds all of them and shows how it goes; with ``--where`` it only
says in which folder built ones are, and with ``--built`` whether they are there: its exit status is
1, and a line says so, if not.
"""

from __future__ import annotations

import argparse
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
from functools import cache
from pathlib import Path

from proreus.base.kubernetes_version import (
    DEFAULT_VERSION,
    SUPPORTED_VERSIONS,
    KubernetesVersion,
)

MODULES_FOLDER = Path(__file__).resolve().parent.parent / "binaries"

RELEASES = {"1.36": "v1.36.2", "1.37": "v1.37.1", "1.38": "v1.38.0-beta.0"}
"""The minor versions of Kubernetes that can be built, and the patch release of each."""

BESIDE = {"1.38": "1.37"}
"""Versions of which kube-scheduler alone can be built, and the one whose control plane it gets.

kube-apiserver 1.38 needs k8s.io/apiextensions-api, which the module proxy does not serve yet.
"""

NEWEST = max(RELEASES.keys() - BESIDE.keys())

_STAMP = "-X k8s.io/component-base/version."


@dataclass(frozen=True)
class GoModule:
    """One pinned Go module and the programs to build from it: name -> package.

    ``folder``: where its go.mod is.
    """

    name: str
    programs: dict[str, str]
    folder: Path
    ldflags: str = ""
    seconds_from_cold: int = 60

    def fingerprint(self) -> str:
        """Return a digest that changes when the programs must be built again."""
        digest = hashlib.sha256(f"{self.programs} {self.ldflags}".encode())
        for file in ("go.mod", "go.sum", *sorted(self.folder.rglob("*.go"))):
            digest.update((self.folder / file).read_bytes())
        return digest.hexdigest()


_ETCD = GoModule(
    "etcd",
    {"etcd": "go.etcd.io/etcd/server/v3"},
    MODULES_FOLDER / "etcd",
    seconds_from_cold=25,
)
_KWOK = GoModule(
    "kwok",
    {"kwok": "sigs.k8s.io/kwok/cmd/kwok", "kwokctl": "sigs.k8s.io/kwok/cmd/kwokctl"},
    MODULES_FOLDER / "kwok",
    seconds_from_cold=70,
)
HELM = GoModule(
    "helm",
    {"helm": "helm.sh/helm/v3/cmd/helm"},
    MODULES_FOLDER / "helm",
    # as in Helm's Makefile: the versions of Kubernetes that it assumes without a cluster
    " ".join(
        f"-X helm.sh/helm/v3/{package}.k8sVersion{part}={number}"
        for package in ("pkg/chartutil", "pkg/lint/rules")
        for part, number in (("Major", 1), ("Minor", 37))
    ),
    seconds_from_cold=90,
)
"""No program of the control plane: without it, only the tests of the chart are skipped."""

_KUBERNETES_PROGRAMS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")

PROGRAMS = (*_KUBERNETES_PROGRAMS, *_ETCD.programs, *_KWOK.programs)


def cache_root() -> Path:
    """Return the folder of all that tests build once."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "proreus"


@dataclass(frozen=True)
class Release:
    """A release of Kubernetes, by its minor version, and the programs of its control plane."""

    minor: str

    @property
    def version(self) -> str:
        """The version of its patch release, such as v1.37.1."""
        return RELEASES[self.minor]

    @property
    def cache_folder(self) -> Path:
        """The folder of its built programs."""
        return cache_root() / "controlplane" / self.version

    @property
    def control_plane(self) -> Release:
        """The release of its kube-apiserver, which may be an older one."""
        return Release(BESIDE.get(self.minor, self.minor))

    @property
    def parts(self) -> list[tuple[GoModule, Path]]:
        """The modules that have all its programs, and where those are built.

        Where two modules have a program, it is that of the first.
        """
        own = [(module, self.cache_folder) for module in self._modules]
        return own if self.control_plane == self else [*own, *self.control_plane.parts]

    @property
    def _modules(self) -> tuple[GoModule, ...]:
        minor = self.minor.partition(".")[2]
        alone = self.control_plane != self
        kubernetes = GoModule(
            "kubernetes",
            {
                name: f"k8s.io/kubernetes/cmd/{name}"
                for name in (("kube-scheduler",) if alone else _KUBERNETES_PROGRAMS)
            },
            MODULES_FOLDER / f"kubernetes-{self.minor}",
            # without the stamp the apiserver's version is v0.0.0, which some clients reject
            f"{_STAMP}gitVersion={self.version} {_STAMP}gitMajor=1 {_STAMP}gitMinor={minor}",
            seconds_from_cold=250,
        )
        return (kubernetes,) if alone else (kubernetes, _ETCD, _KWOK)

    def find(self, programs: Iterable[str]) -> Iterator[tuple[GoModule, Path, list[str]]]:
        """Yield the modules that have these programs, where those are built, and their names."""
        wanted = set(programs)
        for module, folder in self.parts:
            if names := [name for name in module.programs if name in wanted]:
                yield module, folder, names
                wanted -= set(names)


def chosen_release() -> Release:
    """Return the release that the environment variable KUBERNETES names, by default the newest.

    Raises ValueError for one that cannot be built.
    """
    minor = os.environ.get("KUBERNETES") or NEWEST
    if minor not in RELEASES:
        raise ValueError(f"KUBERNETES={minor}: the tests know {' and '.join(RELEASES)}")
    return Release(minor)


class MissingBinaries(Exception):
    """Programs are not in KUBEBUILDER_ASSETS and cannot be built; the message says why."""


def find_or_build(programs: Iterable[str] = PROGRAMS) -> dict[str, Path]:
    """Return the path of each program, building those that are missing (minutes, from cold).

    Raises MissingBinaries when something would have to be built and cannot be.
    """
    wanted = list(programs)
    found = dict(_assets(wanted))
    release = chosen_release()
    others = list(release.find(name for name in wanted if name not in found))
    unbuilt = [
        name for module, folder, names in others for name in names if not _is_built(folder, module)
    ]
    if unbuilt and shutil.which("go") is None:
        raise MissingBinaries(
            f"neither Go is installed nor does KUBEBUILDER_ASSETS hold {', '.join(unbuilt)}"
        )
    for module, folder, names in others:
        ensure_built(folder, module)
        found |= {name: folder / name for name in names}
    return found


def find_present(programs: Iterable[str] = PROGRAMS) -> dict[str, Path]:
    """Return the path of each program that exists already."""
    wanted = list(programs)
    release = chosen_release()
    built = {
        name: folder / name
        for module, folder, names in release.find(wanted)
        if _is_built(folder, module)
        for name in names
    }
    return built | dict(_assets(wanted))


def find_or_build_helm() -> Path:
    """Return the path of Helm, built if necessary.

    Raises MissingBinaries when it cannot be built.
    """
    folder = cache_root() / "helm"
    ensure_built(folder, HELM)
    return folder / "helm"


@cache
def emulated_version() -> str:
    """Return the version that proreus emulates under test: that of the control plane.

    A kube-apiserver of KUBEBUILDER_ASSETS may have a version that is not served; then it is the
    nearest one that is.
    """
    for _, program in _assets(["kube-apiserver"]):
        told = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
        version = KubernetesVersion.parse(told.stdout.removeprefix("Kubernetes "))
        return str(min(max(version, SUPPORTED_VERSIONS[0]), DEFAULT_VERSION))
    return chosen_release().minor


def _assets(programs: Iterable[str]) -> list[tuple[str, Path]]:
    folder = os.environ.get("KUBEBUILDER_ASSETS")
    paths = {name: Path(folder) / name for name in programs} if folder else {}
    return [
        (name, path.resolve())
        for name, path in paths.items()
        if os.access(path, os.X_OK) and path.is_file()
    ]


def ensure_built(folder: Path, module: GoModule) -> None:
    """Build a module's programs into a folder, unless they are there.

    Raises MissingBinaries when they are not, and cannot be built.
    """
    if _is_built(folder, module):
        return
    with _lock(folder):
        if not _is_built(folder, module):  # another process may have built it meanwhile
            _build(folder, module)


def _is_built(folder: Path, module: GoModule) -> bool:
    stamp = folder / f".{module.name}.fingerprint"
    return (
        stamp.is_file()
        and stamp.read_text() == module.fingerprint()
        and all((folder / name).is_file() for name in module.programs)
    )


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build(folder: Path, module: GoModule) -> None:
    go = shutil.which("go")
    if go is None:
        raise MissingBinaries(
            f"neither Go is installed nor does KUBEBUILDER_ASSETS hold {', '.join(module.programs)}"
        )
    _say(f"building {', '.join(module.programs)}: about {module.seconds_from_cold} s from cold")
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix=".building-", dir=folder) as fresh:
        for name, package in module.programs.items():
            command = [go, "build", "-trimpath", "-ldflags", module.ldflags]
            result = subprocess.run(
                [*command, "-o", f"{fresh}/{name}", package],
                cwd=module.folder,
                # auto: the toolchain that go.mod asks for, where the installed one is older
                env=os.environ | {"CGO_ENABLED": "0", "GOWORK": "off", "GOTOOLCHAIN": "auto"},
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
    parser = argparse.ArgumentParser(description="Build the programs of the control plane.")
    parser.add_argument("--where", action="store_true", help="only say in which folder they are")
    parser.add_argument("--built", action="store_true", help="only say whether they are built")
    options = parser.parse_args()
    release = chosen_release()
    if release.control_plane != release:
        _say(
            f"kube-apiserver {release.version} cannot be built: kube-scheduler {release.version} "
            f"runs beside a control plane of {release.control_plane.version}"
        )
    if options.where:
        print(release.cache_folder)
        return 0
    if options.built:
        return 0 if _is_complete(release) else _say_what_is_missing(release)
    try:
        paths = find_or_build() | {"helm": find_or_build_helm()}
    except MissingBinaries as missing:
        _say(f"NO REAL CONTROL PLANE HERE: {missing}")
        return 0
    for name, path in paths.items():
        print(f"{name:24} {path}")
    return 0


def _is_complete(release: Release) -> bool:
    return all(_is_built(folder, module) for module, folder in release.parts)


def _say_what_is_missing(release: Release) -> int:
    others = [Release(minor) for minor in RELEASES if minor != release.minor]
    if any(_is_complete(other) for other in others) or _assets(["kube-apiserver"]):
        _say(
            f"Kubernetes {release.version} is not built here: no tests on it; "
            f"make test-controlplane KUBERNETES={release.minor} builds it"
        )
    else:
        _say(f"NO REAL CONTROL PLANE HERE: neither {' nor '.join(RELEASES.values())} is built")
    return 1


if __name__ == "__main__":
    sys.exit(main())
