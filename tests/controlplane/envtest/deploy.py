"""What ``deploy/`` needs and gives on a control plane of the tests: definitions, permissions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from envtest.control_plane import ControlPlane
from envtest.kube_client import KubeClient
from envtest.waiting import eventually

Json = dict[str, Any]

FOLDER = Path(__file__).parents[3] / "deploy"

_COLLECTIONS = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings",
}


def service_account_kubeconfig(plane: ControlPlane, add_ons: Iterable[str] = ()) -> Path:
    """Create the ServiceAccount with its roles; return a kubeconfig with its token.

    ``add_ons``: those that get the rights which the chart gives them.
    """
    for name in ("namespace", "service-account", "rbac"):
        text = (FOLDER / "second-scheduler" / f"{name}.yaml").read_text()
        for document in yaml.safe_load_all(text):
            namespace = document["metadata"].get("namespace", "")
            plane.client.create(_COLLECTIONS[document["kind"]].format(namespace), document)
    known = yaml.safe_load((FOLDER / "chart" / "add-ons.yaml").read_text())
    rules = [rule for name in add_ons for rule in known.get(name, {}).get("rules", ())]
    _grant(plane, rules)
    token = plane.service_account_token("proreus", "proreus")
    return plane.write_kubeconfig(plane.folder / "service-account.kubeconfig", token=token)


def _grant(plane: ControlPlane, rules: list[Json]) -> None:
    name = "proreus-add-ons"
    group = "rbac.authorization.k8s.io"
    reference = {"apiGroup": group, "kind": "ClusterRole", "name": name}
    subject = {"kind": "ServiceAccount", "name": "proreus", "namespace": "proreus"}
    role = {"metadata": {"name": name}, "rules": rules}
    plane.client.create(_COLLECTIONS["ClusterRole"], role)
    binding = {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]}
    plane.client.create(_COLLECTIONS["ClusterRoleBinding"], binding)


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
