"""etcd and kube-apiserver, started, broken and mended at will.

For tests that need neither kubelets nor controllers, and for those that kill the apiserver. RBAC is
on; every bind request is written to an audit log, so that a test can tell from the apiserver's own
record whether a pod was ever bound twice.
"""

from __future__ import annotations

import json
import shutil
import signal
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import urllib3
import yaml

from testground.certificates import Authority, write_service_account_keys
from testground.children import Child, free_ports
from testground.kube_client import KubeClient

ADMIN = ("admin", ("system:masters",))
ADMIN_TOKEN = "admin-token"
"""A token of the same user: /metrics and the like are asked for with tokens."""

STRANGER_TOKEN = "stranger-token"
"""A token of a user whom RBAC grants nothing."""

# node conditions are not kept by anyone here: without these two, nodes may be made ready and pods
# need no ServiceAccount controller
DISABLED_ADMISSION = "ServiceAccount,TaintNodesByCondition"

_AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {
            "level": "Metadata",
            "verbs": ["create"],
            "resources": [{"group": "", "resources": ["pods/binding"]}],
        },
        {"level": "None"},
    ],
}


class ControlPlane:
    """One control plane in one folder. A restart of its parts keeps ports and data.

    ``flags`` are further ones of the apiserver.
    """

    def __init__(
        self,
        binaries: Mapping[str, Path],
        folder: Path,
        *,
        audit: bool = True,
        flags: Sequence[str] = (),
    ) -> None:
        self.binaries = binaries
        self.folder = folder
        self.kubeconfig = folder / "admin.kubeconfig"
        self._audit = audit
        self._flags = flags
        (folder / "pki").mkdir(parents=True)
        self._write_credentials()
        self._port, self._etcd_port, peer_port = free_ports(3)
        self.server = f"https://127.0.0.1:{self._port}"
        self.write_kubeconfig(self.kubeconfig, certificate=ADMIN[0])
        self.etcd = Child("etcd", self._etcd_command(peer_port), folder / "etcd.log")
        self.apiserver = Child(
            "kube-apiserver", self._apiserver_command(), folder / "kube-apiserver.log"
        )
        self.client = KubeClient.from_kubeconfig(self.kubeconfig)

    def start(self) -> None:
        """Start both; returns once the apiserver is ready, about five seconds later."""
        self.etcd.start()
        self.start_apiserver()
        self.apiserver.require(
            30, "default namespace", lambda: self._answers("/api/v1/namespaces/default")
        )

    def start_apiserver(self) -> None:
        """Start the apiserver (again) and wait until it is ready."""
        self.apiserver.start()
        self.apiserver.require(60, "readyz", lambda: self._answers("/readyz"))

    def kill_apiserver(self) -> None:
        """End the apiserver as a crash does: no answer, no farewell."""
        self.apiserver.kill()

    def restart_apiserver(self) -> None:
        """Kill it and start it: every watch is cut, every cached version of the past forgotten."""
        self.kill_apiserver()
        self.start_apiserver()

    def stop(self) -> None:
        """End both and forget the data."""
        self.client.close()
        self.apiserver.kill()
        self.etcd.kill()
        shutil.rmtree(self.folder / "etcd", ignore_errors=True)

    def freeze_apiserver(self) -> None:
        """Stop the apiserver in its tracks: connections stay open and nothing answers."""
        self.apiserver.signal(signal.SIGSTOP)

    def thaw_apiserver(self) -> None:
        """Let it go on."""
        self.apiserver.signal(signal.SIGCONT)

    def compact_etcd(self) -> int:
        """Forget all of etcd's past up to now; returns the revision that is the oldest now."""
        gateway = f"http://127.0.0.1:{self._etcd_port}/v3/kv"
        key = {"key": "AA==", "range_end": "AA==", "limit": "1", "keys_only": True}
        answer = urllib3.request("POST", f"{gateway}/range", json=key)
        revision = int(answer.json()["header"]["revision"])
        answer = urllib3.request(
            "POST", f"{gateway}/compaction", json={"revision": str(revision), "physical": True}
        )
        assert answer.status == 200, answer.data
        return revision

    def binds_by_pod(self) -> dict[str, Counter[int]]:
        """Return how each pod's bind requests ended: namespace/name -> status -> times."""
        binds: dict[str, Counter[int]] = {}
        for line in (self.folder / "audit.log").read_text().splitlines():
            event = json.loads(line)
            pod = f"{event['objectRef']['namespace']}/{event['objectRef']['name']}"
            binds.setdefault(pod, Counter())[event["responseStatus"]["code"]] += 1
        return binds

    def write_kubeconfig(
        self, path: Path, *, certificate: str | None = None, token: str | None = None
    ) -> Path:
        """Write a kubeconfig of a user with a client certificate or a token."""
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
            "clusters": [{"name": "tests", "cluster": cluster}],
            "users": [{"name": "user", "user": user}],
            "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "user"}}],
            "current-context": "tests",
        }
        path.write_text(yaml.safe_dump(document))
        return path

    def service_account_token(self, namespace: str, name: str) -> str:
        """Return a fresh token of a ServiceAccount, as a pod that runs as it would get."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        return str(
            self.client.create(path, {"spec": {"expirationSeconds": 3600}})["status"]["token"]
        )

    def _answers(self, path: str) -> bool:
        return self.client.request("GET", path, timeout_seconds=2).status == 200

    def _write_credentials(self) -> None:
        pki = self.folder / "pki"
        authority = Authority(pki)
        authority.issue("apiserver", serves=True)
        authority.issue(ADMIN[0], ADMIN[1])
        write_service_account_keys(pki)
        (pki / "tokens.csv").write_text(
            f'{ADMIN_TOKEN},{ADMIN[0]},1,"{",".join(ADMIN[1])}"\n{STRANGER_TOKEN},stranger,2\n'
        )
        (pki / "audit-policy.yaml").write_text(yaml.safe_dump(_AUDIT_POLICY))

    def _etcd_command(self, peer_port: int) -> list[str | Path]:
        client_url, peer_url = (f"http://127.0.0.1:{port}" for port in (self._etcd_port, peer_port))
        return [
            self.binaries["etcd"],
            "--name=tests",
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={client_url}",
            f"--advertise-client-urls={client_url}",
            f"--listen-peer-urls={peer_url}",
            f"--initial-advertise-peer-urls={peer_url}",
            f"--initial-cluster=tests={peer_url}",
            "--unsafe-no-fsync",
            "--log-level=warn",
        ]

    def _apiserver_command(self) -> list[str | Path]:
        pki = self.folder / "pki"
        audit = [
            f"--audit-policy-file={pki / 'audit-policy.yaml'}",
            f"--audit-log-path={self.folder / 'audit.log'}",
            "--audit-log-mode=blocking",
        ]
        return [
            self.binaries["kube-apiserver"],
            f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={self._port}",
            f"--tls-cert-file={pki / 'apiserver.crt'}",
            f"--tls-private-key-file={pki / 'apiserver.key'}",
            f"--client-ca-file={pki / 'ca.crt'}",
            # nobody is a front proxy here, but kube-scheduler complains of a missing authority
            f"--requestheader-client-ca-file={pki / 'ca.crt'}",
            "--requestheader-allowed-names=front-proxy",
            "--requestheader-username-headers=X-Remote-User",
            f"--token-auth-file={pki / 'tokens.csv'}",
            f"--service-account-key-file={pki / 'sa.pub'}",
            f"--service-account-signing-key-file={pki / 'sa.key'}",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--authorization-mode=RBAC",
            f"--disable-admission-plugins={DISABLED_ADMISSION}",
            "--endpoint-reconciler-type=none",
            "--watch-cache=true",
            *(audit if self._audit else ()),
            *self._flags,
        ]
