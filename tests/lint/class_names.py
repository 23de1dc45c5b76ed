"""Public class names that more than one module defines, against those that may be.

    python tests/lint/class_names.py

A name that means two things costs its reader a look at the imports each time. ``make lint`` runs
this: a new collision is either renamed or gets a line, with its reason, in ``ALLOWED``.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from pathlib import Path

SOURCES = Path(__file__).parents[2] / "src" / "proreus"

_PROTOCOL = "a Protocol in framework/, and the one class that implements it"

ALLOWED = {
    "Counter": "Prometheus' word in metrics, DRA's word in the API",
    "EventRecorder": _PROTOCOL,
    "NodeAffinity": "a field of the pod's API, and the plugin that is configured by this name",
    "Nominator": _PROTOCOL,
    "PluginTimer": _PROTOCOL,
    "PodGroupState": _PROTOCOL,
    "PodGroupStates": _PROTOCOL,
    "PodGroupReprieve": _PROTOCOL,
    "PreemptionDryRun": _PROTOCOL,
    "WaitingPod": _PROTOCOL,
}
"""Name: why it may stand for more than one class."""


def definitions() -> dict[str, list[str]]:
    """Return where each public class of the package is defined, as ``path:line``."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(SOURCES.rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(f"{path.relative_to(SOURCES)}:{node.lineno}")
    return found


def main() -> int:
    """Print collisions that are not allowed, and allowances that nothing needs any more."""
    found = {name: places for name, places in definitions().items() if len(places) > 1}
    strict_errors = [
        f"{name} is defined more than once: {', '.join(places)}"
        for name, places in sorted(found.items())
        if name not in ALLOWED
    ]
    strict_errors += [
        f"{name} is allowed twice, but defined once" for name in ALLOWED.keys() - found
    ]
    print("\n".join(strict_errors) or f"class names: {len(ALLOWED)} allowed to be defined twice")
    return bool(strict_errors)


if __name__ == "__main__":
    sys.exit(main())
