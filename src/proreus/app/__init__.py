"""The process: ``run`` wires all rooms together."""

from proreus.app.options import RunOptions
from proreus.app.run import run

__all__ = ["RunOptions", "run"]
