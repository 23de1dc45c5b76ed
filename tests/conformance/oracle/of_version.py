"""A case in the words of one Kubernetes version: its gates, and the API of its objects.

Grammars and recorded cases of other versions are written once, and asked of any version so.
"""

from __future__ import annotations

from typing import Any

from proreus.base.feature_gate_table import gates_of, gates_of_other_components
from proreus.base.kubernetes_version import SUPPORTED_VERSIONS, KubernetesVersion
from proreus.objects.scheduling import COMPOSITE_POD_GROUPS

JsonObject = dict[str, Any]


def of_version(case: JsonObject, version: KubernetesVersion) -> JsonObject:
    """Return a case as it is asked of a version; what is spelled alike in all is shared.

    Gates that only other versions know are left out: that this one refuses them is tested elsewhere
    (tests/controlplane/test_built_scheduler.py).
    """
    asked = case | {"kubernetesVersion": str(version)}
    if "features" in case:
        foreign = _names_elsewhere(version)
        asked["features"] = [
            one for one in case["features"] or () if one.partition("=")[0] not in foreign
        ]
    asked["objects"] = [_object(one, version) for one in case["objects"]]
    if "steps" in case:
        asked["steps"] = [
            step | {"add": _object(step["add"], version)} if "add" in step else step
            for step in case["steps"]
        ]
    return asked


def _names_elsewhere(version: KubernetesVersion) -> frozenset[str]:
    every = [_names(other) for other in SUPPORTED_VERSIONS]
    return frozenset().union(*every) - _names(version)


def _names(version: KubernetesVersion) -> frozenset[str]:
    return frozenset(gates_of(version)) | gates_of_other_components(version)


def _object(one: JsonObject, version: KubernetesVersion) -> JsonObject:
    if one.get("kind") != COMPOSITE_POD_GROUPS.kind:
        return one
    return one | {"apiVersion": COMPOSITE_POD_GROUPS.as_of(version).api_version}
