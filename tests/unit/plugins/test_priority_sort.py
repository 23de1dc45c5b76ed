"""PrioritySort: importance, then patience."""

from __future__ import annotations

from proreus.framework.pod_info import QueuedPodInfo
from proreus.plugins.priority_sort import PrioritySort
from proreus.testing import FakeHandle, make_plugin, make_pod


def test_the_highest_priority_then_the_longest_queued_pod_is_first() -> None:
    plugin = make_plugin(PrioritySort, FakeHandle())
    queued = [
        QueuedPodInfo(make_pod("late", priority=5), timestamp=20.0),
        QueuedPodInfo(make_pod("unset"), timestamp=1.0),
        QueuedPodInfo(make_pod("negative", priority=-1), timestamp=0.0),
        QueuedPodInfo(make_pod("early", priority=5), timestamp=10.0),
    ]

    order = [one.info.name for one in sorted(queued, key=plugin.sort_key)]

    assert order == ["early", "late", "unset", "negative"]
