"""The public kit for testing plugins; it needs no test framework.

``Harness``: a small cluster with the real scheduler, in memory and in virtual time. ``Outcome``:
the result of scheduling a pod, with the reasons. ``builders``: nodes, pods and tables in one line
each. ``FakeHandle``: the handle that plugins get, without a scheduler. ``agreement``: checks that a
plugin's columnar methods agree with its per-node methods, and that its cached results may be
shared; ``strategies``: the random clusters for that. The last two need ``hypothesis``.
See docs/testing-plugins.md.
"""

from proreus.testing.blocking_calls import BlockingCallWarning
from proreus.testing.builders import make_node, make_plugin, make_pod, make_table
from proreus.testing.fake_handle import FakeHandle
from proreus.testing.harness import Harness, HarnessOptions
from proreus.testing.outcome import Event, Outcome

__all__ = [
    "BlockingCallWarning",
    "Event",
    "FakeHandle",
    "Harness",
    "HarnessOptions",
    "Outcome",
    "make_node",
    "make_plugin",
    "make_pod",
    "make_table",
]
