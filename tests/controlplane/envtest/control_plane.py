"""etcd and kube-apiserver that tests can start, stop, freeze, compact and restore.

For tests that need neither kubelets nor controllers, and for those that kill the apiserver. RBAC is
on; every bind request is written to an audit log, so that a test can check in the apiserver's own
record whether a pod was ever bound twice.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import urllib3
import yaml

from envtest.kube_client import KubeClient
from proreus.workbench.bench import control_plane
from proreus.workbench.bench.control_plane import ADMIN_TOKEN

__all__ = ["ADMIN_TOKEN", "STRANGER_TOKEN", "ControlPlane"]

STRANGER_TOKEN = "stranger-token"
"""The token of a user without permissions."""

# Without these two, nodes can be created ready although no node controller runs, and pods need no
# ServiceAccount controller.
DISABLED_ADMISSION = ("ServiceAccount", "TaintNodesByCondition")

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


class ControlPlane(control_plane.ControlPlane):
    """One control plane in one folder; restarting its processes keeps ports and data.

    ``flags``: further flags of the apiserver. ``audit``: log bind requests.
    """

    def __init__(
        self,
        binaries: Mapping[str, Path],
        folder: Path,
        *,
        audit: bool = True,
        flags: Sequence[str] = (),
    ) -> None:
        policy = folder / "audit-policy.yaml"
        audit_flags = [
            f"--audit-policy-file={policy}",
            f"--audit-log-path={folder / 'audit.log'}",
            "--audit-log-mode=blocking",
        ]
        super().__init__(
            binaries,
            folder,
            flags=[*(audit_flags if audit else ()), *flags],
            tokens=[f"{STRANGER_TOKEN},stranger,2"],
            disabled_admission=DISABLED_ADMISSION,
        )
        policy.write_text(yaml.safe_dump(_AUDIT_POLICY))
        self.client = KubeClient.from_kubeconfig(self.kubeconfig)

    def kill_apiserver(self) -> None:
        """Kill the apiserver, as a crash would."""
        self.apiserver.kill()

    def restart_apiserver(self) -> None:
        """Kill and start the apiserver: all watches end, and its watch cache is empty."""
        self.kill_apiserver()
        self.start_apiserver()

    def stop(self) -> None:
        """Kill both and delete their data."""
        self.client.close()
        super().stop()

    def freeze_apiserver(self) -> None:
        """Suspend the apiserver: connections stay open, but nothing responds."""
        self.apiserver.signal(signal.SIGSTOP)

    def thaw_apiserver(self) -> None:
        """Resume the apiserver."""
        self.apiserver.signal(signal.SIGCONT)

    def compact_etcd(self) -> int:
        """Compact etcd up to its current revision, and return that."""
        gateway = f"http://127.0.0.1:{self.etcd_port}/v3/kv"
        key = {"key": "AA==", "range_end": "AA==", "limit": "1", "keys_only": True}
        answer = urllib3.request("POST", f"{gateway}/range", json=key)
        revision = int(answer.json()["header"]["revision"])
        answer = urllib3.request(
            "POST", f"{gateway}/compaction", json={"revision": str(revision), "physical": True}
        )
        # nothing may have been written since the last time
        assert answer.status == 200 or b"has been compacted" in answer.data, answer.data
        return revision

    def back_up(self) -> Path:
        """Return a copy of etcd's data; both are down meanwhile."""
        copy = self.folder / "etcd-backup"
        with self._etcd_down():
            shutil.copytree(self.folder / "etcd", copy)
        return copy

    def restore(self, copy: Path) -> None:
        """Put back etcd's data as of a backup: revisions go backwards."""
        with self._etcd_down():
            shutil.rmtree(self.folder / "etcd")
            shutil.copytree(copy, self.folder / "etcd")

    @contextlib.contextmanager
    def _etcd_down(self) -> Iterator[None]:
        self.kill_apiserver()
        self.etcd.terminate()
        yield
        self.etcd.start()
        self.start_apiserver()

    def binds_by_pod(self) -> dict[str, Counter[int]]:
        """Return the results of each pod's bind requests: namespace/name -> status -> count."""
        binds: dict[str, Counter[int]] = {}
        *whole, _half_written = (self.folder / "audit.log").read_text().split("\n")
        for line in whole:
            event = json.loads(line)
            pod = f"{event['objectRef']['namespace']}/{event['objectRef']['name']}"
            binds.setdefault(pod, Counter())[event["responseStatus"]["code"]] += 1
        return binds

    def service_account_token(self, namespace: str, name: str) -> str:
        """Return a new token of a ServiceAccount, as its pods get."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        return str(
            self.client.create(path, {"spec": {"expirationSeconds": 3600}})["status"]["token"]
        )
