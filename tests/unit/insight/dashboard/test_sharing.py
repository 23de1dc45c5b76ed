"""Groups, quotas and preemption on the pages."""

import asyncio
import re

import aiohttp
import pytest

from proreus.addons.coscheduling import Coscheduling
from proreus.base.feature_gates import FeatureGates
from proreus.config.load import load
from proreus.engine.runtime.registry import Registry
from proreus.insight.dashboard import Dashboard
from proreus.insight.dashboard.group_list import Groups
from proreus.insight.dashboard.held_pods import held_pods
from proreus.insight.decisions.recorder import DecisionRecorder
from proreus.insight.explain import Explainer
from proreus.objects.kinds import PODS
from proreus.offline.cluster import OfflineCluster
from proreus.plugins import IN_TREE_PLUGINS
from unit.offline_objects import node

from .conftest import Browser
from .shared_cluster import SharedCluster, configuration, group, member, pod


@pytest.fixture
async def cluster():
    made = SharedCluster()
    await made.fill()
    return made


@pytest.fixture
async def pages(cluster):
    dashboard = Dashboard(cluster.sources, ("127.0.0.1", 0))
    await dashboard.start()
    async with aiohttp.ClientSession() as session:
        yield Browser(session, dashboard.local_url.removesuffix("/dashboard/"))
    await dashboard.stop()


async def test_groups_that_wait_come_first_with_their_reasons(pages):
    assert await pages.get("/dashboard/groups") == 200
    names = re.findall(r'id="group-\d+" href="[^"]*">([^<]*)<', pages.html)
    assert set(names) == {"bert", "llama", "missing"}
    assert "2 of the 4 pods that it needs have not been created" in pages.text
    assert "The PodGroup does not exist" in pages.text
    assert "Insufficient cpu" in pages.text


async def test_groups_are_filtered_by_name_namespace_and_state(pages):
    for query, count in (
        ("q=ber", 1),
        ("namespace=default", 3),
        ("namespace=other", 0),
        ("state=incomplete", 1),
    ):
        await pages.get(f"/dashboard/group-table?{query}")
        assert re.search(rf"\b{count} groups?\b", pages.text), query


async def test_a_group_has_its_pods_and_what_would_help(cluster, pages):
    assert await pages.get("/dashboard/group/default/bert") == 200
    assert "Needed together 8" in pages.text
    assert "Change the pod" in pages.text
    assert len(re.findall(r'id="member-\d+"', pages.html)) == 8
    await pages.get("/dashboard/group/default/llama")
    assert "minimum to 2" in pages.text
    await cluster.schedule(group("small", 2), *(member(f"small-{n}", "small", "1") for n in "ab"))
    await pages.get("/dashboard/group/default/small")
    assert "All its pods have a node" in pages.text
    assert "/dashboard/node/node-" in pages.html


async def test_quotas_show_use_guarantee_and_who_waits_for_whom(pages):
    assert await pages.get("/dashboard/quotas") == 200
    assert re.search(r"team-a cpu 250 % 20 8 12 24", pages.text)
    assert "team-b has 2 waiting pods that request 12 cpu" in pages.text
    assert "Borrowed by team-a (12)" in pages.text
    await pages.get("/dashboard/quota-table?q=team-b")
    assert not re.search(r"team-a cpu", pages.text)


async def test_without_quotas_the_page_says_so(browser):
    assert await browser.get("/dashboard/quotas") == 200
    assert "There are none" in browser.text


async def test_a_plugin_that_cannot_list_its_quotas_does_not_break_the_page(
    cluster, pages, monkeypatch
):
    profile = cluster.sources.scheduler.profiles["batch"]
    [plugin] = [one for one in profile.plugins if one.name == "CapacityScheduling"]
    monkeypatch.setattr(plugin, "quotas", lambda: 1 / 0)
    assert await pages.get("/dashboard/quotas") == 200
    assert "There are none" in pages.text


async def test_preemption_shows_the_victims_until_they_are_gone(cluster, pages):
    await pages.get("/dashboard/preemption")
    assert re.search(r"default/urgent 1000 node-\d\d .*default/web-\d\d", pages.text)
    assert "terminating" in pages.text
    assert "No earlier preemption is recorded" in pages.text
    await pages.get("/dashboard/")
    assert "1 pod waits until other pods have been evicted" in pages.text
    for key in cluster.cluster.api.deleted:
        cluster.cluster.api.remove("Pod", key)
    cluster.cluster.advance(15)
    await cluster.schedule()
    await pages.get("/dashboard/preemption")
    assert "No pod waits for others to be evicted" in pages.text
    assert re.search(r"Earlier .*default/urgent .*gone", pages.text)


async def test_gangs_that_a_plugin_holds_at_permit_are_listed_with_their_pods():
    gates, registry = FeatureGates(), Registry([*IN_TREE_PLUGINS, Coscheduling])
    points = {"disabled": [{"name": "*"}], "enabled": [{"name": "Coscheduling"}]}
    plugins = {"multiPoint": {"enabled": [{"name": "Coscheduling"}]}, "queueSort": points}
    config = {**configuration(), "profiles": [{"plugins": plugins}]}
    cluster = OfflineCluster(load(config, registry, gates), registry, gates)
    pods = cluster.api.store(PODS)
    recorder = DecisionRecorder.of(cluster.scheduler, cluster.clock)
    explainer = Explainer(cluster.scheduler, recorder, pods, cluster.clock)
    gang = {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "gang", "namespace": "default"},
        "spec": {"minMember": 3},
    }
    for one in (node("n", "2"), gang):
        cluster.api.add(one)
    for number in range(3):
        made = pod(f"gang-{number}", "1")
        made["metadata"]["labels"] = {"scheduling.x-k8s.io/pod-group": "gang"}
        cluster.api.add(made)
    for _ in range(2):
        await cluster.schedule_next()
    await asyncio.sleep(0)
    held = held_pods(cluster.scheduler, cluster.clock)
    assert [(one.node, one.plugins) for one in held] == [("n", ("Coscheduling",))] * 2
    [row] = Groups(cluster.scheduler, cluster.clock, explainer.why_waiting).rows()
    assert (row.key, row.kind, row.needed, row.pods) == ("default/gang", "of a plugin", 3, 3)
    assert (row.placed, row.waiting, row.state) == (2, 1, "waiting")


async def test_the_overview_says_why_pods_and_groups_wait(pages):
    assert await pages.get("/dashboard/") == 200
    assert re.search(r"5 Node Affinity default/database-\d", pages.text)
    assert re.search(r"\d Node Resources Fit default/report-\d", pages.text)
    assert "waiting for minCount pods from a gang" in pages.text
    assert "PodGroup default/missing does not exist" in pages.text
    assert "Why groups wait" in pages.text


async def test_lists_of_groups_and_quotas_are_sorted_by_their_heads(cluster, pages):
    await cluster.schedule(pod("x", "1"))
    await pages.get("/dashboard/group-table?sort=-needed")
    names = re.findall(r'id="group-\d+" href="[^"]*">([^<]*)<', pages.html)
    assert names == ["bert", "llama", "missing"]
    await pages.get("/dashboard/quota-table?sort=-quota")
    quotas = re.findall(r'data-label="Quota" class="name">([^<]*)<', pages.html)
    assert quotas == sorted(quotas, reverse=True)
