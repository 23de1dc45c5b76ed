"""Kinds of resources by their names: extended, scalar, and tracked ones.

Source: IsExtendedResourceName of ``core/v1/helper``, IsScalarResourceName of
kube-scheduler's ``util``.
"""

from __future__ import annotations

import re
from functools import lru_cache

from proreus.base.bounded_cache import cleared_with_age
from proreus.objects.selectors import DNS_SUBDOMAIN, MAX_NAME_LENGTH, MAX_PREFIX_LENGTH, NAME

# One expression for each: a pod may request tens of thousands of resources.
_QUALIFIED_IN_QUOTAS = (
    # Also with "requests." in front, as a ResourceQuota names it.
    rf"(?=[^/]{{1,{MAX_PREFIX_LENGTH - len('requests.')}}}/){DNS_SUBDOMAIN}/"
    rf"(?=.{{1,{MAX_NAME_LENGTH}}}\Z){NAME}"
)
_EXTENDED = rf"(?!requests\.|.*kubernetes\.io/){_QUALIFIED_IN_QUOTAS}"
_SCALAR = rf"{_EXTENDED}|(?:hugepages-|attachable-volumes-).*|.*kubernetes\.io/.*"
_EXTENDED_RESOURCE = re.compile(_EXTENDED, re.DOTALL)
_SCALAR_RESOURCE = re.compile(_SCALAR, re.DOTALL)
_TRACKED_RESOURCE = re.compile(rf"cpu|memory|ephemeral-storage|{_SCALAR}", re.DOTALL)


@cleared_with_age
@lru_cache(maxsize=4096)
def is_extended_resource(name: str) -> bool:
    """Return whether a resource is an extended one (``example.com/gpu``)."""
    return _EXTENDED_RESOURCE.fullmatch(name) is not None


@cleared_with_age
@lru_cache(maxsize=4096)
def is_scalar_resource(name: str) -> bool:
    """Return whether a resource is tracked in addition to cpu, memory and ephemeral-storage."""
    return _SCALAR_RESOURCE.fullmatch(name) is not None


@cleared_with_age
@lru_cache(maxsize=4096)
def is_tracked_resource(name: str) -> bool:
    """Return whether a scheduler tracks a resource; others are ignored."""
    return _TRACKED_RESOURCE.fullmatch(name) is not None


def is_pod_level_resource(name: str) -> bool:
    """Return whether a pod's ``spec.resources`` may set a resource."""
    return name in ("cpu", "memory") or name.startswith("hugepages-")
