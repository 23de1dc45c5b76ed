"""Builds a release: ``make release``.

    python release.py dist build/proreus.cdx.json

Everything comes from the commit that is checked out, and is built twice, in two folders. A release
of which the second build differs is refused.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Iterable
from pathlib import Path
from zipfile import ZipFile

ROOT = Path(__file__).resolve().parent
CHANGELOG = "CHANGELOG.md"
CHART = Path("deploy", "chart")
DEFINITIONS = Path("deploy", "crds")
CHECKSUMS = "SHA256SUMS"


class ReleaseError(Exception):
    """A release cannot be made; the text says why."""


def main(folder: Path, sbom: Path) -> None:
    """Build a release into a folder, which is emptied."""
    if changed := _git("status", "--porcelain", "--untracked-files=no").strip():
        print(f"not part of the release, since not committed:\n{changed}", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="proreus-release-") as work:
        first, second = (build(Path(work, name), sbom) for name in ("first", "second"))
        if differing := different_files(first, second):
            raise ReleaseError(f"built twice, these differ: {', '.join(differing)}")
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(first, folder)
    for file in sorted(folder.iterdir()):
        print(f"{file.stat().st_size:>12,}  {file}")


def build(work: Path, sbom: Path) -> Path:
    """Build a release of the present commit in a new folder; return the folder with its files."""
    source, made = work / "source", work / "made"
    made.mkdir(parents=True)
    check_out(source)
    seconds = int(_git("log", "-1", "--format=%ct"))
    project = tomllib.loads((source / "pyproject.toml").read_text())["project"]
    name, version = project["name"], project["version"]
    wheel = build_wheel(source, made, seconds)
    packed = gzip.compress(_packed(f"{name}-{version}/", metadata_of(wheel)), mtime=0)
    (made / f"{name}-{version}.tar.gz").write_bytes(packed)
    if (source / CHART).is_dir():
        chart = files_in(source / CHART)
        archive(made / f"{name}-chart-{version}.tgz", source / CHART, chart, name, seconds)
    image = image_recipe(source)
    archive(made / f"{name}-image-{version}.tar.gz", source, image, "", seconds)
    definitions = sorted((source / DEFINITIONS).glob("*.yaml"))
    texts = [one.read_text() for one in definitions if one.stem != "kustomization"]
    (made / f"{name}-crds-{version}.yaml").write_text("---\n".join(texts))
    shutil.copyfile(sbom, made / f"{name}-{version}.cdx.json")
    notes = release_notes((source / CHANGELOG).read_text(), version)
    (made / "release-notes.md").write_text(notes)
    sums = [f"{_sha256(file)}  {file.name}\n" for file in sorted(made.iterdir())]
    (made / CHECKSUMS).write_text("".join(sums))
    return made


def check_out(folder: Path) -> None:
    """Write the files of the present commit into a new folder."""
    with tarfile.open(fileobj=io.BytesIO(_packed())) as files:
        files.extractall(folder, filter="data")


def _packed(prefix: str = "", package_information: str = "") -> bytes:
    """Return the present commit as a tar archive; with PKG-INFO it is an sdist."""
    command = ["git", "archive", "--format=tar", f"--prefix={prefix}"]
    with tempfile.TemporaryDirectory() as folder:
        if package_information:
            Path(folder, "PKG-INFO").write_text(package_information)
            command.append(f"--add-file={folder}/PKG-INFO")
        return subprocess.run(
            [*command, "HEAD"], cwd=ROOT, check=True, stdout=subprocess.PIPE
        ).stdout


def build_wheel(source: Path, made: Path, seconds: int) -> Path:
    """Build the wheel, which hatchling writes the same each time, and return its file."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(made)]
    environment = os.environ | {"SOURCE_DATE_EPOCH": str(seconds)}
    done = subprocess.run(command, cwd=source, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise ReleaseError(f"hatchling failed:\n{done.stderr}")
    [wheel] = made.glob("*.whl")
    return wheel


def metadata_of(wheel: Path) -> str:
    """Return a wheel's METADATA, which is PKG-INFO in an sdist."""
    with ZipFile(wheel) as files:
        [name] = [one for one in files.namelist() if one.endswith(".dist-info/METADATA")]
        return files.read(name).decode()


def release_notes(changelog: str, version: str) -> str:
    """Return the section of a version in a changelog."""
    heading = rf"^## \[{re.escape(version)}\][^\n]*\d{{4}}-\d\d-\d\d\n"
    found = re.search(rf"({heading}.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL)
    if found is None:
        raise ReleaseError(f"{CHANGELOG} has no section [{version}] with a date")
    return found[1].strip() + "\n"


def image_recipe(source: Path) -> list[Path]:
    """Return the files from which the image is built, relative to the source.

    With them an engine needs nothing else: ``docker build - < proreus-image-0.1.0.tar.gz``.
    """
    lines = (source / ".dockerignore").read_text().splitlines()
    let_through = [line[1:] for line in lines if line.startswith("!")]
    names = [".dockerignore", "Dockerfile", *let_through]
    return [file for name in names for file in files_in(source / name, source)]


def files_in(path: Path, root: Path | None = None) -> list[Path]:
    """Return a file, or the files in a folder, relative to ``root`` or to the folder.

    Links are followed: the chart has links to the kustomizations.
    """
    if path.is_file():
        return [path.relative_to(root or path.parent)]
    walk = os.walk(path, followlinks=True)
    return sorted(
        Path(at, name).relative_to(root or path) for at, _, names in walk for name in names
    )


def archive(target: Path, root: Path, names: Iterable[Path], prefix: str, seconds: int) -> None:
    """Write files to an archive that depends on their names, contents and x-bits alone.

    ``names``: relative to ``root``. ``prefix``: the folder that they get in the archive.
    ``seconds``: the time of every file.
    """
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as files:
        for name in sorted(names):
            content = (root / name).read_bytes()
            entry = tarfile.TarInfo(Path(prefix, name).as_posix())
            entry.size, entry.mtime = len(content), seconds
            entry.mode = 0o755 if (root / name).stat().st_mode & 0o100 else 0o644
            files.addfile(entry, io.BytesIO(content))
    target.write_bytes(gzip.compress(packed.getvalue(), mtime=0))


def different_files(first: Path, second: Path) -> list[str]:
    """Return the names of files that differ, or that only one of two folders has."""
    sums = [{file.name: _sha256(file) for file in one.iterdir()} for one in (first, second)]
    return sorted({name for name, _ in sums[0].items() ^ sums[1].items()})


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise ReleaseError(f"git {arguments[0]}: {done.stderr.strip()}")
    return done.stdout


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), Path(sys.argv[2]))
    except ReleaseError as error:
        sys.exit(f"make release: {error}")
