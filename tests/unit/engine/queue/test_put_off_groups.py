"""Which groups wait for more events before they are tried again."""

import pytest

from proreus.engine.queue.event_moves import PutOffGroups
from proreus.framework.events import ASSIGNED_POD_DELETE
from proreus.framework.pod_info import QueuedPodInfo
from proreus.framework.queued_pod_group import QueuedPodGroupInfo
from proreus.objects.scheduling import POD_GROUP_TYPE, EntityKey
from proreus.testing import make_pod


def group(name, lacking):
    key = EntityKey(POD_GROUP_TYPE, "default", name)
    queued = QueuedPodInfo(make_pod("member", cpu="2"), 0.0)
    return QueuedPodGroupInfo(
        root=key, priority=0, timestamp=0.0, pods_by_group={key: [queued]}, lacking=lacking
    )


def gone(cpu):
    return make_pod("gone", cpu=cpu).pod


def test_a_group_of_the_api_is_tried_at_each_event():
    groups, queued = PutOffGroups(), group("api", 1)
    assert not any(groups.puts_off(queued, ASSIGNED_POD_DELETE, gone("100m")) for _ in range(20))


@pytest.mark.parametrize(("cpu", "events"), [("2", 5), ("100m", 5), ("4", 3)])
def test_a_provided_group_is_tried_once_there_may_be_room(cpu, events):
    groups, queued = PutOffGroups(), group("plugin/gang", 5)
    put_off = [groups.puts_off(queued, ASSIGNED_POD_DELETE, gone(cpu)) for _ in range(events)]
    assert put_off == [True] * (events - 1) + [False]


def test_a_provided_group_is_tried_a_few_times_between_two_flushes():
    groups, queued = PutOffGroups(), group("plugin/gang", 1)
    assert [groups.puts_off(queued, ASSIGNED_POD_DELETE, gone("2")) for _ in range(5)] == [
        False
    ] * 3 + [True] * 2
    assert list(groups.flush()) == [queued.key]
    assert not groups.flush()
    assert not groups.puts_off(queued, ASSIGNED_POD_DELETE, gone("2"))
