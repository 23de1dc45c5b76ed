"""``python -m proreus`` is ``proreus``."""

from proreus.cli import main

main()
