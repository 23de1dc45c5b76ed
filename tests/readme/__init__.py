"""README's commands, run as they are printed.

``commands`` reads and runs them. ``python -m readme`` does it as a stranger would, in a new clone
with a new virtual environment.
"""
