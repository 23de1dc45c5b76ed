"""The process: ``run`` wires all packages together."""

from proreus.app.options import RunOptions
from proreus.app.run import run

__all__ = ["RunOptions", "run"]
