"""What CapacityScheduling tells people about its quotas and queues."""

from __future__ import annotations

from proreus.addons.capacity_scheduling import CapacityScheduling
from proreus.framework import QuotaUse
from proreus.testing import make_pod
from unit.addons import test_capacity_queues as queues
from unit.addons import test_capacity_scheduling as quotas


def test_a_namespace_shows_its_guarantee_maximum_and_use() -> None:
    plugin = quotas.lent().plugin(CapacityScheduling)
    uses = [use for use in plugin.quotas() if use.resource == "cpu"]
    assert uses == [
        QuotaUse(quota="a", resource="cpu", used=5000, guaranteed=4000, limit=8000),
        QuotaUse(quota="b", resource="cpu", used=4000, guaranteed=6000, limit=10000),
    ]
    assert plugin.quota_of(make_pod("p", namespace="a").pod) == "a"
    assert plugin.quota_of(make_pod("p", namespace="without").pod) == ""


def test_a_queue_shows_what_it_deserves_has_and_may_have_below_its_parent() -> None:
    cluster = queues.harness(
        "KAI",
        queues.kai("dev", {"quota": 4000, "limit": 8000, "overQuotaWeight": 1}),
        queues.kai("dev-1", {"quota": 3000, "overQuotaWeight": 1}, parentQueue="dev"),
    )
    queues.ask(cluster, "dev-1", 5)
    queues.settle(cluster)
    plugin = cluster.plugin(CapacityScheduling)
    uses = {use.quota: use for use in plugin.quotas() if use.resource == "cpu"}
    dev, team = uses["dev"], uses["dev-1"]
    assert (dev.used, dev.guaranteed, dev.limit, dev.parent) == (5000, 4000, 8000, "")
    assert (team.used, team.guaranteed, team.limit, team.parent) == (5000, 3000, None, "dev")
    assert team.fair_share is not None
    assert team.fair_share >= 5000
    assert plugin.quota_of(cluster.pod("dev-1-0")) == "dev-1"
