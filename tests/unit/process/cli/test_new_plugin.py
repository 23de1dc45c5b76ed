"""The package written by ``proreus new-plugin``: its tests, ruff and mypy pass, it schedules."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from proreus.framework.extension_points import points_of
from proreus.process.cli.new_plugin import POINTS, command
from proreus.process.cli.new_plugin.names import InvalidPluginName, Names
from proreus.process.loading.load import PluginSources, load
from proreus.testing import Harness, make_pod

ALL_EVENTS = ",".join(POINTS)


def generate(folder: Path, *arguments: str) -> None:
    result = CliRunner().invoke(command, [*arguments, "--dir", str(folder)])
    assert result.exit_code == 0, result.output


def run(folder: Path, *arguments: str) -> None:
    environ = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "RUFF_NO_CACHE": "true"}
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "options",
    [[], ["--columns"], ["--points", ALL_EVENTS, "--columns"]],
    ids=["default", "columns", "everything"],
)
def test_generated_tests_and_ruff_pass(options: list[str], tmp_path: Path) -> None:
    generate(tmp_path, "GpuHeadroom", *options)
    package = tmp_path / "gpu-headroom"

    run(package, "pytest", "-q", "-p", "no:cacheprovider")
    run(package, "ruff", "check", "--select", "E,F,W,I,B,UP,SIM,RET,RUF", ".")
    run(package, "ruff", "format", "--check", ".")


def test_each_extension_point_alone_works(tmp_path: Path) -> None:
    for point in POINTS:
        name = f"Only{point[0].upper()}{point[1:]}"
        generate(tmp_path, name, "--points", point)
        names = Names.of(name)
        loaded_plugins = load(PluginSources(folders=(str(tmp_path / names.package / "src"),)))
        assert not loaded_plugins.refusals
        assert points_of(loaded_plugins.registry[name]) == {point}

    run(tmp_path, "ruff", "check", "--select", "E,F,W,I", ".")
    run(tmp_path, "ruff", "format", "--check", ".")


def test_generated_code_passes_mypy(tmp_path: Path) -> None:
    generate(tmp_path, "GpuHeadroom", "--points", ALL_EVENTS, "--columns")

    run(tmp_path / "gpu-headroom", "mypy", "--strict", "--cache-dir", os.devnull, "src")


@pytest.mark.parametrize("points", ["filter,score", ALL_EVENTS])
def test_the_generated_configuration_schedules_a_pod(points: str, tmp_path: Path) -> None:
    generate(tmp_path, "GpuHeadroom", "--points", points)
    package = tmp_path / "gpu-headroom"
    plugin = load(PluginSources(folders=(str(package / "src"),))).registry["GpuHeadroom"]

    cluster = Harness([plugin], 2, config=package / "scheduler.yaml")
    outcome = cluster.schedule(make_pod("web", scheduler_name="gpu-headroom"))

    assert outcome.bound, outcome
    assert "GpuHeadroom" in outcome.scores["node-0"]


def test_the_entry_point_is_the_class(tmp_path: Path) -> None:
    generate(tmp_path, "GpuHeadroom")
    project = tomllib.loads((tmp_path / "gpu-headroom" / "pyproject.toml").read_text())["project"]

    assert project["entry-points"]["proreus.plugins"] == {"GpuHeadroom": "gpu_headroom:GpuHeadroom"}


@pytest.mark.parametrize(
    ("plugin", "module", "package"),
    [
        ("GpuHeadroom", "gpu_headroom", "gpu-headroom"),
        ("GPUHeadroom2", "gpu_headroom2", "gpu-headroom2"),
        ("Energy", "energy", "energy"),
    ],
)
def test_names_are_derived(plugin: str, module: str, package: str) -> None:
    assert Names.of(plugin) == (plugin, module, package)


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        (
            "gpu-headroom",
            r"'gpu-headroom' is not CamelCase, letters and digits only, like GpuHeadro",
        ),
        ("../Evil", "like Evil"),
        ("1st", "like GpuHeadroom"),
        ("Größe", "not CamelCase"),
        ("", "not CamelCase"),
        ("Json", "the module 'json' would hide one of that name; add a word"),
        ("Proreus", "would hide"),
        ("Numpy", "would hide"),
        ("NodeAffinity", "NodeAffinity is the name of a plugin that proreus has"),
        ("FilterPlugin", "FilterPlugin is a name that the plugin's code needs"),
        ("A" * 60, "more than 50 letters"),
    ],
)
def test_names_are_checked(name: str, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidPluginName, match=complaint):
        Names.of(name)
    result = CliRunner().invoke(command, [name, "--dir", str(tmp_path)])
    assert result.exit_code == 2
    assert not list(tmp_path.iterdir())


def test_the_name_of_an_add_on_is_remarked(tmp_path: Path) -> None:
    result = CliRunner().invoke(command, ["Coscheduling", "--dir", str(tmp_path)])
    assert "Coscheduling is the name of an add-on, which this plugin replaces" in result.output


@pytest.mark.parametrize("points", ["preFilter,filter", "PreFilter,Filter", "pre_filter,filter"])
def test_points_may_be_written_as_in_go_and_python(points: str, tmp_path: Path) -> None:
    generate(tmp_path, "Mine", "--points", points)
    text = (tmp_path / "mine" / "src" / "mine.py").read_text()
    assert "class Mine(PreFilterPlugin, FilterPlugin):" in text


def test_options_are_checked(tmp_path: Path) -> None:
    runner = CliRunner()
    result = runner.invoke(command, ["Mine", "--dir", str(tmp_path), "--points", "background"])
    assert "background: choose from preEnqueue" in result.output
    assert "add BackgroundPlugin to the bases" in " ".join(result.output.split())
    result = runner.invoke(command, ["Mine", "--dir", str(tmp_path), "--points", "filter,scoer"])
    assert "scoer: choose from preEnqueue, queueSort, preFilter, filter" in result.output
    result = runner.invoke(
        command, ["Mine", "--dir", str(tmp_path), "--points", "bind", "--columns"]
    )
    assert "only filter and score have a form over columns" in result.output


def test_existing_files_are_not_overwritten(tmp_path: Path) -> None:
    generate(tmp_path, "GpuHeadroom")
    result = CliRunner().invoke(command, ["GpuHeadroom", "--dir", str(tmp_path)])

    assert result.exit_code == 1
    assert "exists and is not empty" in result.output
