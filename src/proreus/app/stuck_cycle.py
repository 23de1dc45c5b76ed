"""Whether scheduling is stuck: for /livez, and for the Lease, which is not to outlive it."""

from __future__ import annotations

from dataclasses import dataclass

from proreus.app.loop_watchdog import LoopWatchdog
from proreus.scheduler.scheduler import Scheduler


@dataclass(frozen=True)
class StuckCycle:
    """Looks at a scheduler and its event loop; ``limit_seconds`` 0: nothing takes too long.

    There are two ways to be stuck. A cycle that awaits something for ever leaves the loop turning;
    one that computes for ever does not, nor does anything else that keeps the loop.
    """

    scheduler: Scheduler
    watchdog: LoopWatchdog
    limit_seconds: float

    def problem(self) -> str | None:
        """Say what takes too long, None if nothing does; from any thread."""
        if not self.limit_seconds:
            return None
        if (seconds := self.scheduler.cycle_seconds) > self.limit_seconds:
            return f"a scheduling cycle has been going on for {seconds:.0f} s"
        if (seconds := self.watchdog.silent_seconds) > self.limit_seconds:
            return f"the event loop has not turned for {seconds:.0f} s"
        return None
