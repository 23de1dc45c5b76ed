"""The contents of a Lease: its holder, for how long, and the informative timestamps."""

from proreus.client.writing.event_bodies import micro_time
from proreus.objects.kinds import LEASES
from proreus.objects.meta import JsonObject


def new_lease(namespace: str, name: str, identity: str, seconds: float, now: float) -> JsonObject:
    """Return a new Lease held by ``identity``; ``now`` is in seconds since the epoch."""
    time = micro_time(now)
    return {
        "apiVersion": LEASES.api_version,
        "kind": LEASES.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "holderIdentity": identity,
            "leaseDurationSeconds": int(seconds),
            "acquireTime": time,
            "renewTime": time,
            "leaseTransitions": 0,
        },
    }


def held(lease: JsonObject, identity: str, seconds: float, now: float) -> JsonObject:
    """Return the Lease with this holder, renewed at ``now``; fields unknown to us are kept."""
    old = lease.get("spec") or {}
    time = micro_time(now)
    ours = old.get("holderIdentity") == identity
    spec = {
        **old,
        "holderIdentity": identity,
        "leaseDurationSeconds": int(seconds),
        "acquireTime": old.get("acquireTime", time) if ours else time,
        "renewTime": time,
        "leaseTransitions": (old.get("leaseTransitions") or 0) + (0 if ours else 1),
    }
    return {**lease, "spec": spec}


def released(lease: JsonObject, now: float) -> JsonObject:
    """Return the Lease without a holder, so that others can acquire it at once."""
    time = micro_time(now)
    free = {
        "holderIdentity": "",
        "leaseDurationSeconds": 1,
        "acquireTime": time,
        "renewTime": time,
    }
    return {**lease, "spec": {**lease["spec"], **free}}
