"""PostFilter awaits the apiserver, and what the watch reports meanwhile has to wait."""

from __future__ import annotations

import asyncio

from proreus.framework.plugin import FilterPlugin, PostFilterPlugin
from proreus.framework.post_filter_result import PostFilterResult
from proreus.framework.status import Status

from ..networked_cluster import NetworkedCluster, StandingStill


class RejectsByName(FilterPlugin):
    """Rejects every node, with its name as the reason."""

    def filter(self, state, pod, node):
        return Status.unschedulable(node.name)


class Awaits(PostFilterPlugin):
    """Awaits something; the last of three nodes takes the row of the first meanwhile."""

    world: NetworkedCluster
    informers: StandingStill

    async def post_filter(self, state, pod, verdicts):
        self.informers.change(lambda: self.world.api.remove("Node", "n0"))
        await asyncio.sleep(0)
        return PostFilterResult(Status.unschedulable())


class Reads(PostFilterPlugin):
    """Records each node with the reason of its row."""

    seen: list[tuple[str, str]]

    async def post_filter(self, state, pod, verdicts):
        for row in range(len(self.handle.nodes)):
            status = verdicts.status(row)
            self.seen.append((self.handle.nodes[row].name, status.message))
        return PostFilterResult(Status.unschedulable())


async def test_nodes_stay_where_they_are_until_post_filter_has_ended():
    enabled = [{"name": plugin.__name__} for plugin in (RejectsByName, Awaits, Reads)]
    plugins = {"multiPoint": {"enabled": enabled}, "postFilter": {"disabled": [{"name": "*"}]}}
    plugins["postFilter"]["enabled"] = enabled[1:]
    world = NetworkedCluster({"profiles": [{"plugins": plugins}]}, (RejectsByName, Awaits, Reads))
    Awaits.world, Awaits.informers, Reads.seen = world, StandingStill(), []
    world.scheduler.scheduling_cycle._paused = Awaits.informers.paused
    world.add_nodes("n0", "n1", "n2")
    assert await world.place() == ""
    assert Reads.seen == [("n0", "n0"), ("n1", "n1"), ("n2", "n2")]
    assert sorted(node.name for node in world.scheduler.cache.table) == ["n1", "n2"]
    assert Awaits.informers.depth == 0
    await world.scheduler.close()
