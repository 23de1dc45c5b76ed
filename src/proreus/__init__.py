"""proreus: a kube-scheduler replacement in Python.

The tour of the code is in ARCHITECTURE.md, in the order in which data flows.
"""

__version__ = "0.1.0"
