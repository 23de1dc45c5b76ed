"""Pod groups: where the control plane serves them, and what turns them on.

Everything that depends on its version is here, so that scenarios are the same for all versions.
"""

from __future__ import annotations

from typing import Any

from envtest.binaries import emulated_version

_OLDER = emulated_version() == "1.36"
"""1.36 alone has v1alpha2, with its own gates, and no CompositePodGroup."""

_API = "/apis/scheduling.k8s.io"
_VERSION = "v1alpha2" if _OLDER else "v1beta1"

GROUPS = f"{_API}/{_VERSION}/namespaces/default/podgroups"
COMPOSITE_GROUPS = f"{_API}/v1alpha3/namespaces/default/compositepodgroups"

GATES = "GenericWorkload=true,GangScheduling=true" if _OLDER else "GenericWorkload=true"

ALL_GATES = (
    GATES if _OLDER else f"{GATES},TopologyAwareWorkloadScheduling=true,CompositePodGroup=true"
)
"""Those of groups of groups too, where there are any."""

_SERVED = [_VERSION] if _OLDER else [_VERSION, "v1alpha3"]

APISERVER_FLAGS = [
    f"--runtime-config={','.join(f'scheduling.k8s.io/{version}=true' for version in _SERVED)}"
]
"""The flags of an apiserver that serve the API, besides the gates."""

DISRUPTED_AS_WHOLE: Any = "PodGroup" if _OLDER else {"all": {}}
"""The disruption mode of a group whose pods leave together."""

MEMBERS_DIFFER_IN_PRIORITY = _OLDER
"""Whether members may have other priorities than their group; those of one priority are tried in
the order in which they came since 1.37, and as chance has it before."""


def flags_of(gates: str = GATES) -> list[str]:
    """Return the flags of a scheduler or apiserver with these gates."""
    return [f"--feature-gates={gates}"]
