"""The process: ``run`` wires all packages together."""

from proreus.app.options import RunOptions
from proreus.app.run import run
from proreus.app.stopping import end_within_time

__all__ = ["RunOptions", "end_within_time", "run"]
