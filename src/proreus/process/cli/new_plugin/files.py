"""The files of a new plugin's package, as text; ``new_plugin.command`` writes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from textwrap import dedent, indent

import proreus
from proreus.process.cli.new_plugin.names import Names
from proreus.process.cli.new_plugin.points import POINTS, Point

_WIDTH = 100


def files_of(names: Names, points: tuple[str, ...], columns: bool) -> Mapping[str, str]:
    """Return the text of each file by its path in the package's folder."""
    chosen = [POINTS[name] for name in points]
    return {
        "README.md": _readme(names, chosen),
        "pyproject.toml": _pyproject(names),
        "scheduler.yaml": _configuration(names, points),
        "pods.yaml": _pods(names),
        f"src/{names.module}.py": _code(names, chosen, columns),
        f"tests/test_{names.module}.py": _tests(names, chosen, columns),
    }


# ---- code ----------------------------------------------------------------------------------------


def _code(names: Names, points: list[Point], columns: bool) -> str:
    columnar = [point for point in points if columns and point.columns]
    needs = {name for point in points for name in (point.base, *point.needs)} | {"PluginArgs"}
    needs |= {name for point in columnar for name in point.column_needs}
    attributes = [point.attribute for point in points if point.attribute]
    if attributes:
        needs.add("Handle")
    wakes = list(dict.fromkeys(point.wakes for point in points if point.wakes))
    if wakes:
        needs |= {"ClusterEvent", "events"}
    if columnar:
        needs.add("PodInfo")
    blocks = [_head(names, points, columnar)]
    if attributes:
        blocks.append(_constructor(names, attributes))
    for point in points:
        blocks.append(point.methods.replace("PLUGIN", names.plugin))
        if point in columnar:
            blocks.append(point.columns)
    if columnar:
        blocks.append(_SIGN)
    if wakes:
        blocks.append(_events(wakes))
    imports = _import("proreus.framework", needs)
    if any("np." in point.columns for point in columnar):
        imports = f"import numpy as np\n{imports}"
    bases = _call(f"class {names.plugin}", [point.base for point in points])
    body = indent("\n\n".join(blocks), "    ")
    enabled = "scheduler.yaml enables it in addition to the default plugins."
    docstring = (
        f'"""The plugin {names.plugin}: what it does, for which pods, and why.\n\n{enabled}\n"""'
    )
    return f"{docstring}\n\nfrom __future__ import annotations\n\n{imports}\n\n\n{bases}:\n{body}\n"


def _head(names: Names, points: list[Point], columnar: list[Point]) -> str:
    does = "\n".join(f"- {point.does}" for point in points)
    about = points[0].does if len(points) == 1 else f"At its extension points:\n\n{does}\n"
    shared = "\n\nrow_local = True" if columnar else ""
    return (
        dedent('''\
        """{about}"""{shared}

        class Args(PluginArgs):
            """The arguments in pluginConfig: ``args: {{label: …}}``."""

            label: str = "{package}.example.com"

        args: Args''')
        .format(about=about, shared=shared, package=names.package)
        .strip("\n")
    )


def _constructor(names: Names, attributes: list[str]) -> str:
    lines = [
        f"def __init__(self, args: {names.plugin}.Args, handle: Handle) -> None:",
        "    super().__init__(args, handle)",
        *(f"    {attribute}" for attribute in attributes),
    ]
    return "\n".join(lines)


def _events(wakes: list[str]) -> str:
    lines = [
        "def events_to_register(self) -> list[ClusterEvent]:",
        '    """Return the events that may make a rejected pod schedulable."""',
    ]
    if len(wakes) == 1:
        return "\n".join([*lines, f"    return [{wakes[0]}]"])
    return "\n".join([*lines, "    return [", *(f"        {one}," for one in wakes), "    ]"])


_SIGN = dedent('''\
    def sign(self, pod: PodInfo) -> tuple[str, ...]:
        """Return what Filter and Score read of a pod: equal pods share their results."""
        return ()''')


def _import(module: str, names: Iterable[str]) -> str:
    """Return an import statement, sorted as ruff sorts: classes, then functions and modules."""
    ordered = sorted(names, key=lambda name: (not name[0].isupper(), name.lower()))
    line = f"from {module} import {', '.join(ordered)}"
    if len(line) <= _WIDTH:
        return line
    return "\n".join([f"from {module} import (", *(f"    {name}," for name in ordered), ")"])


def _call(head: str, arguments: list[str]) -> str:
    line = f"{head}({', '.join(arguments)})"
    if len(line) + 1 <= _WIDTH:
        return line
    return "\n".join([f"{head}(", *(f"    {name}," for name in arguments), ")"])


# ---- tests ---------------------------------------------------------------------------------------


def _tests(names: Names, points: list[Point], columns: bool) -> str:
    tests = [point.test.replace("PLUGIN", names.plugin) for point in points]
    both = columns and any(point.columns for point in points)
    kit = [name for name in ("Harness", "make_node", "make_pod") if any(name in t for t in tests)]
    imports = f"{_import('proreus.testing', kit)}\n"
    if both:
        imports += "from proreus.testing.agreement import agree\n"
        tests.append(
            "def test_both_forms_agree_and_sharing_is_safe() -> None:\n"
            f'    agree({names.plugin}, {{"label": "zone"}}, examples=30)'
        )
    imports += f"\nfrom {names.module} import {names.plugin}\n"
    label = ""
    if any("LABEL" in test for test in tests):
        label = f'\nLABEL = "{names.package}.example.com"\n'
    head = f'"""What {names.plugin} decides, on small clusters without a network."""\n\n'
    return f"{head}{imports}{label}\n\n" + "\n\n\n".join(tests) + "\n"


# ---- the rest ------------------------------------------------------------------------------------


def _configuration(names: Names, points: tuple[str, ...]) -> str:
    special = ""
    if "queueSort" in points:
        special += f"""
          queueSort: # a scheduler has one
            enabled: [{{name: {names.plugin}}}]
            disabled: [{{name: "*"}}]"""
    if "bind" in points:
        special += f"""
          bind: # before DefaultBinder
            enabled: [{{name: {names.plugin}}}]"""
    text = f"""\
    # The default profile of kube-scheduler, with {names.plugin} in addition.
    apiVersion: kubescheduler.config.k8s.io/v1
    kind: KubeSchedulerConfiguration
    clientConnection:
      kubeconfig: sandbox.kubeconfig # remove this in a cluster
    leaderElection:
      leaderElect: false # remove this in a cluster
    profiles:
      - schedulerName: {names.package}
        plugins:
          multiPoint:
            enabled:
              - name: {names.plugin}{special}
        pluginConfig:
          - name: {names.plugin}
            args:
              label: {names.package}.example.com
    """
    return dedent(text)


def _pods(names: Names) -> str:
    return dedent(f"""\
    apiVersion: v1
    kind: Pod
    metadata:
      name: web
      namespace: default
    spec:
      schedulerName: {names.package}
      containers:
        - name: web
          image: registry.example/web:1
          resources:
            requests: {{cpu: 100m, memory: 64Mi}}
    """)


def _pyproject(names: Names) -> str:
    return dedent(f"""\
    [build-system]
    requires = ["hatchling"]
    build-backend = "hatchling.build"

    [project]
    name = "{names.package}"
    version = "0.1.0"
    description = "The scheduling plugin {names.plugin} for proreus."
    requires-python = ">=3.11"
    dependencies = ["proreus>={proreus.__version__}"]

    [project.optional-dependencies]
    test = ["proreus[testing]", "pytest>=8"]

    [project.entry-points."proreus.plugins"]
    {names.plugin} = "{names.module}:{names.plugin}"

    [tool.hatch.build.targets.wheel]
    only-include = ["src/{names.module}.py"]
    sources = ["src"]

    [tool.pytest.ini_options]
    testpaths = ["tests"]
    pythonpath = ["src"]
    addopts = "-p no:asyncio" # the harness has an event loop of its own

    [tool.ruff]
    line-length = 100
    src = ["src", "tests"]
    """)


def _readme(names: Names, points: list[Point]) -> str:
    does = "\n".join(f"- {point.does}" for point in points)
    text = """\
    # {plugin}

    A scheduling plugin for proreus.

    {does}

    ```
    pytest                                                        # its tests
    proreus plugins --plugin-dir src                              # is it found and valid?
    proreus sandbox --apply pods.yaml                             # a cluster to try it on …
    proreus run --config scheduler.yaml --plugin-dir src -v=2     # … and a scheduler with it
    ```

    `src/{module}.py` is the plugin, `scheduler.yaml` enables it. Installed with `pip install .`
    into the environment of proreus, it is found without `--plugin-dir`.
    """
    return dedent(text).format(plugin=names.plugin, module=names.module, does=does)
