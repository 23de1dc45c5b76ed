"""The permissions that ``deploy/`` gives proreus, on a control plane of the tests."""

from __future__ import annotations

from pathlib import Path

import yaml

from envtest.control_plane import ControlPlane

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
