"""What ``deploy/`` needs and gives on a control plane of the tests: definitions, permissions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import yaml

from envtest.control_plane import ControlPlane
from envtest.kube_client import KubeClient
from envtest.waiting import eventually

FOLDER = Path(__file__).parents[3] / "deploy"

_COLLECTIONS = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings",
}


def service_account_kubeconfig(plane: ControlPlane) -> Path:
    """Create the ServiceAccount with its roles; return a kubeconfig with its token."""
    for name in ("namespace", "service-account", "rbac"):
        text = (FOLDER / "second-scheduler" / f"{name}.yaml").read_text()
        for document in yaml.safe_load_all(text):
            namespace = document["metadata"].get("namespace", "")
            plane.client.create(_COLLECTIONS[document["kind"]].format(namespace), document)
    token = plane.service_account_token("proreus", "proreus")
    return plane.write_kubeconfig(plane.folder / "service-account.kubeconfig", token=token)


OPERATOR_KINDS = {"ServiceMonitor": "servicemonitors", "PrometheusRule": "prometheusrules"}
"""Kinds of monitoring.coreos.com, with their plurals."""


def install_permissive(client: KubeClient, group: str, kinds: Mapping[str, str]) -> None:
    """Install definitions that allow every field, and wait until they are served.

    ``kinds``: kind -> plural.
    """
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    versions = [
        {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    ]
    for kind, plural in kinds.items():
        names = {"kind": kind, "plural": plural, "singular": kind.lower()}
        client.create(
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
            {
                "apiVersion": "apiextensions.k8s.io/v1",
                "kind": "CustomResourceDefinition",
                "metadata": {"name": f"{plural}.{group}"},
                "spec": {
                    "group": group,
                    "scope": "Namespaced",
                    "names": names,
                    "versions": versions,
                },
            },
        )
    for plural in kinds.values():
        path = f"/apis/{group}/v1/{plural}"
        eventually(
            20,
            f"{path} served",
            lambda path=path: client.request("GET", path).status == 200,
        )
