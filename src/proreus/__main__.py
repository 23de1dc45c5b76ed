"""``python -m proreus`` is ``proreus``."""

from proreus.process.cli import main

main()
