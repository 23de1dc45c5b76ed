"""The arguments that all plugins of the family share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import model_validator

from proreus.addons.node_metrics.args import NodeMetricsArgs
from proreus.framework import FeatureGates, field_errors


class TrimaranArgs(NodeMetricsArgs):
    """``staleness_windows``: older metrics, in their windows, are not used."""

    staleness_windows: float = 3.0

    @model_validator(mode="before")
    @classmethod
    def _capitals(cls, data: Any) -> Any:
        # The original's Peaks takes its fields in capitals alone, by a malformed tag.
        if isinstance(data, dict):
            return {
                name[:1].lower() + name[1:] if isinstance(name, str) else name: value
                for name, value in data.items()
            }
        return data

    def problems(self, path: str, gates: FeatureGates) -> Iterator[str]:
        """Check that metrics are used for some time at least."""
        if self.staleness_windows <= 0:
            where = field_errors.child(path, "stalenessWindows")
            yield field_errors.invalid(where, self.staleness_windows, "must be positive")
