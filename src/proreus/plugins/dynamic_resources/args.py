"""The arguments of DynamicResources."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Self

import msgspec
from msgspec.structs import replace

from proreus.base.feature_gates import FeatureGates
from proreus.config.durations import format_duration
from proreus.config.field_errors import child, forbidden, invalid
from proreus.config.structs import Seconds
from proreus.config.types import InTreeArgs


class DynamicResourcesArgs(InTreeArgs, frozen=True):
    """The time limits of filtering one node and of waiting for devices to be ready, in seconds."""

    go_type = "v1.DynamicResourcesArgs"

    filter_timeout_seconds: Seconds | None = msgspec.field(default=None, name="filterTimeout")
    binding_timeout_seconds: Seconds | None = msgspec.field(default=None, name="bindingTimeout")

    def with_defaults(self, gates: FeatureGates) -> Self:
        """Use 10 s and 10 min where the gates are enabled."""
        update: dict[str, float] = {}
        if self.filter_timeout_seconds is None and gates.enabled("DRASchedulerFilterTimeout"):
            update["filter_timeout_seconds"] = 10.0
        if self.binding_timeout_seconds is None and _waits_for_devices(gates):
            update["binding_timeout_seconds"] = 600.0
        return replace(self, **update)

    def problems(self, path: str, gates: FeatureGates) -> Iterator[str]:
        """Check the ranges; a field is an error while its gate is disabled."""
        timeout, where = self.filter_timeout_seconds, child(path, "filterTimeout")
        if timeout is not None and not gates.enabled("DRASchedulerFilterTimeout"):
            yield forbidden(where, "DRASchedulingFilterTimeout feature gate is disabled")
        elif timeout is not None and timeout < 0:
            yield invalid(where, format_duration(timeout), "must be zero or positive")
        timeout, where = self.binding_timeout_seconds, child(path, "bindingTimeout")
        if timeout is not None and not _waits_for_devices(gates):
            yield forbidden(
                where,
                "DRADeviceBindingConditions or DRAResourceClaimDeviceStatus feature gate "
                "is disabled",
            )
        elif timeout is not None and timeout < 1:
            yield invalid(where, format_duration(timeout), "must be at least 1 second")


def _waits_for_devices(gates: FeatureGates) -> bool:
    return gates.enabled("DRADeviceBindingConditions") and gates.enabled(
        "DRAResourceClaimDeviceStatus"
    )
