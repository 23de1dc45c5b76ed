"""Dry runs: where pods would be placed in the cluster as it is now, or with other nodes."""

from proreus.insight.dry_run.api import DryRunReview, DryRunSpec, DryRunStatus
from proreus.insight.dry_run.objects import InvalidDryRun
from proreus.insight.dry_run.replica import ClusterChanged
from proreus.insight.dry_run.service import Busy, DryRunService

__all__ = [
    "Busy",
    "ClusterChanged",
    "DryRunReview",
    "DryRunService",
    "DryRunSpec",
    "DryRunStatus",
    "InvalidDryRun",
]
