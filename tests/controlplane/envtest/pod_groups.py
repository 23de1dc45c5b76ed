"""Pod groups: where the control plane serves them, and what turns them on.

Everything that depends on its version is here, so that scenarios are the same for all versions.
"""

from __future__ import annotations

from envtest.binaries import emulated_version

_API_VERSION = {"1.36": "v1alpha2", "1.37": "v1beta1"}
_GATES = {"1.36": "GenericWorkload=true,GangScheduling=true", "1.37": "GenericWorkload=true"}

_SCHEDULED_BY = ("1.36",)
"""The versions whose pod groups proreus schedules."""

SCHEDULED = emulated_version() in _SCHEDULED_BY
"""Whether there are pod groups in tests. Without them nothing of theirs is turned on."""

GATES = _GATES[emulated_version()]

GROUPS = f"/apis/scheduling.k8s.io/{_API_VERSION[emulated_version()]}/namespaces/default/podgroups"

APISERVER_FLAGS = (
    [f"--runtime-config=scheduling.k8s.io/{_API_VERSION[emulated_version()]}=true"]
    if SCHEDULED
    else []
)
"""The flags of an apiserver that serve the API, besides the gates; none without pod groups."""


def flags_of(gates: str = GATES) -> list[str]:
    """Return the flags of a scheduler or apiserver with these gates, none without pod groups."""
    return [f"--feature-gates={gates}"] if SCHEDULED else []
