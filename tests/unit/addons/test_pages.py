"""Each add-on has a page, whose configuration is accepted and enables it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from proreus.base.feature_gates import FeatureGates
from proreus.config.load import load
from proreus.engine.runtime.registry import Registry
from proreus.offline.cluster import OfflineCluster
from proreus.plugins import IN_TREE_PLUGINS
from proreus.process.loading.load import add_ons

PAGES = Path(__file__).resolve().parents[3] / "docs" / "addons"


def page_of(name: str) -> str:
    listed = re.search(rf"^\| \[{name}\]\(([a-z-]+\.md)\)", (PAGES / "README.md").read_text(), re.M)
    assert listed, f"{name} is not listed in docs/addons/README.md"
    return (PAGES / listed[1]).read_text()


@pytest.mark.parametrize("name", add_ons())
async def test_the_configuration_of_its_page_is_accepted(name: str) -> None:
    page, gates = page_of(name), FeatureGates()
    assert "## Differences from the original" in page
    assert "python -m bench.add_ons" in page.partition("## Cost")[2]
    texts = re.findall(r"```yaml\n(.*?)```", page, re.S)
    examples = [one for one in texts if name in one and "KubeSchedulerConfiguration" in one]
    assert examples, "no configuration that enables it"
    for example in examples:
        registry = Registry(IN_TREE_PLUGINS, add_ons())
        cluster = OfflineCluster(load(example, registry, gates), registry, gates)
        for profile in cluster.scheduler.profiles.values():
            assert name in {plugin.name for plugin in profile.plugins}


@pytest.mark.parametrize("name", add_ons())
def test_its_page_names_the_arguments_that_have_no_effect(name: str) -> None:
    page = page_of(name)
    model = Registry(IN_TREE_PLUGINS, add_ons()).args_model(name)
    arguments = () if model is None else model.arguments_without_effect
    assert not [one for one in arguments if f"`{one}`" not in page]
