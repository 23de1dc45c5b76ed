"""Tools for the tests of plugin authors.

``builders``: nodes, pods and tables in a line. ``fake_handle``: what a plugin is given, without a
scheduler. ``clusters``: random clusters, as hypothesis strategies. ``agreement``: whether the
columnar forms of a plugin say what its per-node forms say. The last two need ``hypothesis``.
"""

from proreus.testing.builders import make_node, make_plugin, make_pod, make_table
from proreus.testing.fake_handle import FakeHandle
from proreus.testing.harness import Harness
from proreus.testing.outcome import Event, Outcome

__all__ = [
    "Event",
    "FakeHandle",
    "Harness",
    "Outcome",
    "make_node",
    "make_plugin",
    "make_pod",
    "make_table",
]
