"""Files that come with the code: definitions of custom resources, examples, the chart.

The wheel has them in ``proreus/shipped`` (pyproject.toml), a checkout in their own folders.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import click

import proreus
from proreus.base.errors import ConfigError
from proreus.base.similar_names import similar

_PACKAGE = Path(proreus.__file__).parent
_LEFT_OUT = shutil.ignore_patterns("test_*.py", "__pycache__")
"""Tests of an example need the repository."""


def shipped_folder(name: str) -> Path:
    """Return a folder by its path in the repository, such as ``deploy/crds``."""
    for root in (_PACKAGE / "shipped", _PACKAGE.parents[1]):
        if (root / name).is_dir():
            return root / name
    raise ConfigError(f"this installation of proreus has no {name}")


def write_folder(source: Path, target: Path) -> None:
    """Copy a folder and say which files it has; the target may not have any yet."""
    if target.exists() and any(target.iterdir()):
        raise click.ClickException(f"{target} exists and is not empty")
    shutil.copytree(source, target, ignore=_LEFT_OUT, dirs_exist_ok=True)
    for file in sorted(target.rglob("*")):
        if file.is_file():
            click.echo(f"wrote {file}")


def chosen(name: str, known: Mapping[str, Path]) -> Path:
    """Return the file or folder of a name; raises ``click.BadParameter``."""
    if name in known:
        return known[name]
    meant = similar(name, known)
    question = f"did you mean {meant}? " if meant else ""
    raise click.BadParameter(f"{name}: {question}choose from {', '.join(known)}", param_hint="NAME")
