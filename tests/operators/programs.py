"""The operators' programs and manifests, from pinned Go modules.

Two modules, since the operators need two versions of controller-runtime.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from envtest.binaries import GoModule, MissingBinaries, cache_root, ensure_built

Json = dict[str, Any]

FOLDER = Path(__file__).resolve().parent / "binaries"
_OLDER, _NEWER = FOLDER / "controller-runtime-0.22", FOLDER / "controller-runtime-0.23"

_KUBEFLOW = "github.com/kubeflow"


@dataclass(frozen=True)
class _Source:
    folder: Path
    module: str
    package: str
    definitions: str
    webhooks: str = ""


# the packages that begin with a dot are ours: see there why
_SOURCES = {
    "training-operator": _Source(
        _NEWER,
        f"{_KUBEFLOW}/training-operator",
        "./training-operator",
        "manifests/base/crds/kubeflow.org_pytorchjobs.yaml",
    ),
    "mpi-operator": _Source(
        _NEWER,
        f"{_KUBEFLOW}/mpi-operator",
        "./mpi-operator",
        "manifests/base/kubeflow.org_mpijobs.yaml",
    ),
    "kueue": _Source(
        _NEWER,
        "sigs.k8s.io/kueue",
        "./kueue",
        "config/components/crd/bases/*.yaml",
        "config/components/webhook/manifests.yaml",
    ),
    "karpenter": _Source(_NEWER, "sigs.k8s.io/karpenter", "./karpenter", "**/apis/crds/*.yaml"),
    "lws": _Source(
        _OLDER,
        "sigs.k8s.io/lws",
        "sigs.k8s.io/lws/cmd",
        "config/crd/bases/*.yaml",
        "config/webhook/manifests.yaml",
    ),
    "jobset": _Source(
        _OLDER,
        "sigs.k8s.io/jobset",
        "sigs.k8s.io/jobset",
        "config/components/crd/bases/*.yaml",
        "config/components/webhook/manifests.yaml",
    ),
    "ray-operator": _Source(
        _OLDER,
        "github.com/ray-project/kuberay/ray-operator",
        "github.com/ray-project/kuberay/ray-operator",
        "config/crd/bases/*.yaml",
    ),
}


@dataclass(frozen=True)
class OperatorPrograms:
    """One operator: its built program, and the folder of its module with the manifests."""

    name: str
    program: Path
    module: Path

    @classmethod
    def find_or_build(cls, name: str) -> OperatorPrograms:
        """Return an operator, built if necessary (minutes, from cold).

        Raises MissingBinaries when it cannot be built.
        """
        source = _SOURCES[name]
        cache = cache_root() / "operators"
        module = GoModule(name, {name: source.package}, source.folder, seconds_from_cold=300)
        ensure_built(cache, module)
        return cls(name, cache / name, _module_folder(source))

    def definitions(self) -> Iterator[Json]:
        """Yield its CustomResourceDefinitions."""
        for path in sorted(self.module.glob(_SOURCES[self.name].definitions)):
            yield from _documents(path)

    def webhook_configurations(self) -> Iterator[Json]:
        """Yield its webhook configurations, which name a Service."""
        if _SOURCES[self.name].webhooks:
            yield from _documents(self.module / _SOURCES[self.name].webhooks)


def _module_folder(source: _Source) -> Path:
    command = ["go", "list", "-m", "-f", "{{.Dir}}", source.module]
    try:
        found = subprocess.run(
            command, cwd=source.folder, capture_output=True, text=True, timeout=60, check=True
        )
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        raise MissingBinaries(f"the manifests of {source.module} are not there: {error}") from error
    return Path(found.stdout.strip())


def _documents(path: Path) -> Iterator[Json]:
    return (each for each in yaml.safe_load_all(path.read_text()) if each)
