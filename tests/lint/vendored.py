"""Checks the browser libraries in src/proreus/insight/dashboard/vendored, or fetches them anew.

    python tests/lint/vendored.py            # are they what packages.json says?
    python tests/lint/vendored.py --update   # the newest of each range, by `npm pack`

packages.json names each npm package with its range, version, licence, the integrity of its tarball
and the files that are taken from it. Nothing of a package is run.
"""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
VENDORED = ROOT / "src" / "proreus" / "insight" / "dashboard" / "vendored"
LIST = VENDORED / "packages.json"
ALLOWED = frozenset({"0BSD", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT"})

Json = dict[str, Any]


def main(arguments: list[str]) -> int:
    """Run; return 1 if something is wrong."""
    packages: dict[str, Json] = json.loads(LIST.read_text())
    if arguments == ["--update"]:
        for name, package in packages.items():
            update(name, package)
        LIST.write_text(json.dumps(packages, indent=2) + "\n")
    found = list(problems(packages))
    for problem in found:
        print(problem, file=sys.stderr)
    return int(bool(found))


def problems(packages: dict[str, Json], folder: Path = VENDORED) -> Iterator[str]:
    """Yield what differs from the list."""
    listed = {LIST.name}
    for name, package in packages.items():
        if package["licence"] not in ALLOWED:
            yield f"{name}: licence {package['licence']} is not allowed"
        for entry in package["files"].values():
            listed.add(entry["as"])
            file = folder / entry["as"]
            if not file.exists():
                yield f"{name}: {entry['as']} is missing"
            elif sha256(file.read_bytes()) != entry["sha256"]:
                yield f"{name}: {entry['as']} is not what {package['version']} has"
    for file in sorted(folder.iterdir()):
        if file.name not in listed:
            yield f"{file.name}: of no listed package"


def update(name: str, package: Json) -> None:
    """Take the newest version of a package's range."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            ["npm", "pack", "--json", "--ignore-scripts", f"{name}@{package['range']}"],
            cwd=folder,
            capture_output=True,
            text=True,
            check=True,
        )
        # The newest is last where a range has several.
        packed = json.loads(done.stdout)[-1]
        tarball = Path(folder) / packed["filename"]
        digest = base64.b64encode(hashlib.sha512(tarball.read_bytes()).digest()).decode()
        if packed["integrity"] != f"sha512-{digest}":
            raise SystemExit(f"{name}: the tarball is not what the registry says")
        with tarfile.open(tarball) as archive:
            described = json.loads(content(archive, "package.json"))
            package["version"] = described["version"]
            package["licence"] = described["license"]
            package["integrity"] = packed["integrity"]
            for path, entry in package["files"].items():
                data = content(archive, path)
                (VENDORED / entry["as"]).write_bytes(data)
                entry["sha256"] = sha256(data)


def content(archive: tarfile.TarFile, path: str) -> bytes:
    """Return a file of an npm tarball."""
    file = archive.extractfile(f"package/{path}")
    if file is None:
        raise SystemExit(f"{path} is no file")
    return file.read()


def sha256(data: bytes) -> str:
    """Return the hexadecimal digest."""
    return hashlib.sha256(data).hexdigest()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
