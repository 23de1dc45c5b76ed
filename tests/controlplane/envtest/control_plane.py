"""etcd and kube-apiserver, started, broken and mended at will.

For tests that need neither kubelets nor controllers, and for those that kill the apiserver. RBAC is
on; every bind request is written to an audit log, so that a test can tell from the apiserver's own
record whether a pod was ever bound twice.
"""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import urllib3
import yaml

from envtest.kube_client import KubeClient
from proreus.bench import control_plane
from proreus.bench.control_plane import ADMIN_TOKEN

__all__ = ["ADMIN_TOKEN", "STRANGER_TOKEN", "ControlPlane"]

STRANGER_TOKEN = "stranger-token"
"""A token of a user whom RBAC grants nothing."""

# node conditions are not kept by anyone here: without these two, nodes may be made ready and pods
# need no ServiceAccount controller
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
        """End the apiserver as a crash does: no answer, no farewell."""
        self.apiserver.kill()

    def restart_apiserver(self) -> None:
        """Kill it and start it: every watch is cut, every cached version of the past forgotten."""
        self.kill_apiserver()
        self.start_apiserver()

    def stop(self) -> None:
        """End both and forget the data."""
        self.client.close()
        super().stop()

    def freeze_apiserver(self) -> None:
        """Stop the apiserver in its tracks: connections stay open and nothing answers."""
        self.apiserver.signal(signal.SIGSTOP)

    def thaw_apiserver(self) -> None:
        """Let it go on."""
        self.apiserver.signal(signal.SIGCONT)

    def compact_etcd(self) -> int:
        """Forget all of etcd's past up to now; returns the revision that is the oldest now."""
        gateway = f"http://127.0.0.1:{self.etcd_port}/v3/kv"
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
        *whole, _half_written = (self.folder / "audit.log").read_text().split("\n")
        for line in whole:
            event = json.loads(line)
            pod = f"{event['objectRef']['namespace']}/{event['objectRef']['name']}"
            binds.setdefault(pod, Counter())[event["responseStatus"]["code"]] += 1
        return binds

    def service_account_token(self, namespace: str, name: str) -> str:
        """Return a fresh token of a ServiceAccount, as a pod that runs as it would get."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        return str(
            self.client.create(path, {"spec": {"expirationSeconds": 3600}})["status"]["token"]
        )
