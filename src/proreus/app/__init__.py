"""The process: ``run`` wires all packages together."""

from proreus.app.call_watchdog import CallLimits
from proreus.app.options import RunOptions
from proreus.app.run import run

__all__ = ["CallLimits", "RunOptions", "run"]
