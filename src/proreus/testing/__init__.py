"""The kit for tests of plugins: public, and without any test framework.

``Harness``: a small cluster with the real scheduler, in memory and in virtual time; ``Outcome``:
what became of a pod and why. ``builders``: nodes, pods and tables in a line. ``FakeHandle``: what a
plugin is given, without a scheduler. ``agreement``: whether the columnar forms of a plugin say what
its per-node forms say, and whether sharing is safe; ``strategies``: the random clusters for that.
The last two need ``hypothesis``: ``pip install "proreus[testing]"``. See docs/testing-plugins.md.
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
