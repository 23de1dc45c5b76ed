"""etcd and kube-apiserver on loopback, configured as in scheduler_perf.

Admission plugins that need controllers are disabled, and so is Priority, since scheduler_perf's
templates set ``spec.priority`` themselves. etcd does not sync to disk; each control plane starts
empty.
"""

from __future__ import annotations

import os
import shutil
import ssl
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import yaml

from proreus.base.errors import ConfigError
from proreus.workbench.bench.certificates import CertificateAuthority, write_service_account_keys
from proreus.workbench.bench.processes import Child, free_ports

ADMIN = ("admin", ("system:masters",))
ADMIN_TOKEN = "admin-token"
"""A token of the same user. Schedulers use it, as they do in a cluster; verifying a client
certificate would cost the apiserver another 0.2 ms a request."""

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
        (folder / "pki").mkdir(parents=True)
        self._write_credentials(tokens)
        self._port, self.etcd_port, peer_port = free_ports(3)
        self.server = f"https://127.0.0.1:{self._port}"
        self.write_kubeconfig(self.kubeconfig, certificate=ADMIN[0])
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

    def write_kubeconfig(
        self, path: Path, *, certificate: str | None = None, token: str | None = None
    ) -> Path:
        """Write a kubeconfig for a client certificate, by its name, or for a token."""
        user: dict[str, str] = {"token": token} if token else {}
        if certificate:
            user["client-certificate"] = str(self.folder / f"pki/{certificate}.crt")
            user["client-key"] = str(self.folder / f"pki/{certificate}.key")
        cluster = {
            "server": self.server,
            "certificate-authority": str(self.folder / "pki/ca.crt"),
        }
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "bench", "cluster": cluster}],
            "users": [{"name": "user", "user": user}],
            "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "user"}}],
            "current-context": "bench",
        }
        path.write_text(yaml.safe_dump(document))
        return path

    def _is_ok(self, path: str) -> bool:
        context = ssl.create_default_context(cafile=str(self.folder / "pki/ca.crt"))
        request = urllib.request.Request(
            self.server + path, headers={"Authorization": f"Bearer {ADMIN_TOKEN}"}
        )
        # errors of the network and of HTTP are OSErrors, which wait_for retries
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
        with opener.open(request, timeout=2) as response:
            return bool(response.status == 200)

    def _write_credentials(self, tokens: Sequence[str]) -> None:
        pki = self.folder / "pki"
        authority = CertificateAuthority(pki)
        authority.issue("apiserver", serves=True)
        authority.issue(ADMIN[0], ADMIN[1])
        write_service_account_keys(pki)
        admin = f'{ADMIN_TOKEN},{ADMIN[0]},1,"{",".join(ADMIN[1])}"'
        (pki / "tokens.csv").write_text("".join(f"{line}\n" for line in (admin, *tokens)))

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
        pki = self.folder / "pki"
        return [
            self.programs["kube-apiserver"],
            f"--etcd-servers=http://127.0.0.1:{self.etcd_port}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={self._port}",
            f"--tls-cert-file={pki / 'apiserver.crt'}",
            f"--tls-private-key-file={pki / 'apiserver.key'}",
            f"--client-ca-file={pki / 'ca.crt'}",
            # there is no front proxy, but kube-scheduler logs an error without this authority
            f"--requestheader-client-ca-file={pki / 'ca.crt'}",
            "--requestheader-allowed-names=front-proxy",
            "--requestheader-username-headers=X-Remote-User",
            f"--token-auth-file={pki / 'tokens.csv'}",
            f"--service-account-key-file={pki / 'sa.pub'}",
            f"--service-account-signing-key-file={pki / 'sa.key'}",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--authorization-mode=RBAC",
            "--endpoint-reconciler-type=none",
            "--watch-cache=true",
            *self._flags,
        ]
