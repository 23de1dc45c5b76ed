"""The arguments of DynamicResources."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Self

from pydantic import Field

from proreus.base.feature_gates import FeatureGates
from proreus.config.durations import format_duration
from proreus.config.field_errors import child, forbidden, invalid
from proreus.config.fields import PluginArgs, Seconds


class DynamicResourcesArgs(PluginArgs):
    """The time limits of filtering one node and of waiting for devices to be ready, in seconds."""

    go_type = "v1.DynamicResourcesArgs"

    filter_timeout_seconds: Annotated[Seconds | None, Field(alias="filterTimeout")] = None
    binding_timeout_seconds: Annotated[Seconds | None, Field(alias="bindingTimeout")] = None

    def with_defaults(self, gates: FeatureGates) -> Self:
        """Use 10 s and 10 min where the gates are enabled."""
        update: dict[str, float] = {}
        if self.filter_timeout_seconds is None and gates.enabled("DRASchedulerFilterTimeout"):
            update["filter_timeout_seconds"] = 10.0
        if self.binding_timeout_seconds is None and _waits_for_devices(gates):
            update["binding_timeout_seconds"] = 600.0
        return self.model_copy(update=update)

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
