"""etcd and kube-apiserver on loopback, configured as in scheduler_perf.

Admission plugins that need controllers are disabled, and so is Priority, since scheduler_perf's
templates set ``spec.priority`` themselves. etcd does not sync to disk; each control plane starts
empty.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import yaml

from proreus.base.errors import ConfigError
from proreus.server.certificates import write_self_signed
from proreus.workbench.bench.processes import Child, free_ports, get

ADMIN_TOKEN = "admin-token"
"""The token of the administrator. Clients use tokens, as schedulers do in a cluster; verifying a
client certificate would cost the apiserver another 0.2 ms a request."""

DISABLED_ADMISSION = ("ServiceAccount", "TaintNodesByCondition", "Priority")

PROGRAMS = ("etcd", "kube-apiserver")


def find_programs(
    names: Iterable[str], assets: Path | None, environ: Mapping[str, str] = os.environ
) -> dict[str, Path]:
    """Return the path of each program: in ``assets``, in KUBEBUILDER_ASSETS or on the PATH.

    Raises ``ConfigError`` that names the missing programs and the folders searched.
    """
    folders = (assets, environ.get("KUBEBUILDER_ASSETS"), environ.get("PATH", os.defpath))
    search = os.pathsep.join(str(folder) for folder in folders if folder)
    found = {name: shutil.which(name, path=search) for name in names}
    if missing := [name for name, path in found.items() if path is None]:
        looked = "KUBEBUILDER_ASSETS or on the PATH"
        raise ConfigError(
            f"{', '.join(missing)}: not in {f'{assets}, {looked}' if assets else looked}; name a "
            "folder that has it with --assets, or an apiserver that runs already with --kubeconfig"
        )
    return {name: Path(str(path)).resolve() for name, path in found.items()}


class ControlPlane:
    """One control plane in one folder; restarting its processes keeps ports and data.

    ``flags``: further flags of the apiserver. ``tokens``: further lines of its token file.
    """

    def __init__(
        self,
        programs: Mapping[str, Path],
        folder: Path,
        *,
        flags: Sequence[str] = (),
        tokens: Sequence[str] = (),
        disabled_admission: Sequence[str] = DISABLED_ADMISSION,
    ) -> None:
        self.programs = programs
        self.folder = folder
        self.kubeconfig = folder / "admin.kubeconfig"
        self._flags = [f"--disable-admission-plugins={','.join(disabled_admission)}", *flags]
        pki = folder / "pki"
        pki.mkdir(parents=True)
        self._certificate, self._key = pki / "apiserver.crt", pki / "apiserver.key"
        self._tokens = pki / "tokens.csv"
        write_self_signed(self._certificate, self._key)
        admin = f'{ADMIN_TOKEN},admin,1,"system:masters"'
        self._tokens.write_text("".join(f"{line}\n" for line in (admin, *tokens)))
        self._port, self.etcd_port, peer_port = free_ports(3)
        self.server = f"https://127.0.0.1:{self._port}"
        self.write_kubeconfig(self.kubeconfig, token=ADMIN_TOKEN)
        self.etcd = Child("etcd", self._etcd_command(peer_port), folder / "etcd.log")
        self.apiserver = Child(
            "kube-apiserver", self._apiserver_command(), folder / "kube-apiserver.log"
        )

    def start(self) -> None:
        """Start both, and wait until the apiserver is ready (about five seconds)."""
        self.etcd.start()
        self.start_apiserver()
        self.apiserver.wait_for(
            30, "default namespace", lambda: self._is_ok("/api/v1/namespaces/default")
        )

    def start_apiserver(self) -> None:
        """Start or restart the apiserver, and wait until it is ready."""
        self.apiserver.start()
        self.apiserver.wait_for(60, "readyz", lambda: self._is_ok("/readyz"))

    def stop(self) -> None:
        """Kill both and delete their data."""
        self.apiserver.kill()
        self.etcd.kill()
        shutil.rmtree(self.folder / "etcd", ignore_errors=True)

    def write_kubeconfig(self, path: Path, *, token: str) -> Path:
        """Write a kubeconfig with a token."""
        cluster = {"server": self.server, "certificate-authority": str(self._certificate)}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "bench", "cluster": cluster}],
            "users": [{"name": "user", "user": {"token": token}}],
            "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "user"}}],
            "current-context": "bench",
        }
        path.write_text(yaml.safe_dump(document))
        return path

    def _is_ok(self, path: str) -> bool:
        return bool(get(self.server + path, self._certificate, ADMIN_TOKEN))

    def _etcd_command(self, peer_port: int) -> list[str | Path]:
        client_url, peer_url = (f"http://127.0.0.1:{port}" for port in (self.etcd_port, peer_port))
        return [
            self.programs["etcd"],
            "--name=bench",
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={client_url}",
            f"--advertise-client-urls={client_url}",
            f"--listen-peer-urls={peer_url}",
            f"--initial-advertise-peer-urls={peer_url}",
            f"--initial-cluster=bench={peer_url}",
            "--unsafe-no-fsync",
            "--log-level=warn",
        ]

    def _apiserver_command(self) -> list[str | Path]:
        return [
            self.programs["kube-apiserver"],
            f"--etcd-servers=http://127.0.0.1:{self.etcd_port}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={self._port}",
            f"--tls-cert-file={self._certificate}",
            f"--tls-private-key-file={self._key}",
            # no client has a certificate, but kube-scheduler logs errors without these authorities
            f"--client-ca-file={self._certificate}",
            f"--requestheader-client-ca-file={self._certificate}",
            "--requestheader-allowed-names=front-proxy",
            "--requestheader-username-headers=X-Remote-User",
            f"--token-auth-file={self._tokens}",
            f"--service-account-key-file={self._certificate}",
            f"--service-account-signing-key-file={self._key}",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--authorization-mode=RBAC",
            "--endpoint-reconciler-type=none",
            "--watch-cache=true",
            *self._flags,
        ]
