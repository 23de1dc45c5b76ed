"""Names that a configuration may not have any more are refused with what took their place."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from proreus.base.errors import ConfigError
from proreus.base.feature_gates import FeatureGates
from proreus.config.former_names import FIELDS, FLAGS, PAGE, PLUGINS
from proreus.config.load import load
from proreus.engine.runtime.expansion import expand_all
from proreus.engine.runtime.registry import Registry
from proreus.plugins import IN_TREE_PLUGINS
from proreus.process.cli.go_flags import FlagError, parse_flags
from proreus.process.cli.run_flags import FLAGS as RUN_FLAGS
from proreus.process.loading.load import add_ons

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
WORDS = (Path(__file__).resolve().parents[3] / PAGE).read_text()


@pytest.fixture(scope="module")
def registry() -> Registry:
    return Registry(IN_TREE_PLUGINS, add_ons())


def refusal(text: str, registry: Registry) -> str:
    with pytest.raises(ConfigError) as caught:
        expand_all(load(HEAD + text, registry), registry, FeatureGates())
    return caught.value.explained


@pytest.mark.parametrize("name", PLUGINS)
def test_a_former_plugin_is_refused_with_its_successor(name, registry):
    text = f"profiles:\n- plugins: {{score: {{enabled: [{{name: {name}}}]}}}}\n"
    refused = refusal(text, registry)
    assert PLUGINS[name] in refused
    assert "did you mean" not in refused


@pytest.mark.parametrize("name", PLUGINS)
def test_the_successors_of_a_plugin_exist_and_it_does_not(name, registry):
    assert name not in registry
    instead = PLUGINS[name].removeprefix("write ").partition(" with ")[0]
    if instead != "leave it out":
        assert registry.names() >= {*re.split(", | and ", instead)}


@pytest.mark.parametrize(
    "profile",
    [
        "plugins: {score: {disabled: [{name: SelectorSpread}]}}",
        "pluginConfig: [{name: SelectorSpread, args: {}}]",
    ],
)
def test_a_former_plugin_that_is_not_enabled_is_a_warning(profile, registry, caplog):
    load(f"{HEAD}profiles: [{{{profile}}}]", registry)
    (record,) = caplog.records
    assert record.pairs["remedy"] == PLUGINS["SelectorSpread"]


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("NodeAffinty", "did you mean NodeAffinity?"),
        ("Coscheduling", "enable the plugin in this profile"),
        ("Abracadabra", "no plugin has this name"),
    ],
)
def test_arguments_without_a_plugin_are_a_warning(name, remedy, registry, caplog):
    load(f"{HEAD}profiles: [{{pluginConfig: [{{name: {name}, args: {{}}}}]}}]", registry)
    (record,) = caplog.records
    assert record.getMessage() == "Plugin arguments without effect"
    assert record.pairs["remedy"] == remedy


@pytest.mark.parametrize("name", FIELDS)
def test_a_former_field_is_refused_with_what_to_write(name, registry):
    place = (
        f"profiles: [{{plugins: {{{name}: {{}}}}}}]"
        if name in ("preFilterExtensions", "normalizeScore", "scoreExtensions", "unreserve")
        else f"{name}: {{}}"
    )
    assert f"{name} {FIELDS[name]}" in refusal(place, registry)


def test_an_unknown_field_without_a_successor_has_no_remedy(registry):
    assert refusal("nope: 3", registry) == 'strict decoding error: unknown field "nope"'


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("paralelism: 16", "instead of paralelism write parallelism"),
        (
            "profiles: [{schedulrName: a}]",
            "instead of profiles[0].schedulrName write schedulerName",
        ),
        (
            "profiles: [{plugins: {postfilter: {}}}]",
            "instead of profiles[0].plugins.postfilter write postFilter",
        ),
        (
            "profiles: [{pluginConfig: [{name: NodeResourcesFit, "
            "args: {scoringStrategy: {typ: LeastAllocated}}}]}]",
            "instead of scoringStrategy.typ write type",
        ),
    ],
)
def test_a_misspelt_field_is_refused_with_the_one_that_is_meant(text, remedy, registry):
    assert refusal(text, registry).endswith(f"; {remedy}")


def test_a_misspelt_flag_is_refused_with_the_one_that_is_meant():
    flags = {flag.name: flag for flag in RUN_FLAGS}
    with pytest.raises(FlagError) as caught:
        parse_flags(flags, ["--leader-elct=false"], "proreus run")
    assert str(caught.value) == "unknown flag: --leader-elct; did you mean --leader-elect?"


@pytest.mark.parametrize("name", FLAGS)
def test_a_former_flag_is_refused_with_what_to_write(name):
    with pytest.raises(FlagError) as caught:
        parse_flags({}, [f"--{name}=x"], "proreus run")
    assert str(caught.value) == f"unknown flag: --{name}; {FLAGS[name]} ({PAGE})"


@pytest.mark.parametrize("name", [*PLUGINS, *FIELDS, *(f"--{flag}" for flag in FLAGS)])
def test_the_page_has_each_former_name(name):
    assert f"`{name}`" in WORDS


@pytest.mark.parametrize(
    ("text", "scheduler"),
    [
        ('actions: "enqueue, allocate"\ntiers: [{plugins: [{name: gang}]}]', "Volcano"),
        ("partitions: [{name: default, queues: []}]", "YuniKorn"),
    ],
)
def test_a_configuration_of_another_scheduler_leads_to_the_page(text, scheduler, registry):
    with pytest.raises(ConfigError) as caught:
        load(text, registry)
    assert f"this is a configuration of {scheduler}; {PAGE}" in caught.value.explained
