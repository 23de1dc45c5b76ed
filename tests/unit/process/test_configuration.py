"""Which configuration a process runs with, out-of-tree plugins included."""

from __future__ import annotations

import hashlib
import logging
from typing import Any

import pytest
import yaml

from proreus.base.errors import ConfigError
from proreus.base.feature_gates import FeatureGates
from proreus.engine.runtime.expansion import expand
from proreus.process.configuration import DEFAULT_QPS, configuration, report
from proreus.process.loading.load import PluginSources, load
from proreus.process.options import RunOptions
from proreus.process.watched_files import WatchedFiles

PLUGINS = """\
from proreus.framework.plugin import BindPlugin, FilterPlugin, QueueSortPlugin

class Picky(FilterPlugin):
    def filter(self, state, pod, node): ...

class Binder(BindPlugin):
    async def bind(self, state, pod, node_name): ...

class Sorter(QueueSortPlugin):
    def sort_key(self, queued): ...

class Bad(FilterPlugin):
    def filter(self, state): ...
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Plugins that can be given by name: ``configured_plugins:Picky``."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "configured_plugins.py").write_text(PLUGINS)
    return tmp_path / "configured_plugins.py"


def configured(*plugins: str, **options: Any):
    sources = PluginSources(tuple(f"configured_plugins:{p}" for p in plugins), packages=False)
    files = WatchedFiles(options.get("config", ""), sources)
    return configuration(RunOptions(plugins=sources, **options), load(sources), files)


def write(tmp_path, *enabled: str) -> str:
    """Write a configuration that enables plugins and return its path."""
    refs = [{"name": name} for name in enabled]
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"plugins": {"multiPoint": {"enabled": refs}}}],
    }
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(document))
    return str(tmp_path / "config.yaml")


@pytest.mark.parametrize(
    ("connection", "qps", "burst"),
    [
        ({}, -1, 100),
        ({"burst": 7}, -1, 7),
        ({"qps": 20}, 20, 100),
        ({"qps": 0, "burst": 0}, 50, 100),
    ],
)
def test_there_is_a_rate_only_where_one_is_stated(tmp_path, connection, qps, burst):
    path = tmp_path / "config.yaml"
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": connection,
    }
    path.write_text(yaml.safe_dump(document))
    found = configured(config=str(path)).client_connection
    assert (found.qps, found.burst) == (qps, burst)


def test_without_a_file_what_is_given_is_enabled(module):
    config = configured("Picky", "Binder", "Sorter")
    (profile,) = config.profiles
    assert config.client_connection.qps == DEFAULT_QPS
    names = [ref.name for ref in profile.plugins.multi_point.enabled]
    assert names[-3:] == ["Picky", "Binder", "Sorter"]
    assert [ref.name for ref in profile.plugins.queue_sort.enabled] == ["Sorter"]
    assert [ref.name for ref in profile.plugins.bind.enabled] == ["Binder"]
    names = ("Picky", "Binder", "Sorter")
    sources = tuple(f"configured_plugins:{name}" for name in names)
    loaded_plugins = load(PluginSources(sources, packages=False))
    points = expand(profile, loaded_plugins.registry, FeatureGates()).points
    assert points["filter"][-1] == "Picky"
    assert points["bind"] == ("Binder", "DefaultBinder")
    assert points["queueSort"] == ("Sorter",)


def test_with_a_file_the_file_says_what_is_enabled(module, tmp_path, caplog):
    config = configured("Picky", "Binder", config=write(tmp_path, "Binder"))
    assert "Picky" not in config.profiles[0].plugins.enabled_names()
    (warning,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert warning.pairs == {"plugins": ["Picky"]}


def test_a_refused_plugin_ends_the_start_only_if_it_is_named(module, tmp_path, caplog):
    why = f"plugin Bad cannot be used: {module}:13: filter must take (self, state, pod, node)"
    with pytest.raises(ConfigError) as caught:
        configured("Picky", "Bad")
    assert str(caught.value).startswith(why)
    with pytest.raises(ConfigError) as caught:
        configured("Bad", config=write(tmp_path, "Bad"))
    assert str(caught.value).startswith(why)
    configured("Bad", config=write(tmp_path))


def test_logs_that_a_plugin_replaces_an_add_on(module, tmp_path, caplog):
    text = module.read_text().replace("class Picky(", "class Coscheduling(")
    (tmp_path / "own_gangs.py").write_text(text.partition("class Bad")[0])
    loaded_plugins = load(PluginSources(folders=(str(tmp_path),), packages=False))
    report(loaded_plugins)
    (warning,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert warning.getMessage() == "Plugin replaces the add-on of that name"
    assert warning.pairs["plugin"] == "Coscheduling"


def test_logs_loaded_and_refused_plugins(module, caplog):
    caplog.set_level(logging.INFO)
    loaded_plugins = load(
        PluginSources(("configured_plugins:Picky", "configured_plugins:Bad"), packages=False)
    )
    report(loaded_plugins)
    records = {record.getMessage(): record for record in caplog.records}
    assert records["Plugin loaded"].pairs == {
        "plugin": "Picky",
        "origin": f"{module}:3",
        "sha256": hashlib.sha256(module.read_bytes()).hexdigest(),
    }
    refused = records["Plugin refused"]
    assert refused.levelno == logging.ERROR
    assert refused.pairs["place"] == f"{module}:13"
