"""A whole cluster without a container engine: kwokctl's binary runtime.

etcd, kube-apiserver, kube-controller-manager, kube-scheduler (unless disabled) and kwok, whose fake
kubelets run what is bound, as plain processes on loopback.

``python -m envtest.kwok up|down`` is `make kwok-up` and `make kwok-down`.
"""

from __future__ import annotations

import argparse
import atexit
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from envtest.binaries import (
    MissingBinaries,
    chosen_release,
    find_or_build,
    find_present,
)
from envtest.kube_client import KubeClient

COMPONENTS = {
    "etcd": "etcd",
    "kube-apiserver": "kube-apiserver",
    "kube-controller-manager": "kube-controller-manager",
    "kube-scheduler": "kube-scheduler",
    "kwok-controller": "kwok",
}
"""kwokctl's component -> our program. kwokctl downloads those without a binary here."""

NEEDED = (*COMPONENTS.values(), "kwokctl")

# kwokctl listens on all interfaces by default, and there is no flag to change that
_CONFIGURATION = """\
apiVersion: config.kwok.x-k8s.io/v1alpha1
kind: KwokctlConfiguration
options:
  bindAddress: 127.0.0.1
"""


_HINTS = """\
  export KUBECONFIG={kubeconfig}
  .venv/bin/proreus run --config {configuration} \\
      --authentication-kubeconfig $KUBECONFIG --authorization-kubeconfig $KUBECONFIG &
  {kubectl} apply -f examples/kwok/web.yaml
  {kubectl} get pods -o wide
  curl --insecure --cert {certificate} --key {key} \\
      https://127.0.0.1:10259/metrics
"""


class KwokCluster:
    """One kwok cluster, in one folder."""

    def __init__(
        self,
        binaries: Mapping[str, Path],
        folder: Path,
        name: str = "proreus",
        *,
        disable: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.folder = folder
        self.kubeconfig = folder / "kubeconfig"
        self._binaries = binaries
        self._disable = disable
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "kwokctl.yaml").write_text(_CONFIGURATION)

    def create(self) -> None:
        """Create the cluster (about three seconds), which is deleted at exit at the latest."""
        flags = [
            f"--{component}-binary={self._binaries[program]}"
            for component, program in COMPONENTS.items()
            if program in self._binaries
        ]
        flags += [f"--disable={component}" for component in self._disable]
        atexit.register(self.delete)
        self.kwokctl(
            *("create", "cluster", "--runtime=binary", *flags),
            *(f"--kubeconfig={self.kubeconfig}", "--disable-qps-limits", "--wait=60s"),
        )

    def scale_nodes(self, count: int) -> None:
        """Scale to ``count`` of kwok's nodes, each with 32 CPUs, 256 Gi and 110 pods."""
        self.kwokctl("scale", "node", f"--replicas={count}")

    def delete(self) -> None:
        """Stop its processes and delete its data; it need not exist."""
        atexit.unregister(self.delete)
        if self.exists():
            self.kwokctl("delete", "cluster", f"--kubeconfig={self.kubeconfig}")
        shutil.rmtree(self.folder / "work", ignore_errors=True)

    def exists(self) -> bool:
        """Return whether the cluster exists."""
        return (self.folder / "work" / "clusters" / self.name / "kwok.yaml").exists()

    def is_ready(self) -> bool:
        """Return whether its apiserver is ready."""
        client = KubeClient.from_kubeconfig(self.kubeconfig)
        try:
            return client.request("GET", "/readyz", timeout_seconds=5).status == 200
        except OSError:
            return False
        finally:
            client.close()

    def has(self, component: str) -> bool:
        """Return whether a component is enabled."""
        return component not in self._disable

    def kwokctl(self, *arguments: str) -> str:
        """Run kwokctl on this cluster; raises RuntimeError with its output when it fails."""
        command = [
            str(self._binaries["kwokctl"]),
            *(arguments[:2] if len(arguments) > 1 else arguments),
            f"--name={self.name}",
            f"--config={self.folder / 'kwokctl.yaml'}",
            *arguments[2:],
        ]
        environment = os.environ | {
            "KWOK_WORKDIR": str(self.folder / "work"),
            "KWOK_KUBE_VERSION": chosen_release().control_plane.version,
        }
        result = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=180
        )
        if result.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}\n{result.stdout}{result.stderr}")
        return result.stdout

    def logs(self) -> str:
        """Return the last lines of its components' logs."""
        files = sorted((self.folder / "work" / "clusters" / self.name / "logs").glob("*.log"))
        return "\n".join(
            f"--- {file.name} ---\n" + "\n".join(file.read_text().splitlines()[-15:])
            for file in files
        )


def _up(cluster: KwokCluster, nodes: int, kubectl: Path | str) -> None:
    if cluster.exists() and not cluster.is_ready():
        cluster.delete()  # the machine was restarted since; fake nodes are not worth repairing
    if not cluster.exists():
        cluster.create()
        atexit.unregister(cluster.delete)  # keep it after this process exits
    cluster.scale_nodes(nodes)
    client = KubeClient.from_kubeconfig(cluster.kubeconfig)
    print(f"a cluster of {client.count('/api/v1/nodes')} nodes is up; now try:")
    client.close()
    pki = cluster.folder / "work" / "clusters" / cluster.name / "pki"
    print(
        _HINTS.format(
            kubeconfig=cluster.kubeconfig,
            configuration=_write_configuration(cluster),
            kubectl=kubectl,
            certificate=pki / "admin.crt",
            key=pki / "admin.key",
        )
    )


def _write_configuration(cluster: KwokCluster) -> Path:
    """Write deploy/'s two profiles for a process outside of the cluster, and return where.

    The file must name its kubeconfig: --kubeconfig is ignored in combination with --config.
    """
    deploy = Path(__file__).resolve().parents[3] / "deploy"
    document = yaml.safe_load((deploy / "second-scheduler" / "scheduler.yaml").read_text())
    document["clientConnection"]["kubeconfig"] = str(cluster.kubeconfig)
    document["leaderElection"] = {"leaderElect": False}
    path = cluster.folder / "scheduler.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


def main() -> int:
    """Create or delete the cluster of `make kwok-up`."""
    parser = argparse.ArgumentParser(prog="envtest.kwok", description=__doc__)
    parser.add_argument("what", choices=("up", "down"))
    parser.add_argument("--nodes", type=int, default=20)
    options = parser.parse_args()
    installed, kubectl = shutil.which("kwokctl"), shutil.which("kubectl")
    to_build = [*(() if installed else NEEDED), *(() if kubectl else ["kubectl"])]
    try:
        binaries = find_present(NEEDED) | find_or_build(to_build)
    except MissingBinaries as missing:
        print(
            f"{missing}. Install Go 1.26 (the programs are built once, in about seven minutes), "
            "or kwokctl and kubectl, or name a folder that has the programs in KUBEBUILDER_ASSETS.",
            file=sys.stderr,
        )
        return 1
    if installed:
        # kwokctl and the controller that it starts are of one version: it knows which
        binaries.pop("kwok", None)
        binaries["kwokctl"] = Path(installed)
    cluster = KwokCluster(binaries, chosen_release().cache_folder.parent / "kwok")
    if options.what == "up":
        _up(cluster, options.nodes, kubectl or binaries["kubectl"])
    else:
        cluster.delete()
        print("the kwok cluster is gone")
    return 0


if __name__ == "__main__":
    sys.exit(main())
