"""Checks that a CycloneDX list names every package of the runtime lock, in its version.

Nor may it name files of the machine on which it was made.

python tests/lint/sbom.py build/proreus.cdx.json
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

LOCK = Path(__file__).resolve().parents[2] / "requirements" / "runtime.txt"


def main(path: str) -> int:
    """Print what is wrong; return the exit code."""
    text = Path(path).read_text()
    bom = json.loads(text)
    components = bom["components"]
    listed = {pinned(one["name"], one["version"]) for one in components}
    found = re.findall(r"^(\S+)==([^\s;]+)", LOCK.read_text(), re.MULTILINE)
    locked = {pinned(name, version) for name, version in found}
    for one in sorted(listed ^ locked):
        print(f"{one} is {'listed' if one in listed else 'locked'} only")
    local = re.findall(r'"(file:[^"]*)"', text)
    for one in local:
        print(f"{one} is a file of this machine")
    unlicensed = [one["name"] for one in components if not one.get("licenses")]
    about = bom["metadata"]["component"]
    print(
        f"{path}: {about['name']} {about['version']}, CycloneDX {bom['specVersion']}, "
        f"{len(components)} components, without a licence: {', '.join(unlicensed) or 'none'}"
    )
    return 1 if listed != locked or unlicensed or local else 0


def pinned(name: str, version: str) -> str:
    """Return name and version, the name in its normal form."""
    return f"{re.sub(r'[-_.]+', '-', name).lower()}=={version}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
