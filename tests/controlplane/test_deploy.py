"""deploy/ on a real apiserver: valid manifests, and RBAC that is sufficient and minimal."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from envtest import assertions, objects
from envtest.control_plane import ADMIN_TOKEN, ControlPlane
from envtest.controllers import DEFINITIONS
from envtest.deploy import OPERATOR_KINDS, install_permissive
from envtest.kube_client import ApiFailure, KubeClient
from envtest.schedulers import RunScheduler
from envtest.waiting import eventually

Json = dict[str, Any]

DEPLOY = Path(__file__).parent.parent.parent / "deploy"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/{}/leases"

Kubectl = Callable[..., str]


@pytest.fixture(scope="module")
def kubectl(control_plane: ControlPlane, binaries: dict[str, Path]) -> Kubectl:
    """Run kubectl as the cluster's admin; its output is part of a failure."""

    def run(*arguments: str) -> str:
        result = subprocess.run(
            [str(binaries["kubectl"]), f"--kubeconfig={control_plane.kubeconfig}", *arguments],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    return run


@pytest.fixture(scope="module")
def deployed(control_plane: ControlPlane, kubectl: Kubectl) -> Json:
    """Apply deploy/second-scheduler; return the configuration that is stored in the cluster."""
    # without controllers and kubelets the Deployment has no effect
    kubectl("apply", "-k", str(DEPLOY / "second-scheduler"), "--validate=strict")
    [config] = [
        each
        for each in control_plane.client.list("/api/v1/namespaces/proreus/configmaps")
        if each["metadata"]["name"].startswith("proreus-config-")
    ]
    document: Json = yaml.safe_load(config["data"]["scheduler.yaml"])
    return document


def test_the_apiserver_accepts_the_second_scheduler(deployed: Json, kubectl: Kubectl) -> None:
    """A dry run of objects that exist already: their namespace must exist."""
    answer = kubectl(
        "apply",
        "-k",
        str(DEPLOY / "second-scheduler"),
        "--dry-run=server",
        "--validate=strict",
    )
    lines = answer.splitlines()
    assert len(lines) >= 10
    assert all(line.endswith("(server dry run)") for line in lines)
    assert deployed["profiles"]


def test_the_apiserver_accepts_the_static_pod(kubectl: Kubectl) -> None:
    manifest = str(DEPLOY / "static-pod" / "kube-scheduler.yaml")
    answer = kubectl("apply", "-f", manifest, "--dry-run=server", "--validate=strict")
    assert answer == "pod/kube-scheduler created (server dry run)\n"


def test_the_apiserver_accepts_the_monitoring(
    deployed: Json, kubectl: Kubectl, control_plane: ControlPlane
) -> None:
    """Two permissive CustomResourceDefinitions replace those of the Prometheus operator."""
    assert deployed
    install_permissive(control_plane.client, "monitoring.coreos.com", OPERATOR_KINDS)
    answer = kubectl("apply", "-k", str(DEPLOY / "monitoring"), "--dry-run=server")
    assert answer.count("(server dry run)") == 5


def test_prometheus_verifies_the_certificate_that_is_served(kubectl: Kubectl) -> None:
    documents = yaml.safe_load_all(kubectl("kustomize", str(DEPLOY / "monitoring-verified")))
    made = {(one["kind"], one["metadata"]["name"]): one for one in documents}
    certificate = made["Certificate", "proreus-tls"]["spec"]
    spec = made["Deployment", "proreus"]["spec"]["template"]["spec"]
    [container] = spec["containers"]

    [volume] = [one for one in spec["volumes"] if one["name"] == "tls"]
    [mount] = [one for one in container["volumeMounts"] if one["name"] == "tls"]
    assert volume["secret"]["secretName"] == certificate["secretName"]
    for flag, file in (("tls-cert-file", "tls.crt"), ("tls-private-key-file", "tls.key")):
        assert f"--{flag}={mount['mountPath']}/{file}" in container["args"]
    for endpoint in made["ServiceMonitor", "proreus"]["spec"]["endpoints"]:
        assert endpoint["tlsConfig"] == {
            "serverName": certificate["dnsNames"][0],
            "ca": {"secret": {"name": certificate["secretName"], "key": "ca.crt"}},
        }
    issuer = made["Issuer", certificate["issuerRef"]["name"]]["spec"]["ca"]["secretName"]
    assert issuer == made["Certificate", "proreus-ca"]["spec"]["secretName"]


def test_definitions_that_the_cluster_has_are_left_alone(
    kubectl: Kubectl, control_plane: ControlPlane, tmp_path: Path
) -> None:
    theirs = yaml.safe_load((DEPLOY / "crds" / "podgroup.yaml").read_text())
    theirs["metadata"]["labels"] = {"of": "another-project"}
    control_plane.client.create(DEFINITIONS, theirs)

    def missing() -> str:
        command = [sys.executable, "-m", "proreus", "crds", "--missing"]
        kubeconfig = f"--kubeconfig={control_plane.kubeconfig}"
        return subprocess.run(
            [*command, kubeconfig], capture_output=True, text=True, check=True, timeout=60
        ).stdout

    file = tmp_path / "missing.yaml"
    file.write_text(missing())
    created = kubectl("create", "-f", str(file))
    assert "podgroups.scheduling.x-k8s.io" not in created
    assert len(created.splitlines()) == len(list((DEPLOY / "crds").glob("*.yaml"))) - 2
    stored = control_plane.client.get(f"{DEFINITIONS}/{theirs['metadata']['name']}")
    assert stored["metadata"]["labels"] == {"of": "another-project"}
    assert missing() == ""


def test_the_rbac_is_sufficient(
    deployed: Json, control_plane: ControlPlane, run_scheduler: RunScheduler
) -> None:
    """With its pod's token it becomes the leader, binds, writes Events and serves metrics."""
    client = control_plane.client
    token = control_plane.service_account_token("proreus", "proreus")
    kubeconfig = control_plane.write_kubeconfig(
        control_plane.folder / "service-account.kubeconfig", token=token
    )
    deployed = deployed | {
        "clientConnection": deployed["clientConnection"] | {"kubeconfig": str(kubeconfig)}
    }
    client.create_all(objects.NODES, [objects.node(index) for index in range(10)])
    scheduler = run_scheduler(deployed)
    names = [each["schedulerName"] for each in deployed["profiles"]]
    assert names == ["spread-out", "bin-packing"]
    client.create_all(
        objects.PODS, [objects.pod(f"{name}-{i}", name) for name in names for i in range(50)]
    )
    client.create(objects.PODS.format("default"), objects.pod("huge", names[0], cpu="99"))

    assertions.wait_until_bound(client, 100, 60)

    def huge_is_explained() -> str:
        pod = client.get(f"{objects.PODS.format('default')}/huge")
        return str(assertions.condition(pod).get("message", ""))

    assert "10 Insufficient cpu" in eventually(20, "a reason for the huge pod", huge_is_explained)
    eventually(20, "Scheduled events", lambda: len(assertions.scheduled_events(client)) == 100)
    lease = client.get(f"{LEASES.format('proreus')}/proreus")["spec"]
    assert lease["holderIdentity"]
    metrics = scheduler.metrics(ADMIN_TOKEN)  # through TokenReview and SubjectAccessReview
    codes = {
        sample.labels["code"]: sample.value
        for sample in metrics["rest_client_requests"].samples
        if "code" in sample.labels
    }
    assert "403" not in codes
    assert codes["201"] >= 200  # bindings and events
    scheduler.finish()
    released = client.get(f"{LEASES.format('proreus')}/proreus")["spec"]
    assert not released.get("holderIdentity")


FORBIDDEN = (
    ("GET", "/api/v1/secrets"),
    ("GET", "/api/v1/configmaps"),
    ("DELETE", "/api/v1/nodes/node-00000"),
    ("PATCH", "/api/v1/nodes/node-00000"),
    ("POST", "/api/v1/namespaces/default/pods"),
    ("DELETE", "/api/v1/namespaces/default/persistentvolumeclaims/data"),
    ("POST", "/api/v1/persistentvolumes"),
    ("PATCH", "/api/v1/namespaces/default/pods/huge"),
    ("POST", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"),
    ("GET", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler"),
    ("PUT", "/apis/coordination.k8s.io/v1/namespaces/proreus/leases/another"),
    ("POST", "/apis/apps/v1/namespaces/proreus/deployments"),
)


@pytest.mark.parametrize(("method", "path"), FORBIDDEN)
def test_the_rbac_is_minimal(
    deployed: Json, control_plane: ControlPlane, method: str, path: str
) -> None:
    assert deployed
    token = control_plane.service_account_token("proreus", "proreus")
    kubeconfig = control_plane.folder / "nosy.kubeconfig"
    nosy = KubeClient.from_kubeconfig(control_plane.write_kubeconfig(kubeconfig, token=token))
    body = None if method in ("GET", "DELETE") else {}
    with pytest.raises(ApiFailure) as refused:
        nosy.call(method, path, body, content_type="application/merge-patch+json")
    nosy.close()
    assert refused.value.status == 403
