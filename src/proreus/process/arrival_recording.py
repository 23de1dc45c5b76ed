"""``--record-arrivals`` writes arrivals at a running scheduler to a file, for replays."""

from __future__ import annotations

from pathlib import Path

from proreus.base.clock import RealClock
from proreus.insight.snapshots.recording import ArrivalRecorder
from proreus.process.options import RunOptions
from proreus.process.process import Process


async def record_arrivals(options: RunOptions, process: Process) -> None:
    """Record from the moment when all informers have synced, until cancelled."""
    await process.synced.wait()
    recorder = ArrivalRecorder(Path(options.record_arrivals), RealClock())
    resources = [informer.resource for informer in process.stores.group.by_kind.values()]
    recorder.begin(process.stores, resources, options.feature_gates.emulation_version)
    await recorder.run()
