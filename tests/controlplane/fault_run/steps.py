"""Which step of a scheduler's work a request is."""

from __future__ import annotations

import re

BIND, EVENT, POD_STATUS, EVICT = "bind", "event", "pod-status", "evict"
CLAIM, CLAIM_STATUS, VOLUME, VOLUME_CLAIM = "claim", "claim-status", "volume", "volume-claim"
GROUP_STATUS, LEASE, REVIEW = "group-status", "lease", "review"
READ, WATCH, OTHER = "read", "watch", "other"

BINDING_CYCLE = (CLAIM, CLAIM_STATUS, VOLUME, VOLUME_CLAIM, BIND, EVENT)
"""The writes of a binding cycle, in their order."""

KILL_STEPS = (*BINDING_CYCLE, POD_STATUS, EVICT, GROUP_STATUS, LEASE)
"""The steps at which a process may be killed."""

_WRITES = (
    ("POST", r"/pods/[^/]+/binding$", BIND),
    ("POST", r"/events$", EVENT),
    ("PATCH", r"/events/[^/]+$", EVENT),
    ("PATCH", r"/pods/[^/]+/status$", POD_STATUS),
    ("DELETE", r"/pods/[^/]+$", EVICT),
    ("P", r"/resourceclaims/[^/]+/status$", CLAIM_STATUS),
    ("P", r"/resourceclaims(/[^/]+)?$", CLAIM),
    ("P", r"/persistentvolumes/[^/]+$", VOLUME),
    ("P", r"/persistentvolumeclaims/[^/]+$", VOLUME_CLAIM),
    ("P", r"/podgroups/[^/]+/status$", GROUP_STATUS),
    ("P", r"/leases(/[^/]+)?$", LEASE),
    ("POST", r"/(tokenreviews|subjectaccessreviews)$", REVIEW),
)
_COMPILED = tuple((method, re.compile(path), step) for method, path, step in _WRITES)


def step_of(method: str, path: str, watch: bool = False) -> str:
    """Return the step of a request, ``OTHER`` for writes that belong to none."""
    if method == "GET":
        if watch:
            return WATCH
        return LEASE if "/leases/" in path else READ
    for prefix, pattern, step in _COMPILED:
        if method.startswith(prefix) and pattern.search(path):
            return step
    return OTHER
