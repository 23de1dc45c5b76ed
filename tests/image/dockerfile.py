"""Runs the steps of our Dockerfile on root file systems in folders, without a container engine.

Only what that Dockerfile uses is understood; anything else is an error, not skipped.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_NO_EFFECT = {"LABEL", "EXPOSE"}
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass
class Image:
    """One stage: its root file system, and what the Dockerfile sets for its processes."""

    root: Path
    env: dict[str, str] = field(default_factory=lambda: {"PATH": PATH})
    working_directory: str = "/"
    user: str = "0:0"
    entry_point: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)

    def arguments(
        self,
        command: list[str],
        *,
        read_only: bool,
        empty: Sequence[str] = (),
        mounts: Mapping[str, Path] = {},
        env: Mapping[str, str] = {},
    ) -> list[str]:
        """Return the command line that runs a command in the image, with namespaces of its own.

        ``empty``: where to mount empty folders that can be written to. ``mounts``: folders to mount
        read-only, by their place in the image. Needs root.
        """
        root = shlex.quote(str(self.root))
        lines = [f"mount --bind {root} {root}"]
        lines.append(f"mount --bind /dev {root}/dev")
        lines.append(f"mount -t proc proc {root}/proc")
        for place in empty:
            lines.append(f"mount -t tmpfs -o mode=1777 tmpfs {shlex.quote(f'{self.root}{place}')}")
        for place, folder in mounts.items():
            target = shlex.quote(f"{self.root}{place}")
            lines.append(f"mount --bind {shlex.quote(str(folder))} {target}")
            lines.append(f"mount -o remount,ro,bind {target}")
        if read_only:
            lines.append(f"mount -o remount,ro,bind {root}")
        pairs = [f"{name}={value}" for name, value in {**self.env, **env}.items()]
        inside = f'cd {shlex.quote(self.working_directory)} && exec "$@"'
        run = ["env", "-i", *pairs, "sh", "-c", inside, "sh", *command]
        lines.append(f"exec chroot --userspec={self.user} --groups= {root} {shlex.join(run)}")
        return [
            *("unshare", "--mount", "--pid", "--fork", "--kill-child=SIGTERM"),
            *("sh", "-ec", "\n".join(lines)),
        ]


def instructions(text: str) -> Iterator[tuple[str, str]]:
    """Yield instruction and arguments of a Dockerfile."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        if line.strip():
            name, _, rest = line.strip().partition(" ")
            yield name.upper(), rest.strip()


def environment(text: str) -> dict[str, str]:
    """Return what the ENV instructions of a Dockerfile's last stage set, variables unreplaced."""
    settings: dict[str, str] = {}
    for name, rest in instructions(text):
        if name == "FROM":
            settings.clear()
        elif name == "ENV":
            settings |= dict(_pairs(rest))
    return settings


def _pairs(rest: str) -> Iterator[tuple[str, str]]:
    for pair in shlex.split(rest):
        name, _, value = pair.partition("=")
        yield name, value


def build(dockerfile: Path, base: Path, work: Path, env: Mapping[str, str]) -> Image:
    """Run all stages in folders of ``work``; return the last one.

    ``base`` stands for the image of every FROM. ``env``: of commands that are run.
    """
    stages: dict[str, Image] = {}
    image: Image | None = None
    for name, rest in instructions(dockerfile.read_text()):
        if name == "ARG" or name in _NO_EFFECT:
            continue
        if name == "FROM":
            stage = rest.partition(" AS ")[2] or "last"
            work.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(work / stage, ignore_errors=True)
            subprocess.run(["cp", "-a", "--reflink=auto", base, work / stage], check=True)
            image = stages[stage] = Image(work / stage)
            continue
        assert image is not None, f"{name} before FROM"
        _apply(image, name, rest, dockerfile.parent, stages, env)
    assert image is not None, "no FROM"
    return image


def _apply(
    image: Image,
    name: str,
    rest: str,
    context: Path,
    stages: Mapping[str, Image],
    env: Mapping[str, str],
) -> None:
    match name:
        case "WORKDIR":
            image.working_directory = rest
            _inside(image, rest).mkdir(parents=True, exist_ok=True)
        case "COPY":
            _copy(image, rest.split(), context, stages)
        case "RUN":
            print(f"RUN {' '.join(rest.split())}", flush=True)
            subprocess.run(
                image.arguments(["sh", "-c", rest], read_only=False, env=env), check=True
            )
        case "ENV":
            for key, value in _pairs(rest):
                image.env[key] = re.sub(r"\$(\w+)", lambda found: image.env[found[1]], value)
        case "USER":
            image.user = rest
        case "ENTRYPOINT":
            image.entry_point = json.loads(rest)
        case "CMD":
            image.command = json.loads(rest)
        case _:
            raise ValueError(f"{name} is not understood here")


def _copy(image: Image, words: list[str], context: Path, stages: Mapping[str, Image]) -> None:
    origin = context
    if words[0].startswith("--from="):
        origin = stages[words.pop(0).removeprefix("--from=")].root
    *sources, target = words
    for source in sources:
        found = origin / source.lstrip("/")
        place = _inside(image, os.path.join(image.working_directory, target))
        if found.is_dir():
            ignored = None if origin is not context else shutil.ignore_patterns("__pycache__")
            shutil.copytree(found, place, symlinks=True, dirs_exist_ok=True, ignore=ignored)
        else:
            place.mkdir(parents=True, exist_ok=True)
            shutil.copy2(found, place)


def _inside(image: Image, path: str) -> Path:
    return image.root / os.path.normpath(path).lstrip("/")
