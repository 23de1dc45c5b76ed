"""From a solution of the search to ``AllocationResult``: names, configuration, node selector.

A solution holds for many nodes and pods; only here do positions become devices of one node.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Sequence

import msgspec

from proreus.objects.devices import QuantityText
from proreus.objects.resource_claims import (
    AllocationResult,
    DeviceAllocationConfiguration,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaim,
)
from proreus.objects.selectors import LabelSelectorRequirement, NodeSelector, NodeSelectorTerm
from proreus.plugins.dynamic_resources.devices.capacity import quantity_text
from proreus.plugins.dynamic_resources.devices.pools import DeviceOnNode, PoolView
from proreus.plugins.dynamic_resources.features import Features
from proreus.plugins.dynamic_resources.search.allocating_devices import DeviceAssignment
from proreus.plugins.dynamic_resources.search.allocator import Solution
from proreus.plugins.dynamic_resources.search.alternative import Alternative
from proreus.plugins.dynamic_resources.search.prepared_claims import PreparedClaims

FROM_CLASS = "FromClass"
FROM_CLAIM = "FromClaim"

Views = Sequence[PoolView]


def allocations(
    prepared: PreparedClaims,
    solution: Solution,
    claims: Sequence[ResourceClaim],
    views: Views,
    node_name: str,
    features: Features,
    rng: random.Random,
) -> tuple[AllocationResult, ...]:
    """Return the allocation of each claim on a node whose pools are ``views``."""
    results = []
    for place, claim in enumerate(claims):
        device_assignments = solution.device_assignments[place]
        chosen = [
            request[choice]
            for request, choice in zip(
                prepared.claims[place].requests, solution.choices[place], strict=True
            )
        ]
        devices = DeviceAllocationResult(
            results=tuple(_result(one, views, features, rng) for one in device_assignments),
            config=_configuration(chosen, claim, features),
        )
        found = [views[one.pool].devices[one.device] for one in device_assignments]
        results.append(
            AllocationResult(devices=devices, node_selector=_node_selector(found, node_name))
        )
    return tuple(results)


def _result(
    device_assignment: DeviceAssignment, views: Views, features: Features, rng: random.Random
) -> DeviceRequestAllocationResult:
    view = views[device_assignment.pool]
    found = view.devices[device_assignment.device]
    one, device = device_assignment.alternative, found.kind.device
    binding = features.binding_conditions
    share_id = None
    consumed: dict[str, QuantityText] = {}
    if device_assignment.consumed is not None:
        # Several claims have the device, so its name does not identify an allocation in
        # ``status.devices`` and in ``AllocatedDevices``; a random share ID does (KEP-5075).
        share_id = str(uuid.UUID(int=rng.getrandbits(128), version=4))
        # Named as the driver does, which reads the claim's status.
        consumed = {
            found.kind.capacity[name].name: quantity_text(*amount)
            for name, amount in one.consumed(found.kind).items()
        }
    return DeviceRequestAllocationResult(
        request=one.name,
        driver=view.key[0],
        pool=view.key[1],
        device=found.name,
        admin_access=True if one.admin_access else None,
        tolerations=one.tolerations,
        binding_conditions=(device.binding_conditions or ()) if binding else (),
        binding_failure_conditions=(device.binding_failure_conditions or ()) if binding else (),
        share_id=share_id,
        consumed_capacity=consumed,
        skip_node_operations=found.skips,
    )


def _configuration(
    chosen: Sequence[Alternative], claim: ResourceClaim, features: Features
) -> tuple[DeviceAllocationConfiguration, ...]:
    # Configuration of a class once, for all its requests; its place is that of the first of them.
    names_of_class: dict[str, list[str]] = {}
    classes = {}
    for one in chosen:
        name = one.cls.metadata.name
        classes[name] = one.cls
        names_of_class.setdefault(name, []).append(one.name)
    found = [
        DeviceAllocationConfiguration(
            source=FROM_CLASS, requests=tuple(names_of_class[name]), opaque=config.opaque
        )
        for name, cls in classes.items()
        for config in cls.spec.config
    ]
    for config in claim.spec.devices.config:
        named = config.requests
        copies = 1
        if named:
            copies = sum(one.request in named or one.name in named for one in chosen)
        # Up to 1.36 one for two requests appeared twice. Drivers see the same list from both
        # schedulers.
        if features.allocator_of_1_37:
            copies = min(copies, 1)
        found += [
            DeviceAllocationConfiguration(source=FROM_CLAIM, requests=named, opaque=config.opaque)
        ] * copies
    if features.allocator_of_1_37:
        found = [_for_all(config, chosen) for config in found]
    return tuple(found)


def _for_all(
    config: DeviceAllocationConfiguration, chosen: Sequence[Alternative]
) -> DeviceAllocationConfiguration:
    """Return a configuration without the names of requests, if it applies to all of them."""
    named = config.requests
    if named and all(one.request in named or one.name in named for one in chosen):
        return msgspec.structs.replace(config, requests=())
    return config


def _node_selector(devices: Sequence[DeviceOnNode], node_name: str) -> NodeSelector | None:
    """Return the nodes on which an allocation can be used; None means all nodes.

    The result is that of ``createNodeSelector`` in kube-scheduler's allocator.
    """
    # By name, not by the labels in the slice: a local device cannot be used from a second node
    # that happens to have them.
    if any(device.local for device in devices):
        by_name = LabelSelectorRequirement(key="metadata.name", operator="In", values=(node_name,))
        return NodeSelector(node_selector_terms=(NodeSelectorTerm(match_fields=(by_name,)),))
    # All devices must be in reach, so the requirements of their selectors are joined into one term.
    # The search has refused selectors of several terms.
    expressions: list[LabelSelectorRequirement] = []
    fields: list[LabelSelectorRequirement] = []
    for device in devices:
        for term in device.selector.node_selector_terms if device.selector is not None else ():
            expressions += [e for e in term.match_expressions if e not in expressions]
            fields += [e for e in term.match_fields if e not in fields]
    if not expressions and not fields:
        return None
    term = NodeSelectorTerm(match_expressions=tuple(expressions), match_fields=tuple(fields))
    return NodeSelector(node_selector_terms=(term,))
