"""The files of a new plugin's package, made from ``templates``.

The templates have small working examples, to be replaced by the plugin's real logic. They react to
one label of nodes and pods, the plugin's only argument.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from jinja2 import Environment, PackageLoader, StrictUndefined

import proreus
from proreus import framework
from proreus.process.cli.new_plugin.names import Names

_WIDTH = 100
_FILES = {
    "README.md": "README.md",
    "pyproject.toml": "pyproject.toml",
    "scheduler.yaml": "scheduler.yaml",
    "pods.yaml": "pods.yaml",
    "src/{module}.py": "plugin.py",
    "tests/test_{module}.py": "test_plugin.py",
}
"""Paths in the package's folder, and their templates."""


def files_of(names: Names, points: Mapping[str, str], columns: bool) -> Mapping[str, str]:
    """Return the text of each file by its path in the package's folder.

    ``points``: what the plugin does at each of its extension points, in a sentence.
    """
    environment = Environment(
        loader=PackageLoader("proreus.process.cli.new_plugin"),
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    environment.globals.update(
        names._asdict(),
        points=points,
        columns=columns,
        version=proreus.__version__,
        class_line=_class_line,
        imports=_imports,
        framework_names=framework.__all__,
    )
    return {
        path.format(module=names.module): environment.get_template(f"{name}.jinja").render()
        for path, name in _FILES.items()
    }


def _class_line(plugin: str, points: Iterable[str]) -> str:
    bases = [f"{point[0].upper()}{point[1:]}Plugin" for point in points]
    line = f"class {plugin}({', '.join(bases)}):"
    if len(line) <= _WIDTH:
        return line
    return "\n".join([f"class {plugin}(", *(f"    {base}," for base in bases), "):"])


def _imports(module: str, names: Iterable[str], code: str) -> str:
    """Return the import of those names that the code has, sorted as ruff sorts: classes first."""
    used = set(re.findall(r"\w+", code)).intersection(names)
    ordered = sorted(used, key=lambda name: (not name[0].isupper(), name.lower()))
    line = f"from {module} import {', '.join(ordered)}"
    if len(line) <= _WIDTH:
        return line
    return "\n".join([f"from {module} import (", *(f"    {name}," for name in ordered), ")"])
